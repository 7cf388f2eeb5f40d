"""What every check is given."""
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from contestants import Tools
from hardware import Gpu


class CannotRun(Exception):
    """A check that needs what is not here; the message says what."""


@dataclass(frozen=True)
class Setting:
    """`gpu` is None in a rehearsal, which puts CPUs in its place."""
    root: Path               # of the source tree
    build: Path
    python: Callable[[], Path]  # found, or made, when it is asked for; throws CannotRun
    gpu: Gpu | None
    say: Callable[[str], None]

    @property
    def device(self) -> str:
        """Value of device.kind for what is to be proved."""
        return "cuda" if self.gpu else "cpu"

    @property
    def tools(self) -> Tools:
        return Tools(self.build, self.python())

    @property
    def program(self) -> Path:
        return self.build / "bin/fullshard"

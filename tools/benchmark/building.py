"""Builds the programs that take part."""
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Sequence

from mistakes import UsageError

PRESET = "release"
PROGRAMS = ("fullshard", "fullshard-ckpt")
MICRO = ("fullshard-micro-", "fullshard_micro_c_kernels")  # how targets of tools/micro begin


def run(words: Sequence[object], root: Path, variables: dict[str, str], keep: bool = False) -> str:
    done = subprocess.run([str(word) for word in words], cwd=root, env=variables, text=True,
                          stdout=subprocess.PIPE if keep else sys.stderr)
    if done.returncode != 0:
        raise UsageError(f"{words[0]} failed with status {done.returncode}; its message is above")
    return done.stdout or ""


def micro_targets(listing: str) -> list[str]:
    """Of the generator's list of targets, lines such as "fullshard-micro-update: phony"."""
    names = (line.partition(":")[0].strip() for line in listing.splitlines())
    return sorted({name for name in names if name.startswith(MICRO) and "/" not in name and "." not in name})


def make(root: Path, say: Callable[[str], None]) -> Path:
    """The build tree, configured and up to date."""
    say("building")
    libtorch = run([root / "tools/setup"], root, dict(os.environ), keep=True).strip()
    variables = os.environ | {"FULLSHARD_LIBTORCH": libtorch}
    run(["cmake", "--preset", PRESET], root, variables)
    listing = run(["cmake", "--build", "--preset", PRESET, "--target", "help"], root, variables, keep=True)
    run(["cmake", "--build", "--preset", PRESET, "--target", *PROGRAMS, *micro_targets(listing)], root, variables)
    return root / "build" / PRESET

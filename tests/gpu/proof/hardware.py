"""The GPU that is used, and what nvidia-smi says of it."""
import os
import subprocess
import threading
from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

FIELDS = ("index", "name", "uuid", "driver_version", "memory.total", "compute_cap")
PATIENCE = 60.0  # seconds for an answer; the first one may have to load the driver


class NoGpu(Exception):
    """The message says what was asked and what the answer was. Exit status 3."""


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    uuid: str
    driver: str
    memory_mib: int
    compute_capability: str


def ask(*words: str) -> str:
    try:
        done = subprocess.run(["nvidia-smi", *words, "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=PATIENCE)
    except FileNotFoundError:
        raise NoGpu("nvidia-smi, which comes with NVIDIA's driver, is not installed") from None
    except subprocess.TimeoutExpired:
        raise NoGpu(f"nvidia-smi has not answered within {PATIENCE:.0f} s") from None
    if done.returncode != 0:
        answer = " ".join((done.stdout + done.stderr).split())
        raise NoGpu(f"nvidia-smi ended with status {done.returncode}: {answer}")
    return done.stdout


def parse(table: str) -> list[Gpu]:
    """Lines of --query-gpu=FIELDS."""
    gpus = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(FIELDS):
            raise NoGpu(f"nvidia-smi lists no GPU: {line.strip()}")
        index, name, uuid, driver, memory, capability = cells
        gpus.append(Gpu(int(index), name, uuid, driver, int(memory), capability))
    if not gpus:
        raise NoGpu("nvidia-smi lists none")
    return gpus


def choose(gpus: Sequence[Gpu], visible: str | None) -> Gpu:
    """The first one, or the first of CUDA_VISIBLE_DEVICES: an index, or the beginning of a UUID."""
    if visible is None:
        return gpus[0]
    wanted = visible.split(",")[0].strip()
    for gpu in gpus:
        if wanted and (wanted == str(gpu.index) or gpu.uuid.startswith(wanted)):
            return gpu
    raise NoGpu(f"CUDA_VISIBLE_DEVICES = '{visible}' begins with none of {', '.join(gpu.uuid for gpu in gpus)}")


def find(variables: Mapping[str, str] = os.environ) -> Gpu:
    return choose(parse(ask(f"--query-gpu={','.join(FIELDS)}")), variables.get("CUDA_VISIBLE_DEVICES"))


def memory_used(gpu: Gpu) -> int:
    """MiB, of all processes."""
    return int(ask(f"--id={gpu.uuid}", "--query-gpu=memory.used"))


class PeakMemory:
    """The most memory that is used within the block, in MiB, beyond what was used when it was entered. None where
    nvidia-smi does not tell."""

    def __init__(self, read: Callable[[], int], period: float = 0.05):
        self.read, self.period = read, period
        self.before = self.peak = 0
        self.failed = False
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        try:
            while not self.over.wait(self.period):
                self.peak = max(self.peak, self.read())
        except (NoGpu, ValueError):
            self.failed = True

    def __enter__(self) -> "PeakMemory":
        try:
            self.before = self.read()
        except (NoGpu, ValueError):  # a number is "[N/A]" on some
            self.failed = True
        else:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()

    def mib(self) -> int | None:
        return None if self.failed else max(0, self.peak - self.before)

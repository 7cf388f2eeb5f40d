"""Small trainings by FullShard alone, and the comparison of their losses."""
import math
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Mapping, Sequence

from mistakes import CaseError
from processes import Job, environment, mpirun
from records import RecordFile, losses_by_step
from results import CaseResult, Measure
from setting import Setting

STEPS = 20
EARLY = 5        # steps in which differences of rounding have not grown yet
LIMIT = 120.0    # seconds of one run


@dataclass(frozen=True)
class Tolerance:
    """Relative differences of losses that are allowed in the first EARLY steps and later."""
    early: float
    late: float

    def of_step(self, step: int) -> float:
        return self.early if step <= EARLY else self.late


# fp32: sums of another order differ by 1e-7, and each update hands that on. Two matrix libraries and orders of sums on
# CPUs differ by 1e-7 in the first 5 steps of DECKS and by 2e-5 later. bf16: numbers lie 2^-8 apart, products are
# rounded to one of them after such sums, and a mean over tokens differs by less: by 3e-4 and 2e-3 on CPUs.
TOLERANCES = {"fp32": Tolerance(1e-4, 1e-3), "bf16": Tolerance(2.0**-8, 2.0**-6)}
# Losses must fall by so many times what they may differ, or to compare them shows nothing.
LEARNT = 3.0

_COMMON = {
    "data.source": "synthetic", "data.sequence": 64, "data.synthetic_sequences": 16, "data.validation_fraction": 0,
    "train.steps": STEPS, "train.micro_batch": 4, "optimizer.lr": "3e-3", "model.vocab_size": 512,
    "model.d_model": 128, "model.num_heads": 4, "model.num_layers": 3, "model.dropout": 0,
}
GPT2 = {**_COMMON, "model.family": "gpt2", "model.d_ff": 512}
LLAMA = {**_COMMON, "model.family": "llama", "model.num_kv_heads": 2, "model.d_ff": 384}
# One rank sees few sequences of the deck's; the batch of 4 ranks makes its losses fall.
SMOKE = {"deck": "inputs/smoke.ini", "train.micro_batch": 8}
DECKS: dict[str, Mapping[str, object]] = {"smoke deck": SMOKE, "GPT-2": GPT2, "Llama": LLAMA}

# Ranks that share a GPU. NCCL takes processes with different ids for different hosts, and connects them by sockets.
SHARED_GPU = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "1"}
OWN_HOST = 'NCCL_HOSTID=rank-$OMPI_COMM_WORLD_RANK; export NCCL_HOSTID; exec "$0" "$@"'


@dataclass
class Training:
    name: str
    job: Job
    file: RecordFile

    def finish(self) -> list[float]:
        """Waits for its good end, and gives the loss of each step."""
        self.job.wait(LIMIT)
        return self.losses()

    def losses(self) -> list[float]:
        steps = self.file.of_kind("step")
        return losses_by_step([steps], max(record["step"] for record in steps))

    def record(self, kind: str) -> dict:
        return self.file.of_kind(kind)[-1]


def start(setting: Setting, running: list[Job], name: str, folder: Path, keys: Mapping[str, object], device: str,
          ranks: int = 1) -> Training:
    """A run in `folder`, in which it may go on with an earlier one; `running` is the list of processes.jobs()."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("output-*.log")))
    deck = folder / "empty.ini"
    deck.write_text("")
    if "deck" in keys:
        deck = setting.root / str(keys["deck"])
    # Any two devices may add in another order, and ranks on GPUs do.
    keys = {"run.dir": folder / "run", "reduce.order": "fast", "checkpoint.every": 0, "device.kind": device,
            **{key: value for key, value in keys.items() if key != "deck"}}
    words = [setting.program, "train", deck, *(word for key, value in keys.items() for word in (f"--{key}", value))]
    # Products of fp32 numbers are not to be rounded to TF32, whatever the libraries' defaults.
    variables = {**environment(1), "NVIDIA_TF32_OVERRIDE": "0"}
    if ranks > 1:
        variables |= SHARED_GPU
        words = ["sh", "-c", OWN_HOST, *words]
    job = Job(name, mpirun(ranks, words), variables, folder / f"output-{number}.log")
    running.append(job)
    return Training(name, job, RecordFile(folder / "run/metrics.jsonl"))


def relative_difference(value: float, expected: float) -> float:
    """Infinite where either is no number."""
    difference = abs(value - expected) / abs(expected) if expected else abs(value)
    return difference if math.isfinite(difference) else math.inf


def complaints(losses: Sequence[float], expected: Sequence[float], tolerance: Tolerance) -> list[str]:
    """What keeps the two from telling of one training: nothing, or the reasons."""
    found = []
    if len(losses) != len(expected):
        found.append(f"{len(losses)} steps against {len(expected)}")
    for step, (value, right) in enumerate(zip(losses, expected), start=1):
        difference = relative_difference(value, right)
        if not difference <= tolerance.of_step(step):
            found.append(f"step {step} has {value:.7g} for {right:.7g}, which differs by {difference:.1e}, more than "
                         f"{tolerance.of_step(step):.1e}")
            break  # later ones follow from it
    fall = (expected[0] - expected[-1]) / abs(expected[0]) if expected else 0.0
    if not fall >= LEARNT * tolerance.late:
        found.append(f"the expected losses fall by {fall:.1e} of the first one: too little to show anything")
    return found


class Comparisons:
    """Compares one pair of runs after the other, and fails at the end, with all that differ."""

    def __init__(self, result: CaseResult):
        self.result = result
        self.failures: list[str] = []

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """A run that fails in the block does not keep others from being compared."""
        try:
            yield
        except CaseError as error:
            self.failures.append(f"{name}: {error}")

    def add(self, name: str, losses: Sequence[float], expected: Sequence[float], tolerance: Tolerance) -> None:
        self.result.raw.setdefault("losses", {})[name] = {"losses": list(losses), "expected": list(expected)}
        pairs = [relative_difference(value, right) for value, right in zip(losses, expected)]
        for part, values in ((f"steps 1-{EARLY}", pairs[:EARLY]), ("later steps", pairs[EARLY:])):
            if values:
                self.result.measures.append(
                    Measure.once(f"{name}: largest difference of losses, {part}", "relative", max(values)))
        self.failures += [f"{name}: {complaint}" for complaint in complaints(losses, expected, tolerance)]

    def require_all(self) -> None:
        if self.failures:
            raise CaseError("; ".join(self.failures))

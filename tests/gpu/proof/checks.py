"""All checks by name, and how one is run."""
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, Sequence

from device_tests import check_device_tests
from equality import check_equal, check_memory, check_overlap, check_ranks, check_restart
from mistakes import CaseError, UsageError
from report import FAILED, NOT_RUN, PASSED, Outcome
from results import CaseResult
from setting import CannotRun, Setting
from speeds import check_large, check_sharding, check_small


@dataclass(frozen=True)
class Check:
    """`run` puts what it finds into the result, in a folder that does not exist yet, and throws CaseError when
    something is not as it must be, CannotRun when it cannot tell."""
    name: str
    proves: str
    budget_s: float
    run: Callable[[Setting, CaseResult, Path], None]
    needs_python: bool = False  # with PyTorch


CHECKS = (
    Check("unit", "unit tests on the device: streams, events, copies, kernels, NCCL (ctest -L gpu; a skipped one "
                  "fails)", 75, check_device_tests),
    Check("equal", "smoke deck, a small GPT-2 and a small Llama have the losses of CPUs for 20 steps, in fp32 (no "
                   "TF32) and bf16", 60, check_equal),
    Check("restart", "a run goes on from the GPU's checkpoint on CPUs, from theirs on the GPU, as if it had never "
                     "stopped", 30, check_restart),
    Check("ranks", "2 and 4 ranks over NCCL on this one GPU have the losses of 1 rank: full_shard, hybrid_shard", 60,
          check_ranks),
    Check("memory", "GPT-2 124M in bf16 allocates what was predicted; the GPU's memory in use beside it", 20,
          check_memory),
    Check("sharding", "full_shard at 1 rank keeps 97 % of the speed of no_shard: GPT-2 124M in bf16", 40,
          check_sharding, needs_python=True),
    Check("gpt2-124m", "speed of GPT-2 124M in bf16 beside PyTorch, eager and torch.compile, in turns; losses agree "
                       "first", 65, check_small, needs_python=True),
    Check("gpt2-1558m", "the same of a model of GPT-2's largest shape, 1558M", 120, check_large, needs_python=True),
    Check("overlap", "a trace of two steps at 2 ranks shows gathers and reductions in flight, and how much of them "
                     "computing hides", 9, check_overlap),
)


def choose(names: Sequence[str]) -> list[Check]:
    """In the order of CHECKS; all without names."""
    known = [check.name for check in CHECKS]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no check {name}; the checks are {', '.join(known)}")
    return [check for check in CHECKS if not names or check.name in names]


class Ended(Exception):
    """Of a check that has had its time. No CaseError, which a check may catch to go on."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Throws Ended into what still runs in the block after so long."""
    def leave(*_: object) -> None:
        raise Ended(f"it was ended after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(check: Check, setting: Setting, folder: Path) -> Outcome:
    result = CaseResult(check.name, check.proves)
    state, reason = PASSED, ""
    begin = time.monotonic()
    try:
        with time_limit(2 * check.budget_s or 1.0):
            check.run(setting, result, folder)
    except (CaseError, Ended) as error:
        state, reason = FAILED, str(error)
    except CannotRun as error:
        state, reason = NOT_RUN, str(error)
    return Outcome(check.name, check.proves, state, reason, time.monotonic() - begin, check.budget_s, result.measures,
                   result.raw)

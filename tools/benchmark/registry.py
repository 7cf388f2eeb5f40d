"""All cases by name: how each is run, and which of them a call without names runs."""
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from cases import TRAINING_CASES
from checkpointing import run_checkpoint
from consolidation import run_consolidation
from contestants import Tools
from micro import run_micro
from mistakes import UsageError
from results import CaseResult
from startup import run_startup
from training import run_training
from turns import Log


@dataclass(frozen=True)
class Case:
    """`run` puts measures and samples into a result. It is given a folder that does not exist yet and a number of
    rounds, and throws CaseError when there is nothing to tell."""
    name: str
    title: str
    run: Callable[[Tools, CaseResult, Path, int, Log], None]
    rounds: int
    quick_rounds: int = 0       # 0: not part of a quick run
    by_default: bool = True
    needs: tuple[str, ...] = ()  # other cases, without which this one's numbers mean nothing


def _training_cases() -> list[Case]:
    quick = {"gpt2-small-batch": 5}
    rounds = {"gpt2": 9, "gpt2-small-batch": 9}
    return [Case(case.name, case.title, lambda tools, result, folder, count, log, case=case:
                 run_training(tools, case, result, folder, count, log), rounds.get(case.name, 7),
                 quick.get(case.name, 0), needs=(case.checked_by,) if case.checked_by else ())
            for case in TRAINING_CASES]


CASES = (
    *_training_cases(),
    Case("startup", "start-up to the end of the first step, sizes of the smoke deck, 2 ranks, files in the page cache",
         run_startup, rounds=7, quick_rounds=3),
    Case("checkpoint", "checkpoints of GPT-2 with 49 M parameters (0.6 GB with moments), 2 ranks", run_checkpoint,
         rounds=7, quick_rounds=2),
    Case("micro", "parts of the program beside their physical limits", run_micro, rounds=1, quick_rounds=1),
    Case("consolidate", "fullshard-ckpt on a checkpoint of 4 GB, within 256 MiB of memory", run_consolidation,
         rounds=3, by_default=False),
)


def choose(names: Sequence[str], quick: bool) -> list[Case]:
    """The named cases and what they need, or the default set, in the order of CASES."""
    known = {case.name: case for case in CASES}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no case {name}; the cases are {', '.join(known)}")
    if not names:
        names = [case.name for case in CASES if (case.quick_rounds > 0 if quick else case.by_default)]
    wanted = set(names).union(*(known[name].needs for name in names))
    return [case for case in CASES if case.name in wanted]


def rounds_of(case: Case, quick: bool) -> int:
    return max(1, case.quick_rounds or min(3, case.rounds)) if quick else case.rounds

"""Gives contestants turns of a few records each, while the others are held."""
import random
import time
from dataclasses import dataclass
from typing import Callable, Sequence

from contestants import Run
from mistakes import CaseError

POLL = 0.02        # seconds
PATIENCE = 300.0   # seconds for the records of one turn

Log = Callable[[str], None]


@dataclass(frozen=True)
class Turn:
    """The time in which one contestant alone was running."""
    round: int
    begin: float
    end: float


def wait_for_records(run: Run, kind: str, count: int, after: float = 0.0) -> None:
    """Returns once every rank has written `count` records of `kind` that end later than `after`."""
    deadline = time.monotonic() + PATIENCE
    while any(sum(end > after for end in ends) < count for ends in run.ends_by_file(kind)):
        run.job.check()
        if time.monotonic() > deadline:
            raise CaseError(f"{run.contestant.name} has written no {count} records of kind {kind} "
                            f"within {PATIENCE:.0f} s")
        time.sleep(POLL)


def take_turns(runs: Sequence[Run], kind: str, records: int, rounds: int, chance: random.Random) -> list[list[Turn]]:
    """Turns of each run. All of them are held when it is called, and when it returns.

    A turn lasts until `records` records after the one that the holding interrupted. The order is new in each round."""
    turns: list[list[Turn]] = [[] for _ in runs]
    for number in range(rounds):
        for index in chance.sample(range(len(runs)), len(runs)):
            run = runs[index]
            begin = time.time()
            run.job.go_on()
            wait_for_records(run, kind, records + 1, begin)
            end = time.time()
            run.job.hold()
            turns[index].append(Turn(number, begin, end))
    return turns

"""Reads what contenders write while they run: one JSON object a line, each with "kind" and "time".

FullShard's metrics.jsonl and the logs of the peers have the same form. "time" is the end of what the record tells,
in seconds since the epoch; records of steps have "step" and "loss", those of checkpoints "seconds" as well.
"""
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Sequence

Record = dict[str, Any]


@dataclass
class RecordFile:
    """The whole lines of a growing file, read once each."""
    path: Path
    records: list[Record] = field(default_factory=list)
    read: int = 0

    def refresh(self) -> list[Record]:
        """All records so far. A line that is still being written waits for the next call."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return self.records
        if size > self.read:
            with open(self.path, "rb") as file:
                file.seek(self.read)
                whole, newline, _ = file.read(size - self.read).rpartition(b"\n")
            self.read += len(whole) + len(newline)
            self.records += [json.loads(line) for line in whole.splitlines()]
        return self.records

    def of_kind(self, kind: str) -> list[Record]:
        return [record for record in self.refresh() if record["kind"] == kind]


def losses_by_step(ranks: Iterable[Sequence[Record]], steps: int) -> list[float]:
    """Losses of steps 1 to `steps`, each the mean over the given ranks' records."""
    columns = [{record["step"]: record["loss"] for record in records if record["kind"] == "step"} for records in ranks]
    return [sum(column[step] for column in columns) / len(columns) for step in range(1, steps + 1)]


def whole_steps(ends: Sequence[float], begin: float, end: float) -> list[float]:
    """Seconds of the steps that lie wholly in [begin, end], given the times at which steps ended.

    A step lasts from the end of the one before to its own, logging included. That in which `begin` falls is left
    out: it was interrupted."""
    inside = [time for time in ends if begin <= time <= end]
    return [after - before for before, after in zip(inside, inside[1:])]

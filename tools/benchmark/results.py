"""What a run of the benchmark leaves behind: results.json."""
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mistakes import UsageError
from paired import Spread

SCHEMA = 1


@dataclass(frozen=True)
class Measure:
    """One number of the table. `low` and `high` are quartiles; they equal `value` where it was measured once."""
    name: str
    value: float
    unit: str  # "x" for ratios, "%" for shares, else the unit of `value`
    low: float
    high: float
    samples: int = 1
    least: float | None = None  # a goal that the measuring program has set; goals.py has the others

    @staticmethod
    def of(name: str, unit: str, spread: Spread) -> "Measure":
        return Measure(name, spread.value, unit, spread.low, spread.high, spread.samples)

    @staticmethod
    def once(name: str, unit: str, value: float) -> "Measure":
        return Measure(name, value, unit, value, value)


@dataclass
class CaseResult:
    """`raw` has every sample the measures were taken from, and `error` why there are none."""
    name: str
    title: str
    measures: list[Measure] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    def measure(self, name: str) -> Measure | None:
        return next((measure for measure in self.measures if measure.name == name), None)


@dataclass
class Results:
    about: dict[str, Any]  # command, date, commit, hardware, versions
    cases: list[CaseResult]

    def case(self, name: str) -> CaseResult | None:
        return next((case for case in self.cases if case.name == name), None)

    def measure(self, case: str, name: str) -> Measure | None:
        found = self.case(case)
        return found.measure(name) if found else None


def save(results: Results, path: Path) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"schema": SCHEMA, **asdict(results)}, indent=1) + "\n")
    partial.replace(path)


def load(path: Path) -> Results:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; run tools/bench first, or give --out the folder of a run") from None
    if data.get("schema") != SCHEMA:
        raise UsageError(f"{path} has schema {data.get('schema')}, this program reads {SCHEMA}; run tools/bench again")
    return Results(data["about"], [
        CaseResult(**{**case, "measures": [Measure(**measure) for measure in case["measures"]]})
        for case in data["cases"]])

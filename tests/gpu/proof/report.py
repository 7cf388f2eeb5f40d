"""What a call leaves behind: results.json, and a table on the screen."""
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Sequence

from results import Measure

SCHEMA = 1
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


@dataclass
class Outcome:
    """Of a check. `reason` says why it has not passed, `raw` has all that the measures were taken from."""
    name: str
    proves: str
    state: str
    reason: str
    seconds: float
    budget_s: float
    measures: list[Measure] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)


def save(about: dict[str, Any], outcomes: Sequence[Outcome], path: Path) -> None:
    partial = path.with_suffix(".partial")
    checks = [asdict(outcome) for outcome in outcomes]
    partial.write_text(json.dumps({"schema": SCHEMA, "about": about, "checks": checks}, indent=1) + "\n")
    partial.replace(path)


def status_of(outcomes: Sequence[Outcome]) -> int:
    states = [outcome.state for outcome in outcomes]
    return 1 if FAILED in states or PASSED not in states else 0


def value_of(measure: Measure) -> str:
    text = f"{measure.value:.4g} {measure.unit}"
    if measure.samples > 1:
        text += f" (quartiles {measure.low:.4g} to {measure.high:.4g}, {measure.samples} rounds)"
    if measure.least is not None:
        text += f", at least {measure.least:g}"
    return text


def short(reason: str) -> list[str]:
    """Its first line, and what the program said; results.json has all of it."""
    first, *rest = reason.splitlines() or [""]
    causes = [line.strip() for line in rest if line.strip().startswith("fullshard:")]
    return [first, *dict.fromkeys(causes)]


def table(about: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    lines = [f"{about['command']} at commit {about['commit']}, {about['date']}", about["device"], ""]
    width = max(len(outcome.name) for outcome in outcomes)
    for outcome in outcomes:
        lines.append(f"{outcome.name:{width}}  {outcome.state:8}{outcome.seconds:6.0f} s of {outcome.budget_s:.0f}")
        if outcome.reason:
            lines += [f"    {line}" for line in short(outcome.reason)]
        longest = max((len(measure.name) for measure in outcome.measures), default=0)
        lines += [f"    {measure.name:{longest}}  {value_of(measure)}" for measure in outcome.measures]
    counts = [f"{sum(outcome.state == state for outcome in outcomes)} {words}" for state, words in
              ((PASSED, "passed"), (FAILED, "failed"), (NOT_RUN, "could not run"))]
    return "\n".join([*lines, "", ", ".join(counts) + f", in {sum(outcome.seconds for outcome in outcomes):.0f} s"])


def listing(checks: Sequence[Any]) -> str:
    """One line a check: name, seconds, what it proves."""
    width = max(len(check.name) for check in checks)
    lines = [f"{check.name:{width}}  {check.budget_s:4.0f} s  {check.proves}" for check in checks]
    return "\n".join([*lines, f"{'all':{width}}  {sum(check.budget_s for check in checks):4.0f} s"])

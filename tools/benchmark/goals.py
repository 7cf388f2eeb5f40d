"""What the project wants to reach, as data."""
from dataclasses import dataclass
from typing import Any

from results import Measure


@dataclass(frozen=True)
class Goal:
    """A bound of a measure's median, at least or at most. `needs` is what it takes of the hardware: a key of what
    results are about."""
    case: str
    measure: str
    bound: float
    at_least: bool = True
    needs: str = ""

    def is_met(self, measure: Measure) -> bool:
        return measure.value >= self.bound if self.at_least else measure.value <= self.bound

    def text(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"

    def verdict(self, measure: Measure, about: dict[str, Any]) -> str:
        if self.needs and not about.get(self.needs):
            return f"{self.text()} with {self.needs.replace('_', ' ')}: this hardware has none"
        return f"{self.text()}: {'met' if self.is_met(measure) else 'not met'}"


def _of_training(case: str) -> list[Goal]:
    same_library = "FullShard, PyTorch's gemm"
    return [Goal(case, "FullShard / FSDP2", 2.5), Goal(case, "FullShard / DDP", 2.5),
            Goal(case, "FullShard / eager", 1.0), Goal(case, f"{same_library} / FSDP2", 1.3),
            Goal(case, f"{same_library} / DDP", 1.3), Goal(case, "FullShard / FSDP2: memory", 0.7, at_least=False)]


GOALS = (
    *_of_training("gpt2"), *_of_training("gpt2-small-batch"),
    Goal("gpt2", "FullShard: reduction and optimizer", 15, at_least=False),
    Goal("gpt2", "FullShard: page faults a step and rank", 100, at_least=False),
    Goal("gpt2-ranks", "FullShard, 4 ranks / FullShard", 0.85),
    Goal("gpt2-bf16", "FullShard / FullShard fp32", 1.3, needs="bf16_instructions"),
    *(Goal(case, "FullShard / eager", 1.0) for case in ("simple", "simple-dropout")),
    Goal("startup", "FullShard - loading LibTorch", 1.0, at_least=False),
    Goal("checkpoint", "FullShard / DCP: save", 1.5), Goal("checkpoint", "FullShard / plain writes: save", 0.8),
    Goal("checkpoint", "FullShard: stall of an asynchronous save", 5.0, at_least=False),
)


def goal_of(case: str, measure: Measure) -> Goal | None:
    if measure.least is not None:
        return Goal(case, measure.name, measure.least)
    return next((goal for goal in GOALS if (goal.case, goal.measure) == (case, measure.name)), None)

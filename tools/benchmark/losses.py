"""A time counts only where the losses say that the same training took place."""
from dataclasses import dataclass
from typing import Mapping, Sequence

from mistakes import CaseError

STEPS = 10

# Relative difference of a step's loss. 2^-8 is the spacing of bf16 numbers: activations that are rounded in another
# order differ by that much, their mean by less.
TOLERANCE = {"fp32": 1e-5, "bf16": 2.0**-8}


@dataclass(frozen=True)
class Difference:
    contender: str
    step: int
    relative: float


def largest_difference(losses: Mapping[str, Sequence[float]], reference: str) -> Difference:
    """Where a contender's loss is farthest from that of `reference`."""
    expected = losses[reference]
    worst = Difference(reference, 1, 0.0)
    for contender, values in losses.items():
        for step, (value, right) in enumerate(zip(values, expected, strict=True), start=1):
            relative = abs(value - right) / abs(right)
            # Not "greater": a loss that is no number must not pass.
            if not relative <= worst.relative:
                worst = Difference(contender, step, relative)
    return worst


def require_agreement(losses: Mapping[str, Sequence[float]], reference: str, tolerance: float) -> Difference:
    worst = largest_difference(losses, reference)
    if not worst.relative <= tolerance:
        raise CaseError(
            f"the losses of {worst.contender} and {reference} differ by {worst.relative:.1e} in step {worst.step}, "
            f"more than {tolerance:.1e}: {list(losses[worst.contender])} against {list(losses[reference])}")
    return worst

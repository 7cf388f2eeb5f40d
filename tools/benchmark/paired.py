"""Statistics of measurements that took turns.

A machine that others share drifts by a factor of two within a minute. A ratio of two contenders is therefore
taken within each round, whose turns are seconds apart, and the median and quartiles are those of the rounds' ratios.
"""
from dataclasses import dataclass
from statistics import median
from typing import Callable, Sequence


@dataclass(frozen=True)
class Spread:
    """A median with the quartiles around it, of `samples` values."""
    value: float
    low: float
    high: float
    samples: int


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of `values` lie, linear between neighbours (numpy's default)."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def spread(values: Sequence[float]) -> Spread:
    if not values:
        raise ValueError("no samples")
    return Spread(median(values), quantile(values, 0.25), quantile(values, 0.75), len(values))


def paired(above: Sequence[float], below: Sequence[float],
           combine: Callable[[float, float], float] = lambda a, b: a / b) -> Spread:
    """The spread of combine(above[i], below[i]) over the rounds i."""
    if len(above) != len(below):
        raise ValueError(f"{len(above)} rounds against {len(below)}")
    return spread([combine(a, b) for a, b in zip(above, below)])

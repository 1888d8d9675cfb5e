"""Numbers from measurements: rates within a window, percentiles, and ratios of neighbours. Pure.

Absolute figures drift with the machine, so a figure is always set against one that was taken just before it: the
ratio of each adjacent pair, then the median of the ratios with the smallest and the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """What was known at one moment: monotonic seconds, decisions so far, CPU seconds of the process so far."""

    at_s: float
    decisions: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Decisions per second, and CPU µs of the process for each."""

    decisions_per_s: float
    cpu_us: float


def rate(samples: Sequence[Sample], total: int, after_share: float) -> Rate:
    """The rate from the first sample at which `after_share` of `total` was done to the first with all of it.

    Raises:
        ValueError: the samples do not reach `total`, or the two are the same sample.
    """
    first = _first(samples, total * after_share)
    last = _first(samples, total)
    decisions = last.decisions - first.decisions
    if not decisions:
        raise ValueError(f"{total} decisions were made within one sample: measure more of them")
    return Rate(decisions / (last.at_s - first.at_s), (last.cpu_s - first.cpu_s) / decisions * 1e6)


def _first(samples: Sequence[Sample], decisions: float) -> Sample:
    for sample in samples:
        if sample.decisions >= decisions:
            return sample
    raise ValueError(f"the samples do not reach {decisions:g} decisions")


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several measurements, and how far they lie apart."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    return Spread(median(values), min(values), max(values))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """`ours` ÷ `theirs`, pair by pair.

    Raises:
        ValueError: one of `theirs` is 0.
    """
    if not all(theirs):
        raise ValueError("the floor did nothing in one of its runs: there is no ratio")
    return spread([our / their for our, their in zip(ours, theirs, strict=True)])


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in ms; None when there was nothing to measure."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


def latency(seconds: Sequence[Seconds]) -> Latency:
    """The percentiles over all of `seconds`, NaN (no answer) left out."""
    joined = np.concatenate([np.empty(0), *seconds])
    joined = joined[~np.isnan(joined)]
    if not len(joined):
        return Latency(None, None, None)
    p50, p95, p99 = (float(value) * 1e3 for value in np.percentile(joined, (50, 95, 99)))
    return Latency(p50, p95, p99)


def rounded(value: Any) -> Any:
    """`value` with every float at four significant digits, for people and JSON."""
    if isinstance(value, float):
        return float(f"{value:.4g}") if abs(value) < 10_000 else round(value)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return value

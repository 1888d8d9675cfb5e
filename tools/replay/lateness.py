"""How late states were: a histogram that takes whole batches and a few KB, whatever the length of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tools.replay.times import Integers

STEPS: Final = 50
"""Buckets grow by 2 %, so a percentile is at most 2 % (or 20 µs) too high, never too low."""
BUCKETS: Final = 1600
"""The last one is at e³² µs: two years."""


@dataclass(frozen=True, slots=True)
class Late:
    """In ms; 0 where nothing was sent."""

    p50_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.2f} ms, p99 {self.p99_ms:.2f} ms, max {self.max_ms:.1f} ms"


class Lateness:
    """Add µs, ask for percentiles."""

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS, np.int64)
        self._max_us = 0

    def add(self, late_us: Integers) -> None:
        """Of these many states; what is early (a clock's rounding) counts as in time."""
        found = np.maximum(late_us, 0)
        if len(found):
            self._max_us = max(self._max_us, int(found.max()))
            buckets = np.ceil(np.log1p(found) * STEPS).astype(np.int64)
            self._counts += np.bincount(np.minimum(buckets, BUCKETS - 1), minlength=BUCKETS)

    def read(self) -> Late:
        """Percentiles of all that was added."""
        return Late(self._at(0.5), self._at(0.99), self._max_us / 1000)

    def _at(self, share: float) -> float:
        total = int(self._counts.sum())
        if not total:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self._counts), share * total))
        return min(float(np.expm1(bucket / STEPS)), self._max_us) / 1000

    def __repr__(self) -> str:
        return f"<Lateness {int(self._counts.sum())} states, {self.read()}>"

"""How late states were: a histogram that takes whole batches and a few KB, whatever the length of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

STEPS: Final = 50
"""Buckets grow by 2 %, so a percentile is at most 2 % (or 20 µs) too high, never too low."""
TOGETHER: Final = 2048
"""Most batches have one or two states, for which numpy is slow: they are counted together."""
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
        self._added: list[int] = []

    def add(self, dues_us: Sequence[int], now_us: int) -> None:
        """States that were due then, and are where they should be now. One that is early (a clock's rounding) is in
        time."""
        self._added += [now_us - due_us for due_us in dues_us]
        if len(self._added) >= TOGETHER:
            self._count()

    def _count(self) -> None:
        if self._added:
            found = np.maximum(np.array(self._added, np.int64), 0)
            self._added.clear()
            self._max_us = max(self._max_us, int(found.max()))
            buckets = np.ceil(np.log1p(found) * STEPS).astype(np.int64)
            self._counts += np.bincount(np.minimum(buckets, BUCKETS - 1), minlength=BUCKETS)

    def read(self) -> Late:
        """Percentiles of all that was added."""
        self._count()
        return Late(self._at(0.5), self._at(0.99), self._max_us / 1000)

    def _at(self, share: float) -> float:
        total = int(self._counts.sum())
        if not total:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self._counts), share * total))
        return min(float(np.expm1(bucket / STEPS)), self._max_us) / 1000

    def __repr__(self) -> str:
        return f"<Lateness {int(self._counts.sum()) + len(self._added)} states>"

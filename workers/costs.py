"""How long a batch takes on one predictor, learned from the batches that came back. Pure state, beside `schedule`.

A batch is padded to a bucket, so its time depends on the bucket: for each size worth running, the median of the last
few. One slow batch changes nothing, a device that became slower is known after four. Sizes that have not run are put
on the line α + β·n through those that have; the warm-up runs all, so that this happens in tests and to nobody else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

WINDOW: Final = 7
"""Batches of one size that the median is taken of: three hiccups in a row do not move it."""
DEAREST: Final = 2.0
"""A smaller batch may make a row this many times as dear: beyond, hurrying one would cost too many others."""
FREE: Final = 1.05
"""Seats that make a batch less than this much longer cost nothing: it is what batches differ by anyway."""


class Costs:
    """Predicted µs by batch size. `sizes`: those worth running, ascending; the last is the largest batch."""

    def __init__(self, sizes: Sequence[int], warm_us: Mapping[int, int] | None = None) -> None:
        self.sizes = tuple(sizes)
        self._recent: list[deque[int]] = [deque(maxlen=WINDOW) for _ in sizes]
        self._us = [0] * len(self.sizes)
        self.least_us = 0
        """The quickest of the latest batches of any size, µs: in less time no answer comes. 0 if none of the smallest
        has run."""
        warm_us = warm_us or {}
        for size in self.sizes:
            if bucket := min((rows for rows in warm_us if rows >= size), default=0):
                self.learn(size, warm_us[bucket])

    def learn(self, n: int, took_us: int) -> None:
        """A batch of `n` rows took so long."""
        at = self._at(n)
        recent = self._recent[at]
        recent.append(took_us)
        self._us[at] = sorted(recent)[(len(recent) - 1) // 2]
        if not all(self._recent):
            self._guess_the_rest()
        if self._recent[0]:
            self.least_us = min(min(recent) for recent in self._recent if recent)

    def _at(self, n: int) -> int:
        return min(bisect_left(self.sizes, n), len(self.sizes) - 1)

    def _guess_the_rest(self) -> None:
        alpha_us, beta_us = self.line()
        for at, recent in enumerate(self._recent):
            if not recent:
                self._us[at] = round(alpha_us + beta_us * self.sizes[at])

    def line(self) -> tuple[float, float]:
        """α µs a batch and β µs a row, by least squares over the sizes that have run."""
        ran = zip(self.sizes, self._us, self._recent, strict=True)
        seen = [(size, us) for size, us, recent in ran if recent] or [(0, 0)]
        mean_n, mean_us = (sum(values) / len(seen) for values in zip(*seen, strict=True))
        spread = sum((n - mean_n) ** 2 for n, _ in seen)
        slope = sum((n - mean_n) * (us - mean_us) for n, us in seen) / spread if spread else 0.0
        beta_us = max(0.0, slope)
        return max(0.0, mean_us - beta_us * mean_n), beta_us

    def batch_us(self, n: int) -> int:
        """What a batch of `n` rows is expected to take, µs; 0 while nothing is known."""
        return self._us[self._at(n)]

    @property
    def full_us(self) -> int:
        """What the largest batch is expected to take, µs."""
        return self._us[-1]

    def rows_within(self, n: int, within_us: int) -> int:
        """As many of `n` rows as are done in `within_us`. All of them if fewer would not help, or cost too much."""
        took_us = self.batch_us(n)
        if took_us <= within_us:
            return n
        dearest_us = DEAREST * took_us / n
        for at in range(self._at(n) - 1, -1, -1):
            size, took_us = self.sizes[at], self._us[at]
            if took_us > dearest_us * size:
                return n
            if took_us <= within_us:
                return size
        return n

    def free_rows(self, n: int) -> int:
        """Rows that a batch of `n` may have at no cost: those of padding, and more where size hardly matters."""
        return self.grown(n, round(self.batch_us(n) * FREE))

    def grown(self, n: int, within_us: int) -> int:
        """Rows that a batch of `n` may have if it should not take longer than `within_us`; those of padding in any
        case."""
        at = self._at(n)
        while at + 1 < len(self.sizes) and self._recent[at + 1] and self._us[at + 1] <= within_us:
            at += 1
        return self.sizes[at]

    def __repr__(self) -> str:
        alpha_us, beta_us = self.line()
        return f"<Costs {alpha_us:.0f} µs + {beta_us:.1f} µs a row, full batch {self.full_us} µs>"

"""How numbers are spread, in memory that does not grow with how many there are. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Spread:
    """Numbers ≥ 0, counted after rounding to three digits: some thousand different ones, whatever comes."""

    counts: Counter[float] = field(default_factory=Counter)
    n: int = 0
    total: float = 0.0
    max: float | None = None

    def add(self, value: float) -> None:
        """One more."""
        self.counts[value if value < 1000 and value == int(value) else float(f"{value:.3g}")] += 1
        self.n += 1
        self.total += value
        if self.max is None or value > self.max:
            self.max = value

    @property
    def mean(self) -> float | None:
        """None: there are none."""
        return self.total / self.n if self.n else None

    def percentile(self, percent: float) -> float | None:
        """The smallest number that so many percent do not exceed, to three digits; None: there are none."""
        seen = 0
        for value in sorted(self.counts):
            seen += self.counts[value]
            if seen >= self.n * percent / 100:
                return value
        return None

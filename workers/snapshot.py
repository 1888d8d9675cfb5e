"""What the metrics say at one moment, for the verbose probes.

Beside the path. Takes numbers read from `workers.metrics`, gives sums and quantiles. Never counts anything itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Labels = tuple[str, ...]
"""Label values, in the alphabetical order of the label names."""


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Values counted per bucket.

    `bounds` are inclusive upper limits, `counts` is int64 [len(bounds) + 1], `total` the sum of the values.
    """

    bounds: tuple[float, ...]
    counts: npt.NDArray[np.int64]
    total: float

    @property
    def count(self) -> int:
        """How many values."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float | None:
        """The average, None when there is no value."""
        return self.total / self.count if self.count else None

    def quantile(self, q: float) -> float | None:
        """The value below which a share `q` lies, None when there is no value.

        Linear inside a bucket, the highest bound for what lies above it: the estimate of Prometheus'
        histogram_quantile.
        """
        if not self.count:
            return None
        rank = q * self.count
        cumulative = self.counts.cumsum()
        bucket = int(cumulative.searchsorted(rank))
        if bucket >= len(self.bounds):
            return self.bounds[-1]
        low = self.bounds[bucket - 1] if bucket else 0.0
        inside = self.counts[bucket]
        share = (rank - (cumulative[bucket] - inside)) / inside if inside else 0.0
        return float(low + (self.bounds[bucket] - low) * share)

    def __add__(self, other: Distribution) -> Distribution:
        return Distribution(self.bounds, self.counts + other.counts, self.total + other.total)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every metric of one worker since its start: name → label values → number."""

    counters: Mapping[str, Mapping[Labels, float]]
    gauges: Mapping[str, Mapping[Labels, float]]
    distributions: Mapping[str, Mapping[Labels, Distribution]]

    def count(self, name: str, label: str | None = None) -> float:
        """Sum of a counter over its series, or over those that have `label` among their values."""
        return sum(n for labels, n in self.counters.get(name, {}).items() if label is None or label in labels)

    def gauge(self, name: str, label: str) -> float | None:
        """A gauge with one label, None when nobody watches it."""
        return self.gauges.get(name, {}).get((label,))

    def distribution(self, name: str, label: str | None = None) -> Distribution:
        """A histogram summed over its series, or over those that have `label` among their values."""
        found = [d for labels, d in self.distributions.get(name, {}).items() if label is None or label in labels]
        return sum(found[1:], found[0]) if found else Distribution((), np.zeros(1, np.int64), 0.0)

    def label_values(self, counter: str) -> list[str]:
        """First label values of a counter, in the order in which they appeared."""
        return list(dict.fromkeys(labels[0] for labels in self.counters.get(counter, {})))

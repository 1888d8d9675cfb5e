"""What the metrics say at one moment, and between two moments: for logs, `fleet top` and the demo.

Beside the path. Takes numbers read from `workers.metrics` or the text of a scrape, gives quantiles, rates and
a summary of plain dicts. Never counts anything itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client.parser import text_string_to_metric_families

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

    def __sub__(self, earlier: Distribution) -> Distribution:
        return Distribution(self.bounds, self.counts - earlier.counts, self.total - earlier.total)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every metric of one worker: name → label values → number.

    `taken_s` is monotonic. Counters and distributions cover the time since the worker's start, or `window_s`
    seconds.
    """

    taken_s: float
    counters: Mapping[str, Mapping[Labels, float]]
    gauges: Mapping[str, Mapping[Labels, float]]
    distributions: Mapping[str, Mapping[Labels, Distribution]]
    window_s: float | None = None

    def since(self, earlier: Snapshot) -> Snapshot:
        """What happened after `earlier`; gauges stay as they are now."""
        counters = {
            name: {labels: n - earlier.counters.get(name, {}).get(labels, 0) for labels, n in series.items()}
            for name, series in self.counters.items()
        }
        distributions = {
            name: {
                labels: _minus(now, earlier.distributions.get(name, {}).get(labels)) for labels, now in series.items()
            }
            for name, series in self.distributions.items()
        }
        return Snapshot(self.taken_s, counters, self.gauges, distributions, self.taken_s - earlier.taken_s)

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


def _minus(now: Distribution, earlier: Distribution | None) -> Distribution:
    return now if earlier is None else now - earlier


def snapshot_from_text(text: str, taken_s: float) -> Snapshot:
    """The snapshot in a scrape of /metrics (Prometheus' text format), as another process reads it."""
    counters: dict[str, dict[Labels, float]] = {}
    gauges: dict[str, dict[Labels, float]] = {}
    distributions: dict[str, dict[Labels, Distribution]] = {}
    for metric in text_string_to_metric_families(text):
        if metric.type == "histogram":
            distributions[metric.name] = _distributions(metric.samples)
            continue
        into = counters if metric.type == "counter" else gauges
        for sample in metric.samples:
            into.setdefault(sample.name, {})[_values(sample.labels)] = sample.value
    return Snapshot(taken_s, counters, gauges, distributions)


def _distributions(samples: list[Any]) -> dict[Labels, Distribution]:
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    totals: dict[Labels, float] = {}
    for sample in samples:
        labels = _values(sample.labels)
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            totals[labels] = sample.value
    return {labels: _distribution(found, totals.get(labels, 0.0)) for labels, found in buckets.items()}


def _distribution(buckets: list[tuple[float, float]], total: float) -> Distribution:
    cumulative = np.array([count for _, count in buckets], np.int64)
    bounds = tuple(bound for bound, _ in buckets[:-1])
    return Distribution(bounds, np.diff(cumulative, prepend=0), total)


def _values(labels: Mapping[str, str]) -> Labels:
    return tuple(value for name, value in sorted(labels.items()) if name != "le")

"""Counters, histograms and gauges that take a whole batch in one call, and their way out to Prometheus.

Beside the path: `workers.metrics` owns the list of metrics, this file owns how one of them counts.

**There is no lock, and none is needed.** The event loop and every predictor thread write, the HTTP thread
reads. Each series keeps one cell *per writing thread*, so no two threads ever do read-modify-write on the
same number, and no update is lost; a reader adds the cells up. What keeps a reader from seeing half a cell is
the GIL: a dict insert, a list item, and numpy's in-place add of a few dozen integers (numpy lets go of the
GIL only for long loops) are each one step. The counts of a histogram and its sum are two steps, so a scrape
may see a batch in one and not yet in the other; the next scrape has both, and `_count` is always taken from
the same copy as the buckets. When a thread ends, the next one may get its ident: it then goes on in the same
cell, still alone. (A build of Python without the GIL would need a lock per cell.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from threading import get_ident
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from workers.snapshot import Distribution

Values = Sequence[float] | npt.NDArray[np.floating]
"""One number per record of a batch, shape [n]."""


def _zero() -> list[float]:
    return [0]


class Counter:
    """A total that only grows."""

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: defaultdict[int, list[float]] = defaultdict(_zero)

    def add(self, n: float = 1) -> None:
        """Once per poll or batch, from any thread."""
        self._cells[get_ident()][0] += n

    def read(self) -> float:
        """The total over all threads."""
        return sum(cell[0] for cell in list(self._cells.values()))


class _HistogramCell:
    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = np.zeros(buckets, np.int64)
        self.total = 0.0


class Histogram:
    """Counts of values per bucket, int64, shape [len(bounds) + 1]; the last bucket has no upper bound.

    `bounds` are inclusive upper limits, ascending, in the unit of the metric.
    """

    __slots__ = ("_bounds", "_bounds_array", "_cells")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._bounds_array = np.asarray(bounds, np.float64)
        self._cells: defaultdict[int, _HistogramCell] = defaultdict(lambda: _HistogramCell(len(bounds) + 1))

    def observe(self, value: float) -> None:
        """One value, for what happens once per batch or poll."""
        cell = self._cells[get_ident()]
        cell.counts[bisect_left(self._bounds, value)] += 1
        cell.total += value

    def observe_many(self, values: Values) -> None:
        """All values of a batch in one call. Negative ones (another clock) go to the first bucket."""
        array = np.asarray(values, np.float64)
        total = float(np.add.reduce(array))
        if not (total >= 0 and isfinite(total)):
            # A sum that shrinks reads as a restart, one that is NaN never recovers.
            array = np.maximum(array[np.isfinite(array)], 0.0)
            total = float(array.sum())
        cell = self._cells[get_ident()]
        cell.counts += np.bincount(self._bounds_array.searchsorted(array), minlength=len(self._bounds) + 1)
        cell.total += total

    def read(self) -> Distribution:
        """A copy, summed over all threads."""
        counts = np.zeros(len(self._bounds) + 1, np.int64)
        total = 0.0
        for cell in list(self._cells.values()):
            counts += cell.counts
            total += cell.total
        return Distribution(self._bounds, counts, total)


SeriesT = TypeVar("SeriesT")


class Family(Generic[SeriesT]):
    """One metric: its name, its meaning, and a series for each combination of label values.

    Label names are in alphabetical order, which is the order a scrape gives them back in.
    """

    kind = ""

    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        if list(labels) != sorted(labels):
            raise ValueError(f"labels of {name} are {labels}, expected them in alphabetical order")
        self.name = name
        self.meaning = meaning
        self.labels = tuple(labels)
        self._series: dict[tuple[str, ...], SeriesT] = {}

    def series(self) -> Iterator[tuple[tuple[str, ...], SeriesT]]:
        """Label values and series, of what exists so far."""
        yield from list(self._series.items())

    def collect(self) -> Metric:
        """The metric as prometheus-client wants it."""
        raise NotImplementedError


class Counters(Family[Counter]):
    """Counters with the same name."""

    kind = "counter"

    def of(self, *labels: str) -> Counter:
        """The series with these label values, made at first use."""
        return self._series.get(labels) or self._series.setdefault(labels, Counter())

    def collect(self) -> Metric:
        """The metric as prometheus-client wants it."""
        metric = CounterMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, counter in self.series():
            metric.add_metric(labels, counter.read())
        return metric


class Histograms(Family[Histogram]):
    """Histograms with the same name and bounds."""

    kind = "histogram"

    def __init__(self, name: str, meaning: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        super().__init__(name, meaning, labels)
        self.bounds = tuple(bounds)
        self._le = [f"{bound:g}" for bound in bounds] + ["+Inf"]

    def of(self, *labels: str) -> Histogram:
        """The series with these label values, made at first use."""
        return self._series.get(labels) or self._series.setdefault(labels, Histogram(self.bounds))

    def collect(self) -> Metric:
        """The metric as prometheus-client wants it."""
        metric = HistogramMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, histogram in self.series():
            seen = histogram.read()
            cumulative = seen.counts.cumsum().tolist()
            metric.add_metric(labels, list(zip(self._le, cumulative, strict=True)), seen.total)
        return metric


class Gauges(Family[Callable[[], float]]):
    """Numbers that are asked for when someone looks, through a callable that the HTTP thread may call."""

    kind = "gauge"
    _read_each: Callable[[], Mapping[str, float]] | None = None

    def watch(self, read: Callable[[], float], *labels: str) -> None:
        """From now on `read()` is the value; it replaces an earlier one with the same labels."""
        self._series[labels] = read

    def watch_each(self, read: Callable[[], Mapping[str, float]]) -> None:
        """From now on `read()` gives the label value and the number of every series."""
        self._read_each = read

    def clear(self) -> None:
        """No single series is watched any more."""
        self._series = {}

    def values(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Label values and numbers; one that cannot be read just now is left out, the others are not."""
        for labels, read in self.series():
            try:
                yield labels, float(read())
            except Exception:  # a gap in one line; the scrape, and whoever watches the rest, goes on
                continue
        if self._read_each is not None:
            for label, value in self._read_each().items():
                yield (label,), value

    def collect(self) -> Metric:
        """The metric as prometheus-client wants it."""
        metric = GaugeMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, value in self.values():
            metric.add_metric(labels, value)
        return metric

"""One metric's counting: exact, over threads, and in Prometheus' shape."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from workers.series import Counter, Counters, Gauges, Histogram, Histograms

BOUNDS = (0.001, 0.01, 0.1)


def test_a_value_on_a_bound_belongs_to_the_bucket_it_closes() -> None:
    """Prometheus' `le` is "less or equal": one value and many values agree on it."""
    one, many = Histogram(BOUNDS), Histogram(BOUNDS)
    values = [0.0, 0.001, 0.0011, 0.01, 0.1, 0.2]
    for value in values:
        one.observe(value)
    many.observe_many(values)
    assert one.read().counts.tolist() == many.read().counts.tolist() == [2, 2, 1, 1]
    assert one.read().total == pytest.approx(many.read().total) == pytest.approx(sum(values))


def test_lists_arrays_and_nothing_are_taken() -> None:
    """A batch may be empty, a list, or an array of any float type."""
    histogram = Histogram(BOUNDS)
    histogram.observe_many([])
    histogram.observe_many([0.5])
    histogram.observe_many(np.array([0.5, 0.0005], np.float32))
    assert histogram.read().counts.tolist() == [1, 0, 0, 2]


def test_a_sum_never_shrinks_and_never_becomes_nan() -> None:
    """Clocks that run ahead give negative times; a bad one must not poison the series for good."""
    histogram = Histogram(BOUNDS)
    histogram.observe_many([-0.5, -0.1])
    assert histogram.read().total == 0.0
    histogram.observe_many([float("nan"), float("inf"), 0.05])
    seen = histogram.read()
    assert seen.total == pytest.approx(0.05)
    assert seen.counts.tolist() == [2, 0, 1, 0]


def test_no_update_is_lost_between_threads() -> None:
    """Many threads write the same series without a lock; every update counts."""
    counter, histogram = Counter(), Histogram(BOUNDS)

    def write() -> None:
        for _ in range(2_000):
            counter.add(2)
            histogram.observe(0.005)
            histogram.observe_many([0.05, 0.5])

    threads = [Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen = histogram.read()
        assert seen.count == seen.counts.sum()
    for thread in threads:
        thread.join()
    assert counter.read() == 8 * 2_000 * 2
    assert histogram.read().counts.tolist() == [0, 16_000, 16_000, 16_000]
    assert histogram.read().total == pytest.approx(16_000 * 0.555)


def test_a_family_keeps_one_series_per_label_values() -> None:
    """`of` gives the same series again, and the family exports each."""
    replies = Counters("fleet_x_total", "Of x.", ("lane", "outcome"))
    replies.of("high", "action").add(3)
    replies.of("high", "action").add()
    replies.of("low", "failed").add()
    found = {tuple(sample.labels.values()): sample.value for sample in replies.collect().samples}
    assert found == {("high", "action"): 4, ("low", "failed"): 1}


def test_a_histogram_is_exported_cumulative_with_its_sum() -> None:
    """The last bucket is +Inf and equals the count."""
    family = Histograms("fleet_x_seconds", "Of x.", BOUNDS)
    family.of().observe_many([0.005, 0.05, 5.0])
    found = {(s.name, s.labels.get("le")): s.value for s in family.collect().samples}
    assert found[("fleet_x_seconds_bucket", "0.001")] == 0
    assert found[("fleet_x_seconds_bucket", "0.1")] == 2
    assert found[("fleet_x_seconds_bucket", "+Inf")] == found[("fleet_x_seconds_count", None)] == 3
    assert found[("fleet_x_seconds_sum", None)] == pytest.approx(5.055)


def test_a_gauge_that_cannot_be_read_leaves_only_its_own_gap() -> None:
    """One broken callable must not cost the operator all other numbers."""
    depth = Gauges("fleet_x", "Of x.", ("lane",))
    depth.watch(lambda: 1 / 0, "high")
    depth.watch(lambda: 7, "low")
    assert [(sample.labels, sample.value) for sample in depth.collect().samples] == [({"lane": "low"}, 7.0)]


def test_label_names_are_alphabetical() -> None:
    """A scrape gives labels back sorted, so any other order would mix up values."""
    with pytest.raises(ValueError, match="alphabetical"):
        Counters("fleet_x_total", "Of x.", ("outcome", "lane"))

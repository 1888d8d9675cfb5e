"""Quantiles and sums of what the metrics hold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from workers.metrics import SECONDS_BOUNDS, Metrics
from workers.snapshot import Distribution, Snapshot
from workers.summary import summary


def distribution(values: list[float]) -> Distribution:
    metrics = Metrics(max_batch=64)
    metrics.queue_waits("high", values)
    return metrics.snapshot().distribution("fleet_queue_wait_seconds", "high")


def test_quantiles_are_within_a_quarter_of_the_truth_where_it_matters() -> None:
    """From 0.5 to 50 ms neighbouring bounds lie close enough for a person to trust a p99."""
    rng = np.random.default_rng(3)
    for centre_s in (0.001, 0.004, 0.012, 0.03):
        values = rng.lognormal(np.log(centre_s), 0.3, 5_000)
        seen = distribution(values.tolist())
        for q in (0.5, 0.95, 0.99):
            assert seen.quantile(q) == pytest.approx(float(np.quantile(values, q)), rel=0.25)


def test_the_promises_are_bounds_themselves() -> None:
    """The share of answers within 20 ms and 50 ms is exact, not interpolated."""
    assert {0.02, 0.05} <= set(SECONDS_BOUNDS)
    assert list(SECONDS_BOUNDS) == sorted(set(SECONDS_BOUNDS))
    close = [b for b in SECONDS_BOUNDS if 0.0005 <= b <= 0.05]
    assert max(b / a for a, b in pairwise(close)) <= 1.5 + 1e-9


def test_nothing_seen_is_no_number() -> None:
    """An empty distribution has neither a mean nor a quantile, rather than a misleading 0."""
    assert distribution([]).quantile(0.5) is None
    assert distribution([]).mean is None
    assert Snapshot({}, {}, {}).distribution("fleet_x_seconds").quantile(0.5) is None


def test_above_the_last_bound_its_value_is_given() -> None:
    """What lies above 2 s is known to be at least that."""
    assert distribution([5.0, 9.0]).quantile(0.5) == 2.0


def test_sums_are_over_all_series_or_those_with_a_label() -> None:
    """Lanes and outcomes together, or one of them; gauges as they are now."""
    metrics = Metrics(max_batch=64)
    metrics.watch("fleet_lane_depth", lambda: 5, lane="low")
    metrics.replied("low", "action", [0.004] * 20)
    metrics.replied("high", "expired", [0.004])
    seen = metrics.snapshot()
    assert seen.count("fleet_replies_total", "low") == 20
    assert seen.count("fleet_replies_total") == 21
    assert seen.distribution("fleet_end_to_end_seconds", "low").count == 20
    assert seen.gauge("fleet_lane_depth", "low") == 5
    assert summary(seen)["decisions"] == 20

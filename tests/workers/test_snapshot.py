"""Quantiles, windows and the way back from a scrape."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from prometheus_client import generate_latest

from workers.metrics import SECONDS_BOUNDS, Metrics
from workers.snapshot import Distribution, Snapshot, snapshot_from_text
from workers.summary import summary


def distribution(values: list[float]) -> Distribution:
    metrics = Metrics(max_batch=64)
    metrics.queue_waits("high", values)
    return metrics.snapshot(0.0).distribution("fleet_queue_wait_seconds", "high")


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
    assert Snapshot(0.0, {}, {}, {}).distribution("fleet_x_seconds").quantile(0.5) is None


def test_above_the_last_bound_its_value_is_given() -> None:
    """What lies above 2 s is known to be at least that."""
    assert distribution([5.0, 9.0]).quantile(0.5) == 2.0


def test_since_gives_what_happened_in_between() -> None:
    """Counters and distributions are differences, gauges stay as they are."""
    metrics = Metrics(max_batch=64)
    depth = [3]
    metrics.watch("fleet_lane_depth", lambda: depth[0], lane="low")
    metrics.replied("low", "action", [0.5] * 10)
    before = metrics.snapshot(100.0)
    depth[0] = 5
    metrics.replied("low", "action", [0.004] * 20)
    metrics.replied("high", "expired", [0.004])
    window = metrics.snapshot(102.0).since(before)
    assert window.window_s == 2.0
    assert window.count("fleet_replies_total", "low") == 20
    assert window.count("fleet_replies_total") == 21
    assert window.distribution("fleet_end_to_end_seconds", "low").count == 20
    assert window.gauge("fleet_lane_depth", "low") == 5
    assert summary(window)["decisions_per_s"] == 10.0


def test_a_scrape_read_back_says_the_same() -> None:
    """`fleet top` sees in the text of /metrics what the worker sees in itself."""
    metrics = Metrics(max_batch=64)
    metrics.add_predictor("cpu0")
    metrics.watch("fleet_lane_depth", lambda: 4, lane="high")
    metrics.rebalanced("low", "assigned")
    metrics.queue_waits("normal", [0.001, 0.02, 3.0])
    metrics.replied("normal", "action", [0.002, 0.021])
    metrics.batch_finished("cpu0", 48, 64, 0.002)
    inside = metrics.snapshot(7.0)
    outside = snapshot_from_text(generate_latest(metrics.registry).decode(), 7.0)
    assert summary(outside) == summary(inside)
    assert outside.counters["fleet_rebalances_total"] == inside.counters["fleet_rebalances_total"]

"""What the demo reads from a worker's probes."""

from __future__ import annotations

import time

from tools.demo.live import pace
from tools.demo.workers import Seen, seen_in
from workers.health import Health, HealthServer
from workers.metrics import Metrics


def test_the_probe_page_is_understood() -> None:
    """Of a real health server, so that a change there is noticed here."""
    metrics, health = Metrics(max_batch=64), Health()
    metrics.add_predictor("cpu")
    metrics.batch_finished("cpu", 48, 64, 0.001)
    metrics.batch_finished("cpu", 16, 16, 0.001)
    metrics.watch("fleet_lane_depth", lambda: 5, lane="high")
    health.enter("ready")
    with HealthServer("127.0.0.1", 0, metrics, health) as server:
        page = _page(server.port)
    seen = seen_in(page, time.monotonic())
    assert (seen.phase, seen.batches, seen.rows) == ("ready", 2, 64.0)
    assert seen.depth == {"high": 5, "normal": 0, "low": 0}


def test_a_worker_without_predictors_yet_is_understood() -> None:
    """It answers its probes before it has loaded a model."""
    assert seen_in({"phase": "warming"}, 1.0) == Seen(1.0, "warming", depth={"high": 0, "normal": 0, "low": 0})


def test_the_pace_is_that_between_two_looks() -> None:
    """Counts since the start become rates of now."""
    before, now = Seen(1.0, "ready", 100, 10, 100.0), Seen(3.0, "ready", 2100, 60, 2100.0)
    assert pace(before, now) == (1000.0, 40.0)
    assert pace(None, now) == pace(now, now) == (None, None)


def _page(port: int) -> dict:  # type: ignore[type-arg]
    from tools.demo.workers import _probe

    page = _probe(port)
    assert page is not None
    return page

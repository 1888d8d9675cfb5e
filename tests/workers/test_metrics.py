"""What each report of the worker becomes on /metrics, and what the list of metrics promises."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from topics.names import LANES, Lane
from topics.records import OUTCOMES
from workers.metrics import Metrics, Stage, table
from workers.summary import summary

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
def metrics() -> Metrics:
    """A worker's metrics, max_batch 64, with one predictor."""
    metrics = Metrics(max_batch=64)
    metrics.add_predictor("cpu0")
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def one_batch(metrics: Metrics, lane: Lane = "normal") -> None:
    """Everything that a batch of 64 reports on its way."""
    metrics.polled(lane, 64, 9_000, 0.5)
    metrics.admitted(lane, 64)
    metrics.queue_waits(lane, [0.004] * 64)
    metrics.batch_started("cpu0", 1.0)
    metrics.batch_finished("cpu0", 48, 64, 0.002)
    metrics.replied(lane, "action", [0.012] * 64)
    for stage in get_args(Stage):
        metrics.stage(stage, 0.001, 64)
    metrics.committed(lane, 0.005)


def test_a_batch_is_told_in_full(metrics: Metrics) -> None:
    """Each number of a batch is found under its name, in base units."""
    one_batch(metrics)
    assert value(metrics, "fleet_polls_total", lane="normal") == 1
    assert value(metrics, "fleet_received_records_total", lane="normal") == 64
    assert value(metrics, "fleet_received_bytes_total", lane="normal") == 9_000
    assert value(metrics, "fleet_admitted_total", lane="normal") == 64
    assert value(metrics, "fleet_queue_wait_seconds_bucket", lane="normal", le="0.004") == 64
    assert value(metrics, "fleet_batch_seconds_sum", predictor="cpu0") == 0.002
    assert value(metrics, "fleet_batch_size_bucket", predictor="cpu0", le="64") == 1
    assert value(metrics, "fleet_batch_fill_ratio_sum", predictor="cpu0") == 0.75
    assert value(metrics, "fleet_batch_padding_rows_total", predictor="cpu0") == 16
    assert value(metrics, "fleet_predictor_busy_seconds_total", predictor="cpu0") == 0.002
    assert value(metrics, "fleet_replies_total", lane="normal", outcome="action") == 64
    assert value(metrics, "fleet_end_to_end_seconds_count", lane="normal", outcome="action") == 64
    assert value(metrics, "fleet_stage_seconds_sum", stage="admit") == 0.001
    assert value(metrics, "fleet_stage_records_total", stage="admit") == 64
    assert value(metrics, "fleet_commit_seconds_count", lane="normal") == 1


def test_trouble_is_counted(metrics: Metrics) -> None:
    """Failed batches, failed commits, dead letters and rebalances have counters of their own."""
    metrics.batch_started("cpu0", 1.0)
    metrics.batch_failed("cpu0", 0.5)
    metrics.commit_failed("low")
    metrics.dead_letter("wrong_input")
    metrics.dead_letter("undecodable", 3)
    metrics.rebalanced("high", "revoked")
    assert value(metrics, "fleet_batch_failures_total", predictor="cpu0") == 1
    assert value(metrics, "fleet_predictor_busy_seconds_total", predictor="cpu0") == 0.5
    assert value(metrics, "fleet_commit_failures_total", lane="low") == 1
    assert value(metrics, "fleet_dead_letters_total", reason="undecodable") == 3
    assert value(metrics, "fleet_rebalances_total", kind="revoked", lane="high") == 1


def test_counters_are_there_before_their_first_event(metrics: Metrics) -> None:
    """A counter that is born with 1 hides its first event from rate() and alerts."""
    for lane in LANES:
        for outcome in OUTCOMES:
            assert value(metrics, "fleet_replies_total", lane=lane, outcome=outcome) == 0
        assert value(metrics, "fleet_commit_failures_total", lane=lane) == 0
    assert value(metrics, "fleet_batch_failures_total", predictor="cpu0") == 0


def test_gauges_are_read_when_someone_looks(metrics: Metrics) -> None:
    """The hot path never sets a gauge."""
    queue: list[int] = []
    metrics.watch("fleet_lane_depth", lambda: len(queue), lane="high")
    assert value(metrics, "fleet_lane_depth", lane="high") == 0
    queue += [1, 2, 3]
    assert value(metrics, "fleet_lane_depth", lane="high") == 3


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("fleet_lane_dept", {"lane": "high"}),
        ("fleet_lane_depth", {"predictor": "cpu0"}),
        ("fleet_replies_total", {}),
    ],
)
def test_watching_what_is_not_a_gauge_is_a_bug(metrics: Metrics, name: str, labels: dict[str, str]) -> None:
    """A misspelt name raises at start, rather than leaving a silent gap."""
    with pytest.raises(KeyError, match=name):
        metrics.watch(name, lambda: 0, **labels)


def test_the_busy_share_follows_the_beat(metrics: Metrics) -> None:
    """Seconds of batches over the seconds between beats."""
    metrics.loop_turned(0.0, 0.0)
    metrics.batch_started("cpu0", 0.5)
    metrics.batch_finished("cpu0", 64, 64, 1.0)
    metrics.loop_turned(4.0, 0.003)
    assert value(metrics, "fleet_predictor_busy_fraction", predictor="cpu0") == 0.25
    assert value(metrics, "fleet_event_loop_lag_seconds_count") == 2


def test_a_new_model_replaces_the_old_one_in_the_info(metrics: Metrics) -> None:
    """There is one info series: what the worker serves now."""
    for version in ("3", "4"):
        metrics.describe_worker(fleet="cartpole", worker="w1", model="cartpole", model_version=version, golden=True)
    labels = {"fleet": "cartpole", "golden": "checked", "worker": "w1", "model": "cartpole"}
    assert value(metrics, "fleet_worker_info", model_version="3", **labels) is None
    assert value(metrics, "fleet_worker_info", model_version="4", **labels) == 1


def test_two_workers_in_one_process_do_not_share_numbers() -> None:
    """Tests and demos run several workers: each has a registry of its own."""
    one, other = Metrics(max_batch=64), Metrics(max_batch=64)
    one.polled("high", 1, 100, 0.0)
    assert value(other, "fleet_polls_total", lane="high") == 0


def test_a_scrape_is_valid_and_short(metrics: Metrics) -> None:
    """Every lane and outcome in use: the text parses, and stays below 1,000 lines."""
    for lane in LANES:
        one_batch(metrics, lane)
        for outcome in OUTCOMES:
            metrics.replied(lane, outcome, [0.001])
    text = generate_latest(metrics.registry).decode()
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names))
    assert text.count("\n") < 1_000


def test_names_follow_the_house_rules(metrics: Metrics) -> None:
    """`fleet_` first, base units last, counters end in _total."""
    for family in metrics.families():
        assert family.name.startswith("fleet_")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert not any(unit in family.name for unit in ("_ms", "_us", "_milli", "_kb", "_percent"))
        assert family.meaning.endswith(".")


def test_the_summary_tells_lanes_predictors_and_stages(metrics: Metrics) -> None:
    """The figures a person asks for first are all there, and JSON takes them."""
    one_batch(metrics)
    found = summary(metrics.snapshot())
    assert found["decisions"] == 64
    assert found["lanes"]["normal"]["outcomes"] == {"action": 64}
    assert found["lanes"]["normal"]["received"] == found["lanes"]["normal"]["answered"] == 64
    assert 10 < found["lanes"]["normal"]["end_to_end"]["p99_ms"] <= 15
    assert 3 < found["lanes"]["normal"]["wait"]["p50_ms"] <= 4
    assert found["predictors"]["cpu0"]["mean_size"] == 48
    assert found["predictors"]["cpu0"]["mean_fill"] == 0.75
    assert found["stages"]["admit"]["us_per_record"] == pytest.approx(15.625, abs=0.001)


def test_the_documents_list_every_metric() -> None:
    """docs/metrics.md has the table that the code prints: run `python -m workers.metrics` after a change."""
    assert table() in DOCS.read_text(encoding="utf-8")

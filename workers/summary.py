"""The few numbers of a snapshot that a person or a log line wants, as plain dicts that JSON takes.

Beside the path. Seconds become milliseconds here, because people read these; metrics stay in seconds.
"""

from __future__ import annotations

from typing import Any

from topics.names import LANES
from topics.records import OUTCOMES
from workers.snapshot import Distribution, Snapshot


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """Lanes, predictors, stages and trouble."""
    return {
        "decisions": int(snapshot.count("fleet_replies_total", "action")),
        "lanes": {lane: _lane(snapshot, lane) for lane in LANES},
        "predictors": {
            predictor: _predictor(snapshot, predictor)
            for predictor in snapshot.label_values("fleet_predictor_busy_seconds_total")
        },
        "stages": {stage: _stage(snapshot, stage) for stage in snapshot.label_values("fleet_stage_records_total")},
        "dead_letters": int(snapshot.count("fleet_dead_letters_total")),
        "commit_failures": int(snapshot.count("fleet_commit_failures_total")),
        "rebalances": int(snapshot.count("fleet_rebalances_total", "assigned")),
        "loop_lag_p99_ms": _ms(snapshot.distribution("fleet_event_loop_lag_seconds").quantile(0.99)),
    }


def _lane(snapshot: Snapshot, lane: str) -> dict[str, Any]:
    outcomes = snapshot.counters.get("fleet_replies_total", {})
    gauges = ("depth", "fleet_lane_depth"), ("in_flight", "fleet_in_flight"), ("lag", "fleet_lag_records")
    return {
        "received": int(snapshot.count("fleet_received_records_total", lane)),
        "answered": int(snapshot.count("fleet_replies_total", lane)),
        "outcomes": {outcome: int(n) for outcome in OUTCOMES if (n := outcomes.get((lane, outcome), 0))},
        "end_to_end": _quantiles(snapshot.distribution("fleet_end_to_end_seconds", lane)),
        "wait": _quantiles(snapshot.distribution("fleet_queue_wait_seconds", lane)),
        **{name: snapshot.gauge(gauge, lane) for name, gauge in gauges},
    }


def _predictor(snapshot: Snapshot, predictor: str) -> dict[str, Any]:
    size = snapshot.distribution("fleet_batch_size", predictor)
    return {
        "serving": bool(snapshot.gauge("fleet_predictor_serving", predictor)),
        "batches": size.count,
        "failed": int(snapshot.count("fleet_batch_failures_total", predictor)),
        "mean_size": _rounded(size.mean),
        "mean_fill": _rounded(snapshot.distribution("fleet_batch_fill_ratio", predictor).mean),
        "busy": _rounded(snapshot.gauge("fleet_predictor_busy_fraction", predictor)),
        "batch": _quantiles(snapshot.distribution("fleet_batch_seconds", predictor)),
    }


def _stage(snapshot: Snapshot, stage: str) -> dict[str, Any]:
    seconds = snapshot.distribution("fleet_stage_seconds", stage).total
    records = int(snapshot.count("fleet_stage_records_total", stage))
    return {
        "seconds": round(seconds, 3),
        "records": records,
        "us_per_record": _rounded(1e6 * seconds / records if records else None),
    }


def _quantiles(seconds: Distribution) -> dict[str, float | None]:
    return {f"p{percent}_ms": _ms(seconds.quantile(percent / 100)) for percent in (50, 95, 99)}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

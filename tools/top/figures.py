"""From two rounds of pages to the rows that are shown. Pure: takes pages, gives rows; knows no clock and no screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.top.pages import Page, since
from topics.names import LANES
from workers.snapshot import Distribution, Snapshot


@dataclass(slots=True)
class LaneRow:
    """One lane of the whole fleet: rates per second, times in ms, None where nothing happened."""

    lane: str
    answers_per_s: float = 0.0
    other_outcomes: dict[str, float] = field(default_factory=dict)
    """Outcomes other than `action`, per second."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    wait_p99_ms: float | None = None
    depth: int = 0
    in_flight: int = 0
    lag: int = 0
    behind_s: float = 0.0


@dataclass(slots=True)
class WorkerRow:
    """One worker."""

    address: str
    name: str
    state: str
    """ready, not ready, or why it cannot be asked."""
    model: str = ""
    answers_per_s: float = 0.0
    busy: float | None = None
    batch: float | None = None
    fill: float | None = None
    in_flight: int = 0
    lag: int = 0
    partitions: int = 0
    rebalances: int = 0
    standstill: str = ""
    memory_mb: float = 0.0
    predictors: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Figures:
    """Everything on the screen."""

    seconds: float
    lanes: list[LaneRow]
    workers: list[WorkerRow]
    cluster: list[str] = field(default_factory=list)
    """What Kafka says besides: members without metrics, groups without members."""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def figures(before: Mapping[str, Page], pages: Sequence[Page]) -> Figures:
    """Of the time between two rounds; a worker that is new counts from its start, over the same time."""
    spans = [page.at_s - before[page.address].at_s for page in pages if page.address in before]
    seconds = max(*spans, 1e-3) if spans else 1.0
    lanes, workers = {lane: LaneRow(lane) for lane in LANES}, []
    ends: dict[str, list[Distribution]] = {lane: [] for lane in LANES}
    waits: dict[str, list[Distribution]] = {lane: [] for lane in LANES}
    for page in pages:
        if page.snapshot is None:
            workers.append(WorkerRow(page.address, page.address, page.error or "unreachable"))
            continue
        earlier = before.get(page.address)
        known = earlier.snapshot if earlier is not None else page.snapshot  # a first look has no rates
        grown = since(known, page.snapshot)
        workers.append(_worker(page, grown, seconds))
        for lane, row in lanes.items():
            _add(row, grown, seconds)
            ends[lane].append(grown.distribution("fleet_end_to_end_seconds", lane))
            waits[lane].append(grown.distribution("fleet_queue_wait_seconds", lane))
    for lane, row in lanes.items():
        row.p50_ms, row.p99_ms = (_ms(ends[lane], q) for q in (0.5, 0.99))
        row.wait_p99_ms = _ms(waits[lane], 0.99)
    return Figures(seconds, list(lanes.values()), workers)


def _add(row: LaneRow, grown: Snapshot, seconds: float) -> None:
    for (lane, outcome), number in grown.counters.get("fleet_replies_total", {}).items():
        if lane == row.lane:
            row.answers_per_s += number / seconds
            if outcome != "action" and number:
                row.other_outcomes[outcome] = row.other_outcomes.get(outcome, 0.0) + number / seconds
    row.depth += round(grown.gauge("fleet_lane_depth", row.lane) or 0)
    row.in_flight += round(grown.gauge("fleet_in_flight", row.lane) or 0)
    row.lag += round(grown.gauge("fleet_lag_records", row.lane) or 0)
    row.behind_s = max(row.behind_s, grown.gauge("fleet_received_age_seconds", row.lane) or 0.0)


def _worker(page: Page, grown: Snapshot, seconds: float) -> WorkerRow:
    assert page.snapshot is not None
    # Labels of fleet_worker_info in alphabetical order: fleet, golden, model, model_version, worker.
    info = next(iter(page.snapshot.gauges.get("fleet_worker_info", {})), ("", "", "starting", "", page.address))
    gauges = grown.gauges
    size, fill = (grown.distribution(f"fleet_batch_{what}") for what in ("size", "fill_ratio"))
    still = {layer: value for (layer,), value in gauges.get("fleet_standstill_seconds", {}).items() if value > 1}
    worst = max(still, key=lambda layer: still[layer], default="")
    busy = gauges.get("fleet_predictor_busy_fraction", {})
    return WorkerRow(
        page.address,
        info[4],
        "ready" if gauges.get("fleet_ready", {}).get(()) else "not ready",
        f"{info[2]} v{info[3]}" if info[3] else info[2],
        sum(grown.counters.get("fleet_replies_total", {}).values()) / seconds,
        sum(busy.values()) / len(busy) if busy else None,
        size.mean,
        fill.mean,
        round(sum(gauges.get("fleet_in_flight", {}).values())),
        round(sum(gauges.get("fleet_lag_records", {}).values())),
        round(max(gauges.get("fleet_assigned_partitions", {}).values(), default=0)),
        round(page.snapshot.count("fleet_rebalances_total", "assigned")),
        f"{worst} {still[worst]:.0f} s" if worst else "",
        gauges.get("process_resident_memory_bytes", {}).get((), 0.0) / 1e6,
        [_predictor(grown, name, value) for (name,), value in sorted(busy.items())],
    )


def _predictor(grown: Snapshot, name: str, busy: float) -> dict[str, Any]:
    took, size = grown.distribution("fleet_batch_seconds", name), grown.distribution("fleet_batch_size", name)
    return {
        "name": name,
        "busy": busy,
        "serving": bool(grown.gauge("fleet_predictor_serving", name)),
        "batches": took.count,
        "p50_ms": _ms([took], 0.5),
        "p99_ms": _ms([took], 0.99),
        "size": size.mean,
        "failed": round(grown.count("fleet_batch_failures_total", name)),
    }


def _ms(found: Sequence[Distribution], q: float) -> float | None:
    several = [one for one in found if one.bounds]
    seconds = sum(several[1:], several[0]).quantile(q) if several else None
    return None if seconds is None else seconds * 1e3

"""scale: more workers on devices that are the limit, and what agents notice when a worker joins and when one leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import psutil

from tools.bench.arrivals import Stream, merged
from tools.bench.closed import Plan as ClosedPlan
from tools.bench.closed import play
from tools.bench.device import SLOW
from tools.bench.offsets import skip_to_end
from tools.bench.open_loop import Load
from tools.bench.results import Goal, Result
from tools.bench.rig import Rig
from tools.bench.serving import WARM_S, Window, asking
from tools.bench.show import Show
from tools.bench.stats import Seconds, latency
from topics.errors import FleetError, SettingsError

AGENTS: Final = 512
"""Some 40 in each of 12 partitions: also a worker with one partition always has more than two batches waiting."""
EFFICIENT: Final = 0.95
FULL_MACHINE: Final = 0.85
"""Of all cores: above, processes wait for one another."""
TRICKLE_PER_S: Final = 100.0
STAYING: Final = 2
"""Workers that stay while another joins and leaves."""
QUIET_S: Final = 4.0
"""Of trickle before the first change, between the two and after the second."""
AFTERWARDS_S: Final = 2.0
"""After a worker is ready, or gone, that still counts as the change: the last rebalance is over by then."""
CHANGES_WITHIN_S: Final = 30.0
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of workers, and the measured seconds of each."""

    counts: tuple[int, ...]
    seconds: float


def parse_counts(text: str) -> tuple[int, ...]:
    """Numbers of workers from "1,2,4,8".

    Raises:
        SettingsError: they are no whole numbers from 1 up, ascending.
    """
    words = [word.strip() for word in text.split(",")]
    counts = tuple(int(word) for word in words if word.isdecimal())
    if len(counts) < len(words) or 0 in counts or list(counts) != sorted(set(counts)):
        raise SettingsError(f"--workers is {text!r}, expected ascending numbers such as 1,2,4,8")
    return counts


async def scale(rig: Rig, plan: Plan, show: Show) -> Result:
    """The rate of each number of workers, then one more beside two, and gone again.

    Raises:
        ChildFailed: a worker ended, or did not get ready.
    """
    rows: list[dict[str, Any]] = []
    for count in plan.counts:
        row = await _rate(rig, count, plan.seconds, show)
        rows.append(row)
        row["efficiency"] = row["decisions_per_s"] / count / (rows[0]["decisions_per_s"] / rows[0]["workers"])
    changes = await _changes(rig, show)
    more: dict[str, Any] = {
        "efficiency": min(row["efficiency"] for row in rows),
        "ended_by": ended_by(rows, rig.settings.topics.partitions),
        **{row["change"]: row for row in changes},
        "unanswered": sum(row["unanswered"] for row in (*rows, *changes)),
        "tables": {"workers": rows, "changes": changes},
    }
    goals = [Goal("efficiency", "at least", EFFICIENT)]
    goals += [Goal(f"{change}/{key}", "at most", 1000) for change in ("join", "leave") for key in ("p99_ms", "gap_ms")]
    options = {"workers": list(plan.counts), "seconds": plan.seconds, "capacity_per_s": SLOW.capacity_per_s}
    return Result("scale", options, [], [], (*goals, Goal("unanswered", "at most", 0)), more)


def ended_by(rows: Sequence[dict[str, Any]], partitions: int) -> str:
    """What kept the workers from adding up, by the first row that falls behind."""
    for row in rows:
        if row["efficiency"] < EFFICIENT:
            if row["workers"] > partitions:
                return f"partitions: {row['workers']} workers, {partitions} partitions"
            if row["machine_cpu"] >= FULL_MACHINE:
                return f"the machine's CPU: {row['machine_cpu']:.0%} busy at {row['workers']} workers"
            return f"neither partitions nor CPU ({row['machine_cpu']:.0%} busy at {row['workers']} workers)"
    return f"nothing up to {rows[-1]['workers']} workers"


async def _rate(rig: Rig, count: int, seconds: float, show: Show) -> dict[str, Any]:
    await skip_to_end(rig.settings)
    async with rig.workers(count) as children, asking(rig, PATIENCE_S) as client:
        window = Window(children, seconds)
        plan = ClosedPlan(AGENTS, 1, seconds, 1, {"normal": 1})
        with show.bar(f"{count} workers", seconds) as on_second:
            psutil.cpu_percent()  # from here on
            run = await play(rig, plan, client, window, on_second)
            busy = psutil.cpu_percent() / 100
    part = run.lane("normal")
    return {
        "workers": count,
        "decisions_per_s": run.decisions_per_s,
        "efficiency": 1.0,
        "cpu_us_per_decision": run.cpu_us,
        "machine_cpu": busy,
        "unanswered": part.offered - part.answered,
    }


async def _changes(rig: Rig, show: Show) -> list[dict[str, Any]]:
    """A steady trickle in `high` while a worker joins and leaves."""
    await skip_to_end(rig.settings)
    stream = Stream("high", "uniform", TRICKLE_PER_S, 0, WARM_S + CHANGES_WITHIN_S)
    async with rig.workers(STAYING) as children, asking(rig, PATIENCE_S) as client:
        load = Load(client, rig, merged([stream], AGENTS, seed=1))
        window = Window(children, CHANGES_WITHIN_S)
        with show.bar("one more worker, and gone", CHANGES_WITHIN_S) as on_second:
            async with asyncio.TaskGroup() as group:
                changing = group.create_task(_join_and_leave(rig))
                group.create_task(load.run(window, on_second))
    moments_s = [moment_s - load.started_s for moment_s in changing.result()]
    if moments_s[-1] > stream.to_s:
        raise FleetError(f"joining and leaving took {moments_s[-1]:.0f} s, expected {stream.to_s:.0f} s: try it again")
    quiet_s = (WARM_S, moments_s[0])
    phases = {"quiet": quiet_s, "join": tuple(moments_s[:2]), "leave": tuple(moments_s[2:])}
    return [{"change": name, **seen(load.arrivals.at_s, load.latencies_s, *phase)} for name, phase in phases.items()]


async def _join_and_leave(rig: Rig) -> tuple[float, float, float, float]:
    """When the joining began and was over, and the leaving; monotonic seconds."""
    await asyncio.sleep(WARM_S + QUIET_S)
    begun_s = time.monotonic()
    async with rig.one_more() as (child, is_ready):
        await child.ready(is_ready)
        await asyncio.sleep(AFTERWARDS_S)
        joined_s = time.monotonic()
        await asyncio.sleep(QUIET_S)
        leaving_s = time.monotonic()
        await asyncio.to_thread(child.stop)
    await asyncio.sleep(AFTERWARDS_S)
    return begun_s, joined_s, leaving_s, time.monotonic()


def seen(at_s: Seconds, latencies_s: Seconds, from_s: float, to_s: float) -> dict[str, Any]:
    """What agents noticed of the states due in a stretch of time; `gap_ms`: the longest time without any answer."""
    inside = (at_s >= from_s) & (at_s < to_s)
    latencies_s, found = latencies_s[inside], latency([latencies_s[inside]])
    answered_s = np.sort((at_s[inside] + latencies_s)[~np.isnan(latencies_s)])
    gaps_s = np.diff(answered_s)
    return {
        "seconds": to_s - from_s,
        "p50_ms": found.p50_ms,
        "p99_ms": found.p99_ms,
        "worst_ms": float(np.nanmax(latencies_s)) * 1e3 if len(answered_s) else None,
        "gap_ms": float(gaps_s.max()) * 1e3 if len(gaps_s) else None,
        "offered": len(latencies_s),
        "unanswered": int(np.isnan(latencies_s).sum()),
    }

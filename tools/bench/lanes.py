"""lanes: what a flood in `low` costs the high lane, on a simulated device of known capacity."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tools.bench.arrivals import Stream, merged
from tools.bench.device import QUICK
from tools.bench.open_loop import Load
from tools.bench.results import Goal, Result, named
from tools.bench.rig import Rig
from tools.bench.scrape import Key, scrape
from tools.bench.serving import WARM_S, Window, asking, serving
from tools.bench.show import Show
from tools.bench.stats import latency, ratios

SHARES: Final = (0.0, 1.0, 2.0)
"""Of the device's capacity, offered to `low`."""
HIGH_PER_S: Final = 50.0
AGENTS: Final = 256
TURN_S: Final = 0.002
"""Or the sender would need a core of its own for `low`."""
WORST: Final = "fleet_queue_wait_worst_seconds"
PATIENCE_S: Final = 120.0
"""At 200 % `low` waits for as long as the flood lasted; every state is answered all the same."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs of `seconds`, with `low` at each share in turn, `rounds` times."""

    seconds: float
    rounds: int
    reserved: bool


async def lanes(rig: Rig, plan: Plan, show: Show) -> Result:
    """Poisson arrivals in `high` while `low` is offered 0 %, 100 % and 200 % of the capacity, a fresh worker for each.

    Raises:
        ChildFailed: a worker ended.
    """
    rows: list[dict[str, Any]] = []
    for number in range(plan.rounds):
        for share in SHARES:
            title = f"round {number + 1}/{plan.rounds}: low at {share:.0%}"
            rows += await _flooded(rig, plan, share, show, title)
    p99_ms = {
        share: [row["p99_ms"] for row in rows if (row["low"], row["lane"]) == (share, "high")] for share in SHARES
    }
    more: dict[str, Any] = {"tables": {"latency": rows}}
    goals = []
    for share in SHARES:
        key = f"low_{share:.0%}".removesuffix("%")
        more[key] = {"high_p99_ms": max(p99_ms[share])} | named("high_p99_ratio", ratios(p99_ms[share], p99_ms[0.0]))
        goals += [Goal(f"{key}/high_p99_ratio", "at most", 1.3)] if share else []
        goals += [Goal(f"{key}/high_p99_ms", "at most", 20)]
    more["unanswered"] = sum(row["unanswered"] for row in rows)
    options = {"seconds": plan.seconds, "rounds": plan.rounds, "reserved": plan.reserved, "high_per_s": HIGH_PER_S}
    options["capacity_per_s"] = QUICK.capacity_per_s
    return Result("lanes", options, [], [], (*goals, Goal("unanswered", "at most", 0)), more)


async def _flooded(rig: Rig, plan: Plan, share: float, show: Show, title: str) -> list[dict[str, Any]]:
    end_s = WARM_S + plan.seconds
    streams = [Stream("high", "poisson", HIGH_PER_S, 0, end_s)]
    if share:
        streams.append(Stream("low", "poisson", share * QUICK.capacity_per_s, 0, end_s))
    async with serving(rig, "fleet") as child, asking(rig, PATIENCE_S) as client:
        load = Load(client, rig, merged(streams, AGENTS, seed=1), TURN_S)
        with show.bar(title, plan.seconds) as on_second:
            during = asyncio.create_task(_later(rig, end_s))  # the gauge forgets while low is worked off
            run = await load.run(Window([child], plan.seconds), on_second)
        metrics = [await during, await scrape(rig.settings)]
    late_ms = latency([load.late_s]).p99_ms
    return [
        {
            "low": share,
            "lane": lane,
            "p50_ms": found.p50_ms,
            "p99_ms": found.p99_ms,
            "worst_ms": float(np.nanmax(np.concatenate(part.latencies_s))) * 1e3,
            "worst_in_worker_ms": max(page.get((WORST, f"lane={lane}"), 0.0) for page in metrics) * 1e3,
            "sent_late_p99_ms": late_ms,
            "offered": part.offered,
            "unanswered": part.offered - part.answered,
        }
        for lane, part in run.lanes.items()
        for found in (latency(part.latencies_s),)
    ]


async def _later(rig: Rig, seconds: float) -> dict[Key, float]:
    await asyncio.sleep(seconds)
    return await scrape(rig.settings)

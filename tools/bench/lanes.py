"""lanes: what a flood in `low` costs the high lane, on a simulated device of known capacity."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from tools.bench.arrivals import Stream, merged
from tools.bench.device import QUICK
from tools.bench.flood import PATIENCE_S
from tools.bench.open_loop import Load
from tools.bench.results import Goal, Result, named
from tools.bench.rig import Rig
from tools.bench.scrape import Key, scrape
from tools.bench.serving import WARM_S, Window, asking, serving
from tools.bench.show import Show
from tools.bench.stats import latency, ratios
from tools.bench.traffic import summary

SHARES: Final = (0.0, 1.0, 2.0)
"""Of the device's capacity, offered to `low`."""
HIGH_PER_S: Final = 50.0
AGENTS: Final = 256
WORST: Final = "fleet_queue_wait_worst_seconds"


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
    arrivals = merged([Stream("high", "poisson", HIGH_PER_S, 0, end_s)], AGENTS, seed=1)
    async with AsyncExitStack() as stack:
        child = await stack.enter_async_context(serving(rig, "fleet"))
        client = await stack.enter_async_context(asking(rig))
        low_per_s = share * QUICK.capacity_per_s
        flood = await stack.enter_async_context(rig.flood(low_per_s, end_s)) if share else None
        load = Load(client, rig, arrivals)
        with show.bar(title, plan.seconds) as on_second:
            during = asyncio.create_task(_later(rig, end_s))  # the gauge forgets while low is worked off
            await load.run(Window([child], plan.seconds), on_second)
        of_low = json.loads(await flood.ended(PATIENCE_S)) if flood else None
        pages = [await during, await scrape(rig.settings)]
    late_ms = latency([load.late_s[load.counted()]]).p99_ms
    high = {**summary(load.latencies_s[load.counted()]), "sent_late_p99_ms": late_ms}
    found = {"high": high} | ({"low": of_low} if of_low else {})
    return [
        {"low": share, "lane": lane, **row, "worst_in_worker_ms": max(_worst_ms(page, lane) for page in pages)}
        for lane, row in found.items()
    ]


def _worst_ms(page: Mapping[Key, float], lane: str) -> float:
    return page.get((WORST, f"lane={lane}"), 0.0) * 1e3


async def _later(rig: Rig, seconds: float) -> dict[Key, float]:
    await asyncio.sleep(seconds)
    return await scrape(rig.settings)

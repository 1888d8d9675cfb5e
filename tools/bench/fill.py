"""fill: twice `max_batch` states outstanding, each agent asking again when it is answered; a simulated device.

Its CPU is set against the bare loop's on the same device: what is left is what lanes, batches, offsets and the rest
of a worker's care take. Both poll as often as their batches let them, so it is a bound rather than a profile.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tools.bench.closed import Plan, play
from tools.bench.device import FULL
from tools.bench.results import Goal, Result, Run
from tools.bench.rig import Rig
from tools.bench.scrape import grown, scrape
from tools.bench.serving import NAMES, SIDES, WARM_S, Side, Window, asking, serving
from tools.bench.show import Show

GOALS: Final = (
    Goal("fill", "at least", 0.9),
    Goal("busy", "at least", 0.9),
    Goal("overhead_cpu_us", "at most", 20),
    Goal("unanswered", "at most", 0),
)


async def fill(rig: Rig, seconds: float, rounds: int, show: Show) -> Result:
    """Bare loop and worker in turns before 2 · `max_batch` agents of one call each.

    Raises:
        ChildFailed: one of them ended.
    """
    plan = Plan(2 * FULL.max_batch, 1, seconds, rounds, {"normal": 1})
    runs: dict[Side, list[Run]] = {side: [] for side in SIDES}
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        for side in SIDES:
            async with serving(rig, side) as child, asking(rig) as client:
                window = Window([child], seconds)
                with show.bar(f"round {number + 1}/{rounds}: {NAMES[side]}", seconds) as on_second:
                    watched = asyncio.create_task(_watch(rig, seconds)) if side == "fleet" else None
                    runs[side].append(await play(rig, plan, client, window, on_second))
                rows += [await watched] if watched else []
    middle = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}
    overheads_us = [ours.cpu_us - bare.cpu_us for ours, bare in zip(runs["fleet"], runs["bare"], strict=True)]
    more = {**middle, "overhead_cpu_us": sum(overheads_us) / len(overheads_us), "tables": {"batches": rows}}
    options = {"outstanding": plan.agents, "seconds": seconds, "capacity_per_s": FULL.capacity_per_s}
    return Result("fill", options, runs["fleet"], runs["bare"], GOALS, more)


async def _watch(rig: Rig, seconds: float) -> dict[str, float]:
    """The worker's batches while the window is open."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(WARM_S)
    before, begun_s = await scrape(rig.settings), loop.time()
    await asyncio.sleep(seconds)
    after, ended_s = await scrape(rig.settings), loop.time()
    batches, rows = (grown(before, after, f"fleet_batch_size_{what}") for what in ("count", "sum"))
    busy_s = grown(before, after, "fleet_predictor_busy_seconds_total")
    return {
        "fill": rows / max(batches, 1) / rig.settings.batch.max_batch,
        "busy": busy_s / (ended_s - begun_s),
        "batches_per_s": batches / (ended_s - begun_s),
    }

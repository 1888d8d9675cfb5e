"""drain: a backlog through one worker, as fast as it can. Throughput and CPU where nobody waits for anybody."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tools.bench.children import Child, ChildFailed
from tools.bench.offsets import Ends, open_ends, rewind
from tools.bench.results import Goal, Result, Run
from tools.bench.rig import Rig
from tools.bench.show import Show
from tools.bench.states import Backlog
from tools.bench.stats import rate
from topics.errors import FleetError

WARM_SHARE: Final = 0.1
"""Of the backlog, before the clock starts: caches, the broker's JIT, the first fetches."""
AGENTS: Final = 512


async def drain(rig: Rig, records: int, call: int, rounds: int, show: Show) -> Result:
    """The same backlog again and again: once to warm the broker, then bare loop and worker in turns.

    The backlog was sent in calls of `call` agents, which share their times: the fewer, the less equal are its bytes.

    Raises:
        ChildFailed: one of them ended, stalled, or answered more than once.
    """
    settings = rig.settings
    with show.bar("filling the backlog", records) as on_count:
        await Backlog("normal", records, AGENTS, call).fill(settings, rig.observation, on_count)
    bare: list[Run] = []
    fleet: list[Run] = []
    async with open_ends(settings, settings.names.actions) as ends:
        with show.bar("warming the broker", records) as on_count:
            await _bare(rig, ends, records, on_count)
        for number in range(rounds):
            with show.bar(f"round {number + 1}/{rounds}: bare loop", records) as on_count:
                bare.append(await _bare(rig, ends, records, on_count))
            with show.bar(f"round {number + 1}/{rounds}: worker", records) as on_count:
                fleet.append(await drain_worker(rig, ends, records, on_count))
    options = {"records": records, "agents": AGENTS, "call": call, "rounds": rounds}
    return Result("drain", options, fleet, bare, goals=GOALS)


GOALS: Final = (Goal("ratio", "at least", 0.85), Goal("cpu_ratio", "at most", 1.15))


async def _bare(rig: Rig, ends: Ends, records: int, on_count: Callable[[int], None]) -> Run:
    already = await ends.count()
    async with rig.bare(backlog=True) as child:
        return await measured(child, ends, already, records, on_count)


async def drain_worker(rig: Rig, ends: Ends, records: int, on_count: Callable[[int], None]) -> Run:
    """The worker drains the backlog of `records`.

    Raises:
        ChildFailed: it ended, stalled, or answered more than once.
    """
    await rewind(rig.settings)
    already = await ends.count()
    async with rig.worker(ready=False) as child:
        run = await measured(child, ends, already, records, on_count)
    extra = await ends.count() - already - records
    if extra > 0 and rig.settings.delivery == "at_least_once":  # a transaction's marker counts as well: some per mille
        raise ChildFailed(f"the worker gave {extra} answers too many (log: {child.log})")
    return run


async def measured(
    child: Child,
    ends: Ends,
    already: int,
    records: int,
    on_count: Callable[[int], None],
    limit_s: float = math.inf,
) -> Run:
    """`child` drains the backlog, or what it can of it within `limit_s`.

    Raises:
        ChildFailed: it ended or stalled.
        FleetError: the backlog was too small.
    """
    samples = await ends.follow(child, already, records, on_count, limit_s)
    try:
        found = rate(samples, min(records, samples[-1].decisions), WARM_SHARE)
    except ValueError as error:
        raise FleetError(f"--records {records} is too few to measure: {error}") from error
    return Run(found.decisions_per_s, found.cpu_us)

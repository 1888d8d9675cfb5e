"""Forced rebalances: a stranger joins and leaves the three groups again and again while states are in flight."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from tests.chaos.report import Report
from tests.chaos.rig import Rig, in_flight, rig
from tests.chaos.sizes import Sizes
from tests.chaos.watch import watching
from tests.stories.fleet import WorkerProcess
from tests.stories.models import write_package
from tools.broker import Cluster
from topics.kafka import make_consumer, start, stop
from topics.names import LANES

WORKERS = 2
RATE = 400
"""States a second during the rebalances."""
HEARTBEAT_MS = 200
"""Members hear of a rebalance at their next heartbeat: this makes 200 of them a matter of minutes."""
JOINED_WITHIN_S = 20.0
SILENT_AFTER_S = 30.0


class Stranger:
    """A bare consumer per lane that takes partitions, reads nothing, commits nothing and leaves again."""

    def __init__(self, ours: Rig) -> None:
        self._ours = ours
        self._consumers: list[Any] = []

    async def join(self) -> None:
        """Return when it owns partitions in every lane."""
        settings = self._ours.settings
        kafka = settings.kafka.model_copy(update={"heartbeat_interval_ms": HEARTBEAT_MS})
        for lane in LANES:
            consumer = make_consumer(kafka, client_id="stranger", group_id=settings.names.group(lane))
            await start(consumer, kafka)
            self._consumers.append(consumer)
            consumer.subscribe([settings.names.states(lane)])
        give_up_s = asyncio.get_running_loop().time() + JOINED_WITHIN_S
        while not all(consumer.assignment() for consumer in self._consumers):
            assert asyncio.get_running_loop().time() < give_up_s, f"a stranger did not join within {JOINED_WITHIN_S} s"
            await asyncio.sleep(0.02)

    async def leave(self) -> None:
        """Leave all groups at once."""
        consumers, self._consumers = self._consumers, []
        await asyncio.gather(*(stop(consumer, 5.0) for consumer in consumers))


async def rebalances(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    """Every join and every leave is one rebalance of each group."""
    report.title(f"forced rebalances: {sizes.rebalances} in each of three groups, {RATE} states/s meanwhile")
    chance = random.Random(sizes.seed + 2)
    async with rig(cluster, folder) as ours:
        heartbeat = {"FLEET_KAFKA__HEARTBEAT_INTERVAL_MS": str(HEARTBEAT_MS)}
        workers = await ours.workers(write_package(folder / "probe", seconds=0.01), WORKERS, **heartbeat)
        async with ours.reading(), watching(ours.settings) as watch:
            asking = asyncio.ensure_future(_ask_on(ours, chance, sizes.agents))
            took_s = await _disturb(ours, sizes.rebalances, chance)
            asking.cancel()
            await asyncio.wait([asking])
            report.figure("one rebalance", f"{took_s / sizes.rebalances * 1000:.0f} ms on average")
            await _check(ours, workers, sizes, report)
        report.check("committed offsets never go back", not watch.backwards, watch.backwards[:3] or watch.samples)


async def _disturb(ours: Rig, n: int, chance: random.Random) -> float:
    stranger, clock = Stranger(ours), asyncio.get_running_loop().time
    began_s = clock()
    for _ in range(n // 2):
        await stranger.join()
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        await stranger.leave()
        await asyncio.sleep(chance.uniform(0.0, 0.3))
    return clock() - began_s


async def _ask_on(ours: Rig, chance: random.Random, agents: int) -> None:
    while True:
        await ours.ask(RATE, 1.0, chance, agents)


async def _check(ours: Rig, workers: list[WorkerProcess], sizes: Sizes, report: Report) -> None:
    await ours.ask_everyone(sizes.agents)  # every partition of every lane has work now
    everyone = await ours.all_answered(SILENT_AFTER_S)
    ledger = ours.ledger
    report.check("no partition stays silent", everyone, f"{len(ledger.unanswered)} unanswered")
    report.check("wrong-agent answers 0", not ledger.wrong, ledger.wrong[:3] or 0)
    report.check("order kept per agent and lane", not ledger.disordered, ledger.disordered[:3] or 0)
    await asyncio.sleep(1.0)
    flying = [in_flight(worker) for worker in workers]
    report.check("in flight is back at 0", not any(flying), flying)
    revoked = [len(worker.events("revoked")) for worker in workers]
    report.figure("revocations per worker (three lanes)", revoked)
    report.figure("states, duplicates", f"{len(ledger)}, {ledger.doubled} ({ledger.doubled / len(ledger):.2%})")
    unfinished = sum(not event["finished"] for worker in workers for event in worker.events("revoked"))
    report.check("every revocation finished what ran", not unfinished, unfinished)

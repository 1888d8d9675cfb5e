"""Forced rebalances: a stranger joins and leaves the three groups again and again while states are in flight."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
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
RATE = 700
"""States a second during the rebalances."""
BATCH_S = 0.05
"""One batch of the probe: some of every lane run or wait whenever a rebalance comes."""
HEARTBEAT_MS = 200
"""Members hear of a rebalance at their next heartbeat: this makes 200 of them a matter of minutes."""
JOINED_WITHIN_S = 20.0
SEEN_WITHIN_S = 30.0
"""A rebalance, revoke included, on two busy cores."""
SILENT_AFTER_S = 120.0
"""The backlog of the rebalances comes first."""
BUSY = 0.9
"""Of all revocations: that found states queued or in flight. The rest came right behind another one."""


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


class Revocations:
    """What one worker's log says of its assignments, read on from where the last look ended."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._log = worker.log.open("rb")
        self.revoked: Counter[str] = Counter()
        self.assigned: Counter[str] = Counter()
        self.busy = self.unfinished = 0
        """Revocations that found states queued or in flight; those that did not finish what ran."""
        self._log.seek(0, os.SEEK_END)
        self._before: Counter[str] = Counter()

    def _look(self) -> None:
        while (line := self._log.readline()).endswith(b"\n"):
            event = json.loads(line)
            if event["event"] == "assigned":
                self.assigned[event["lane"]] += 1
            elif event["event"] == "revoked":
                self.revoked[event["lane"]] += 1
                self.busy += bool(event["handed_back"] + event["in_flight"])
                self.unfinished += not event["finished"]
        self._log.seek(-len(line), os.SEEK_CUR)  # half a line is read again

    async def seen(self) -> None:
        """Wait until every lane was revoked once more than at the last time, and has partitions again."""
        give_up_s = asyncio.get_running_loop().time() + SEEN_WITHIN_S
        while any(self._misses(lane) for lane in LANES):
            assert asyncio.get_running_loop().time() < give_up_s, f"no rebalance within {SEEN_WITHIN_S:g} s: {self}"
            await asyncio.sleep(0.02)
            self._look()
        self._before = Counter(self.revoked)

    def _misses(self, lane: str) -> bool:
        return self.revoked[lane] <= self._before[lane] or self.assigned[lane] < self.revoked[lane]

    def __repr__(self) -> str:
        return f"<Revocations {dict(self.revoked)}, assigned {dict(self.assigned)}>"


async def rebalances(cluster: Cluster, folder: Path, sizes: Sizes, report: Report) -> None:
    """Every join and every leave is one rebalance of each group."""
    report.title(f"forced rebalances: {sizes.rebalances} in each of three groups, {RATE} states/s meanwhile")
    chance = random.Random(sizes.seed + 2)
    async with rig(cluster, folder) as ours:
        heartbeat = {"FLEET_KAFKA__HEARTBEAT_INTERVAL_MS": str(HEARTBEAT_MS)}
        workers = await ours.workers(write_package(folder / "probe", seconds=BATCH_S), WORKERS, **heartbeat)
        async with ours.reading(), watching(ours.settings) as watch:
            asking = asyncio.ensure_future(_ask_on(ours, chance, sizes.agents))
            seen = [Revocations(worker) for worker in workers]
            took_s = await _disturb(ours, seen, sizes.rebalances, chance)
            asking.cancel()
            await asyncio.wait([asking])
            report.figure("one rebalance", f"{took_s / sizes.rebalances * 1000:.0f} ms on average")
            _count(seen, sizes, report)
            await _check(ours, workers, sizes, report)
        report.check("committed offsets never go back", not watch.backwards, watch.backwards[:3] or watch.samples)


async def _disturb(ours: Rig, workers: list[Revocations], n: int, chance: random.Random) -> float:
    """`n` rebalances of each group, none before every worker has been through the one before."""
    stranger, clock = Stranger(ours), asyncio.get_running_loop().time
    began_s = clock()
    for number in range(1, n + 1):
        await (stranger.join() if number % 2 else stranger.leave())
        for worker in workers:
            await worker.seen()
        await asyncio.sleep(chance.uniform(0.05, 0.25))
    return clock() - began_s


def _count(seen: list[Revocations], sizes: Sizes, report: Report) -> None:
    """Each worker, each lane, each time."""
    least = min(worker.revoked[lane] for worker in seen for lane in LANES)
    total = sum(worker.revoked.total() for worker in seen)
    busy, unfinished = sum(worker.busy for worker in seen), sum(worker.unfinished for worker in seen)
    report.check(f"every lane of every worker was revoked {sizes.rebalances} times", least >= sizes.rebalances, least)
    report.check(f"with work queued or in flight in ≥ {BUSY:.0%}", busy >= BUSY * total, f"{busy} of {total}")
    report.check("every revocation finished what ran", not unfinished, unfinished)


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
    failed = Counter(event["error"] for worker in workers for event in worker.events("commit_failed"))
    report.figure("commits that failed", dict(failed) or 0)
    unknown = sum(len(worker.events("finished_map_unknown")) for worker in workers)
    report.figure("finished maps that could not be read", unknown)
    report.figure("states, duplicates", f"{len(ledger)}, {ledger.doubled} ({ledger.doubled / len(ledger):.2%})")

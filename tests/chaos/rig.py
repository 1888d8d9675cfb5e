"""One scenario's fleet: topics on a cluster, `fleet worker` processes, a producer of states and a reader of answers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from tests.chaos.ledger import Ledger
from tests.stories.fleet import Fleet, WorkerProcess
from tools.broker import Cluster
from topics.kafka import make_admin, make_producer, started
from topics.names import LANES, Lane
from topics.outbox import Outbox
from topics.partitions import Partitioner
from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings, TopicSettings
from topics.wire import encode_state

TICK_S = 0.05
"""States leave this often."""
SENT_WITHIN_S = 90.0
"""The producer's patience; brokers are away for some seconds in between."""
LANE_WEIGHTS = (1, 2, 1)


class Rig:
    """A fleet with its ledger."""

    def __init__(self, cluster: Cluster, settings: FleetSettings, fleet: Fleet, ledger: Ledger) -> None:
        self.cluster = cluster
        self.settings = settings
        self.fleet = fleet
        self.ledger = ledger
        self._place = Partitioner(settings.topics.partitions)

    async def workers(self, model: Path, n: int, **variables: str) -> list[WorkerProcess]:
        """Start `n` workers and wait until they serve."""
        workers = [self.fleet.worker(model, **variables) for _ in range(n)]
        for worker in workers:
            await worker.ready()
        return workers

    async def ask(
        self,
        n: int,
        over_s: float,
        chance: random.Random,
        agents: int,
        *,
        lanes: Sequence[Lane] = LANES,
        deadline_ms: float | None = None,
        every: int = 1,
    ) -> None:
        """`n` states of random agents, evenly over `over_s`; one in `every` has the deadline if there is any."""
        weights = [LANE_WEIGHTS[LANES.index(lane)] for lane in lanes]
        async with self.outbox() as outbox:
            loop = asyncio.get_running_loop()
            began_s, sent = loop.time(), 0
            while sent < n:
                due = n if over_s <= 0 else min(n, round(n * (loop.time() - began_s + TICK_S) / over_s))
                for n_th, lane in enumerate(chance.choices(lanes, weights, k=due - sent)):
                    within_ms = deadline_ms if n_th % every == 0 else None
                    self._add(outbox, chance.randrange(agents), lane, within_ms)
                sent = due
                await outbox.flush(SENT_WITHIN_S)
                await asyncio.sleep(TICK_S)

    async def ask_everyone(self, agents: int) -> None:
        """One state of each agent in each lane, at once."""
        async with self.outbox() as outbox:
            for lane in LANES:
                for agent in range(agents):
                    self._add(outbox, agent, lane, None)
            await outbox.flush(SENT_WITHIN_S)

    def _add(self, outbox: Outbox, agent: int, lane: Lane, deadline_ms: float | None) -> None:
        deadline_us = None
        if deadline_ms is not None:
            deadline_us = _unix_us() + round(deadline_ms * 1000)
        correlation, state = self.ledger.ask(agent, lane, deadline_us)
        key = f"a{agent}".encode()
        headers = [("kafka_correlationId", correlation)]
        outbox.add(self.settings.names.states(lane), self._place(key), key, encode_state(state), headers)

    @contextlib.asynccontextmanager
    async def outbox(self) -> AsyncIterator[Outbox]:
        """States on their way, with an idempotent producer."""
        kafka = self.settings.kafka
        async with started(make_producer(kafka, client_id="chaos"), kafka) as producer:
            yield Outbox(producer)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """The ledger learns every answer while this block runs."""
        async with self.fleet.reader([self.settings.names.actions]) as consumer:
            task = asyncio.ensure_future(self._read(consumer))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])

    async def _read(self, consumer: Any) -> None:
        while True:
            try:
                self.ledger.read(await consumer.getmany(timeout_ms=100))
            except KafkaError:
                await asyncio.sleep(0.2)

    async def all_answered(self, within_s: float) -> bool:
        """Wait until nothing in the ledger is unanswered."""
        for _ in range(round(within_s / TICK_S)):
            if not self.ledger.unanswered:
                return True
            await asyncio.sleep(TICK_S)
        return False

    async def committed_past_unanswered(self) -> list[int]:
        """Numbers of states below a committed offset that have no answer: must be empty, always."""
        found: list[int] = []
        names = self.settings.names
        ends = {lane: await committed(self.settings, lane) for lane in LANES}
        topics = [names.states(lane) for lane in LANES]
        expected = len(self.ledger)
        async with self.fleet.reader(topics) as consumer:
            while expected > 0:
                polled = await consumer.getmany(timeout_ms=3000)
                if not polled:
                    break
                for source, records in polled.items():
                    expected -= len(records)
                    end = ends[names.lane_of(source.topic)].get(source.partition, 0)
                    numbers = [
                        int(dict(record.headers)["kafka_correlationId"]) for record in records if record.offset < end
                    ]
                    found += [number for number in numbers if number in self.ledger.unanswered]
        return found


async def committed(settings: FleetSettings, lane: Lane, admin: Any = None) -> dict[int, int]:
    """partition → committed offset of a lane's group, through the admin API."""
    if admin is None:
        async with started(make_admin(settings.kafka, client_id="chaos"), settings.kafka) as ours:
            return await committed(settings, lane, ours)
    names = settings.names
    wanted = [TopicPartition(names.states(lane), p) for p in range(settings.topics.partitions)]
    found = await admin.list_consumer_group_offsets(names.group(lane), partitions=wanted)
    return {at.partition: commit.offset for at, commit in found.items() if commit.offset >= 0}


@contextlib.asynccontextmanager
async def rig(cluster: Cluster, folder: Path) -> AsyncIterator[Rig]:
    """A fresh fleet on `cluster`, replicated as far as its nodes allow; its workers are gone afterwards."""
    copies = 3 if len(cluster.nodes) >= 3 else 1
    settings = FleetSettings(
        name=f"chaos-{uuid.uuid4().hex[:6]}",
        kafka=KafkaSettings(bootstrap_servers=cluster.bootstrap_servers, metadata_max_age_ms=5_000),
        topics=TopicSettings(replication_factor=copies, min_insync_replicas=max(1, copies - 1)),
    )
    await ensure_topics(settings)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    fleet = Fleet(settings, folder)
    try:
        yield Rig(cluster, settings, fleet, Ledger())
    finally:
        fleet.close()


def in_flight(worker: WorkerProcess) -> float:
    """Sum of `fleet_in_flight` over the lanes, from the worker's own metrics."""
    _, page = worker.probe("/metrics")
    return sum(float(value) for value in re.findall(r"^fleet_in_flight\{[^}]*\} (\S+)$", page, re.MULTILINE))


def counter(worker: WorkerProcess, series: str) -> float:
    """The value of one series of the worker's metrics; 0 where it is not there."""
    _, page = worker.probe("/metrics")
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _unix_us() -> int:
    return time.time_ns() // 1000

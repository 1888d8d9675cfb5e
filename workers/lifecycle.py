"""A worker's life: load and warm up, connect, join, serve, drain, leave. The order matters:

1. probes first, so that a supervisor sees a live process that is not ready yet;
2. models before Kafka: a worker owns partitions only when it is warm, so no agent ever meets a cold start;
3. topics and producers before the groups, so that the first state can be answered;
4. on a signal: stop asking, answer what is held, commit, leave the groups, then stop the producers and the threads.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from topics.kafka import (
    Member,
    assert_fast_records,
    make_consumer,
    make_producer,
    member_id,
    members_named,
    require_topics,
    start,
    stop,
)
from topics.names import LANES, Lane
from topics.provision import ProvisionError
from workers.admit import ReplyTopics
from workers.assembly import (
    Intake,
    check_fits,
    following_shares,
    make_intake,
    make_predictor,
    make_predictors,
    make_replies,
    make_worker,
    start_predictors,
)
from workers.health import Health, HealthServer, keep_beating
from workers.logs import adopt, get_logger
from workers.metrics import Metrics
from workers.models.package import Manifest, read_manifest
from workers.predictors.predictor import Predictor
from workers.room import require_room
from workers.settings import Settings
from workers.supervise import Supervisor
from workers.tracing import flush, make_tracing
from workers.twins import LOOK_EVERY_S, wait_for_predecessor, yield_to_equal
from workers.worker import Worker

C = TypeVar("C", AIOKafkaConsumer, AIOKafkaProducer)

log = get_logger(__name__)

STOP_CLIENT_S = 3.0
"""aiokafka's own `stop` can hang when the broker is away; leaving a group takes a few ms when it is not."""
SWITCH_INTERVAL_S = 0.0002
"""Measured under drain: at 5 ms a batch of 64 took 1,100 µs of 60, at 0.2 ms 240 µs, and the worker a fifth more
decisions/s; at 0.05 ms switching itself costs more than it gives."""
GC_THRESHOLDS = (50_000, 20, 50)
"""Allocations between collections of the youngest, and how many of those between the older generations': a young one
then takes about a ms every few thousand decisions, which the high lane cannot feel."""
SETTLE_SHARE = 0.6
"""Of the drain's time, for answering what is held; the rest is for the commit and for leaving."""
COMMIT_SHARE = 0.2
"""Of the drain's time, for the last flush of answers and the last commit, half each: neither ends by itself when the
broker is away."""


async def run_worker(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then drain. Raises `FleetError` where the process cannot start or go on."""
    assert_fast_records()
    metrics, health, signals = Metrics(max_batch=settings.batch.max_batch), Health(), Signals()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(HealthServer(settings.http.host, settings.http.port, metrics, health))
        log.info("starting", worker=settings.worker, fleet=settings.name, probes=server.url)
        check_fits(settings, read_manifest(settings.model.path))  # before the model loads, which takes seconds
        health.enter("warming")
        predictors = make_predictors(settings, metrics)
        stack.push_async_callback(_stop_predictors, predictors)
        manifest = (await start_predictors(predictors)).manifest
        adopt("torch")
        for predictor in predictors:
            if predictor.broken is not None:
                continue
            log.info("warm", predictor=predictor.name, model=str(manifest), on_event_loop=predictor.runs_on_loop)
        _share_interpreter()
        _rest_collector()
        metrics.describe_worker(
            fleet=settings.name,
            worker=settings.worker,
            model=manifest.name,
            model_version=manifest.version,
            golden=manifest.golden is not None,
        )
        if signals.stop.is_set():  # told to go while it warmed up: nothing is held, nobody knows us yet
            return
        health.enter("joining")
        await Life(settings, manifest, predictors, metrics, health, signals).run()
    log.info("stopped", worker=settings.worker)


class Signals:
    """SIGTERM or SIGINT once: drain. Twice: leave now."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)

    def _received(self, number: signal.Signals) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()
        log.info("signal", signal=number.name, meaning="leave now" if self.hurry.is_set() else "drain")


class Life:
    """A warm worker from its connection to Kafka until it has left."""

    def __init__(
        self,
        settings: Settings,
        manifest: Manifest,
        predictors: list[Predictor],
        metrics: Metrics,
        health: Health,
        signals: Signals,
    ) -> None:
        self._settings = settings
        self._manifest = manifest
        self._predictors = predictors
        self._metrics = metrics
        self._health = health
        self._signals = signals
        self._intakes: dict[Lane, Intake] = {}
        self._clients: list[AIOKafkaConsumer | AIOKafkaProducer] = []
        self._spans: Any = None
        """Where spans go, if anybody traces."""

    async def run(self) -> None:
        """Connect, serve, drain, leave."""
        try:
            await self._connect_and_serve()
        finally:  # all at once: with the broker away each takes its whole bound
            await asyncio.shield(asyncio.gather(*(stop(client, STOP_CLIENT_S) for client in self._clients)))

    async def _connect_and_serve(self) -> None:
        settings = self._settings
        replies, dead = [await self._producer(use) for use in ("replies", "dead")]
        names, named = settings.names, () if settings.shadow else settings.reply.topics
        await require_topics(replies, [*names.all_topics(), *named])
        if settings.delivery == "exactly_once":
            try:
                await require_room(settings)
            except ProvisionError as error:  # no right to look, which it could do without so far
                log.warning("room_unknown", error=str(error))
        counts = {topic: len(await replies.partitions_for(topic)) for topic in (names.actions, *named)}
        reply_topics = ReplyTopics(counts, all_to_default=settings.shadow)
        dead_partitions = len(await dead.partitions_for(names.written[-1]))
        worker = make_worker(settings, self._manifest, self._predictors, reply_topics, self._metrics)
        if settings.tracing.enabled:
            worker.tracing, self._spans = make_tracing(settings.names, settings.worker)
        worker.reply_through(make_replies(settings, self._manifest, worker, replies, dead, dead_partitions))
        session_s = settings.kafka.session_timeout_ms / 1000
        await wait_for_predecessor(settings.worker, self._namesakes, session_s, self._signals.stop)
        if self._signals.stop.is_set():  # joining would only disturb the others
            return
        for lane in settings.serve:
            await self._add_intake(worker, lane)
        await self._serve(worker)

    @property
    def _first_consumer(self) -> AIOKafkaConsumer:
        """That of the most urgent lane it serves: in its group a worker looks for others of its name."""
        return self._intakes[self._settings.serve[0]].consumer

    async def _namesakes(self) -> list[Member]:
        group = self._settings.names.group(self._settings.serve[0])
        return await members_named(self._settings.kafka, group, self._settings.worker)

    async def _started(self, client: C) -> C:
        await start(client, self._settings.kafka)
        self._clients.append(client)
        return client

    async def _producer(self, use: str) -> AIOKafkaProducer:
        settings = self._settings
        client_id = f"{settings.worker}.{use}"
        acks: Literal["all", 1] = "all" if settings.reply.acks == "all" else 1
        return await self._started(make_producer(settings.kafka, client_id=client_id, acks=acks))

    async def _add_intake(self, worker: Worker, lane: Lane) -> None:
        settings = self._settings
        # One client_id in all lanes: the Range assignor then gives a worker the same numbers everywhere.
        consumer = make_consumer(
            settings.kafka,
            client_id=settings.worker,
            group_id=settings.names.group(lane),
            auto_offset_reset="latest" if settings.shadow else "earliest",  # a candidate need not answer the past
            fetch_max_wait_ms=getattr(settings.lanes, lane).fetch_max_wait_ms,
        )
        await self._started(consumer)

        async def on_revoked(lane: Lane) -> None:
            await self._hand_over(worker, lane)

        self._intakes[lane] = make_intake(settings, lane, consumer, worker, on_revoked, self._metrics)
        consumer.subscribe([settings.names.states(lane)], listener=self._intakes[lane].receive)

    async def _serve(self, worker: Worker) -> None:
        interval_s = self._settings.commit.interval_ms / 1000
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(keep_beating(self._health, self._metrics))]
            running.append(group.create_task(worker.replies.run()))
            running += [group.create_task(intake.commit.run(interval_s)) for intake in self._intakes.values()]
            receiving = [group.create_task(intake.receive.run(self._signals.stop)) for intake in self._intakes.values()]
            running.append(group.create_task(self._supervisor(worker).run()))
            await self._join()
            running.append(group.create_task(self._keep_name()))
            await self._signals.stop.wait()
            await self._drain(worker)
            for task in (*running, *receiving):
                task.cancel()

    def _supervisor(self, worker: Worker) -> Supervisor:
        settings, metrics = self._settings, self._metrics
        return Supervisor(
            settings,
            worker,
            self._predictors,
            settings.serve,
            lambda number: make_predictor(settings, number, metrics),
            following_shares(settings),
            self._health,
        )

    async def _join(self) -> None:
        """Ready when every lane has its partitions; a signal ends the wait."""
        joins = asyncio.gather(*(intake.receive.joined.wait() for intake in self._intakes.values()))
        await _first_of(joins, self._signals.stop.wait())
        await self._yield_to_equal(member_id(self._first_consumer))
        if not self._signals.stop.is_set():
            self._health.enter("ready")
            log.info("ready", worker=self._settings.worker, model=str(self._manifest))

    async def _keep_name(self) -> None:
        """Whom the group took for dead comes back under a new member ID, and may find that its name was given away."""
        consumer = self._first_consumer
        known = member_id(consumer)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            own_id = member_id(consumer)
            if own_id not in ("", known):
                await self._yield_to_equal(own_id)
                known = own_id

    async def _yield_to_equal(self, own_id: str) -> None:
        await yield_to_equal(self._settings.worker, self._namesakes, own_id, self._signals.stop)

    async def _hand_over(self, worker: Worker, lane: Lane) -> None:
        """A rebalance takes the lane's partitions: forget what is queued, finish what runs, commit."""
        queued, in_flight = worker.lanes[lane].hand_back(), worker.lanes[lane].in_flight
        finished = await worker.settled([lane], self._settings.drain.revoke_timeout_s, queued=False)
        await self._intakes[lane].commit.commit()
        log.info("revoked", lane=lane, handed_back=queued, in_flight=in_flight, finished=finished)

    async def _drain(self, worker: Worker) -> None:
        """Answer what is held within the bound, hand back the rest, commit."""
        self._health.enter("draining")
        log.info("draining", outstanding=worker.lanes.outstanding)
        within_s = self._settings.drain.timeout_s * SETTLE_SHARE
        await _first_of(worker.settled(LANES, within_s, queued=True), self._signals.hurry.wait())
        worker.stop_timer()
        commit_s = self._settings.drain.timeout_s * COMMIT_SHARE / 2
        await worker.replies.finish(commit_s)
        await asyncio.gather(*(intake.commit.commit(commit_s) for intake in self._intakes.values()))
        if self._spans is not None:
            await flush(self._spans)
        log.info("drained", unanswered=worker.lanes.outstanding)


async def _first_of(*awaited: Awaitable[object]) -> None:
    """Wait until one of them is there; the others are given up."""
    waits = [asyncio.ensure_future(one) for one in awaited]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _share_interpreter() -> None:
    """A predictor's thread waits for Python's interpreter lock after every torch call, by default up to 5 ms while the
    event loop is busy: longer than the whole forward pass of a small model."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def _rest_collector() -> None:
    """What is loaded by now stays: Python's garbage collector need not walk torch's half a million objects again and
    again. Requests die by reference count; only rare cycles (exceptions, tasks) are left for the collector."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _stop_predictors(predictors: Sequence[Predictor]) -> None:
    for predictor in predictors:
        if not await predictor.stop(within_s=1.0):
            log.warning("predictor_hangs", predictor=predictor.name)

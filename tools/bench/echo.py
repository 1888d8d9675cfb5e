"""echo: one agent alone on the high lane, beside a raw aiokafka client with a raw aiokafka echo behind it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np
from aiokafka.structs import TopicPartition

from tools.bench.children import Child
from tools.bench.results import Goal, Result, Run, named
from tools.bench.rig import Rig
from tools.bench.serving import asking, serving
from tools.bench.show import Show
from tools.bench.states import agent_ids, correlation, observations
from tools.bench.stats import latency, ratios
from topics.columns import encode_states
from topics.kafka import make_consumer, make_producer, started
from topics.partitions import Partitioner
from topics.records import State

WARM_TRIPS: Final = 200
RoundTrip = Callable[[int], Awaitable[None]]


async def echo(rig: Rig, trips: int, rounds: int, show: Show) -> Result:
    """`trips` round trips, one after the other, on both sides in turns.

    Raises:
        ChildFailed: one of them ended.
        ReplyTimeout: an answer did not come.
    """
    raw: list[Run] = []
    fleet: list[Run] = []
    for number in range(rounds):
        with show.bar(f"round {number + 1}/{rounds}: raw echo", trips) as on_trip:
            raw.append(await _raw(rig, trips, on_trip))
        with show.bar(f"round {number + 1}/{rounds}: worker", trips) as on_trip:
            fleet.append(await _fleet(rig, trips, on_trip))
    more = named("p50_ratio", ratios([_p50(run) for run in fleet], [_p50(run) for run in raw]))
    goals = (Goal("p50_ratio", "at most", 1.3),)
    return Result("echo", {"trips": trips, "rounds": rounds}, fleet, raw, goals, more)


def _p50(run: Run) -> float:
    p50_ms = latency(run.lane("high").latencies_s).p50_ms
    assert p50_ms is not None, "every trip was answered, or an error was raised"
    return p50_ms


async def _fleet(rig: Rig, trips: int, on_trip: Callable[[float], None]) -> Run:
    (agent,) = agent_ids(1)
    seen = observations(rig.observation, trips + WARM_TRIPS, 1)
    async with serving(rig, "fleet") as child, asking(rig) as client:

        async def trip(number: int) -> None:
            await client.decide(agent, seen[number], lane="high")

        return await _timed(child, trip, trips, on_trip)


async def _raw(rig: Rig, trips: int, on_trip: Callable[[float], None]) -> Run:
    """The same bytes; nothing is encoded while the clock runs."""
    settings = rig.settings
    key = agent_ids(1)[0].encode()
    partition = Partitioner(settings.topics.partitions)(key)
    seen = observations(rig.observation, trips + WARM_TRIPS, 1)
    values = encode_states(seen, range(len(seen)), State(None, sent_us=time.time_ns() // 1000))
    topic = settings.names.states("high")
    producer = make_producer(settings.kafka, client_id="raw-agent", idempotent=False)
    consumer = make_consumer(settings.kafka, client_id="raw-agent")
    async with (
        rig.echo() as child,
        started(producer, settings.kafka) as producer,
        started(consumer, settings.kafka) as consumer,
    ):
        await _read_from_now(consumer, settings.names.actions, partition)

        async def trip(number: int) -> None:
            await producer.send(topic, values[number], key, partition=partition, headers=correlation(number))
            await consumer.getone()

        return await _timed(child, trip, trips, on_trip)


async def _read_from_now(consumer: Any, topic: str, partition: int) -> None:
    replies = TopicPartition(topic, partition)
    consumer.assign([replies])
    await consumer.seek_to_end(replies)
    await consumer.position(replies)


async def _timed(child: Child, trip: RoundTrip, trips: int, on_trip: Callable[[float], None]) -> Run:
    for number in range(WARM_TRIPS):
        await trip(number)
    taken_s, cpu_s, started_s = np.empty(trips), child.cpu_s(), time.perf_counter()
    for number in range(trips):
        before_s = time.perf_counter()
        await trip(WARM_TRIPS + number)
        taken_s[number] = time.perf_counter() - before_s
        if number % 100 == 0:
            on_trip(number)
    on_trip(trips)
    run = Run(trips / (time.perf_counter() - started_s), (child.cpu_s() - cpu_s) / trips * 1e6)
    run.lane("high").add(taken_s)
    return run

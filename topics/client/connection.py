"""A client's connection to its fleet: one producer for states, one reader for replies, the tasks that run them.

Opens only if the broker answers and every topic is there; closes within a bound, also when the broker is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from topics import kafka
from topics.client.reading import OnReplies, ReplyReader
from topics.client.sending import OnRefused, StateSender
from topics.client.stats import ClientStats
from topics.errors import FleetError
from topics.names import LANES
from topics.settings import FleetSettings

ABANDON_S = 1.0
"""What `kafka.stop` may take longer than it is given, when it has to drop connections."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What is open while the client is."""

    producer: AIOKafkaProducer
    consumer: AIOKafkaConsumer
    sender: StateSender
    reader: ReplyReader
    partitions: int
    """Of every lane."""
    reply_partitions: int
    """Of the reply topic."""
    tasks: tuple[asyncio.Task[None], ...]


async def connect(
    settings: FleetSettings,
    reply_topic: str,
    client_id: str,
    stats: ClientStats,
    on_replies: OnReplies,
    on_refused: OnRefused,
    on_failure: Callable[[BaseException], None],
) -> Connection:
    """Open the connection. `on_failure` hears of a bug that ended one of the two tasks.

    Raises:
        BrokerUnavailable: the broker does not answer, or refuses us.
        TopicMissing: a states topic or the reply topic is not there.
    """
    kafka.assert_fast_records()
    kafka.quiet_library_logs()
    # Not idempotent: a broker that takes a state twice costs a duplicate answer, which is dropped; an idempotent
    # producer is lost after one refused batch and never gives up on a broker that is gone.
    producer = kafka.make_producer(settings.kafka, client_id=client_id, acks="all", idempotent=False)
    await kafka.start(producer, settings.kafka)
    consumer = kafka.make_consumer(settings.kafka, client_id=client_id)
    try:
        await kafka.start(consumer, settings.kafka)
    except BaseException:
        await asyncio.shield(kafka.stop(producer, kafka.CLOSE_S))
        raise
    reader = ReplyReader(consumer, reply_topic, on_replies, stats)
    try:
        partitions, reply_partitions = await _partitions(producer, settings, reply_topic)
        await reader.prepare(settings.kafka.connect_timeout_s)
    except BaseException:
        await asyncio.shield(_stop(producer, consumer, kafka.CLOSE_S))
        raise
    sender = StateSender(producer, on_refused)
    tasks = tuple(_running(part.run(), client_id, on_failure) for part in (sender, reader))
    return Connection(producer, consumer, sender, reader, partitions, reply_partitions, tasks)


async def _partitions(producer: AIOKafkaProducer, settings: FleetSettings, reply_topic: str) -> tuple[int, int]:
    """Partitions of the lanes and of the reply topic."""
    lanes = [settings.names.states(lane) for lane in LANES]
    await kafka.require_topics(producer, [*lanes, reply_topic])
    counts = {topic: len(await producer.partitions_for(topic)) for topic in [*lanes, reply_topic]}
    if len({counts[lane] for lane in lanes}) > 1:
        found = ", ".join(f"{lane} has {counts[lane]}" for lane in lanes)
        raise FleetError(f"the lanes must have equally many partitions, {found}: see `fleet topics check`")
    return counts[lanes[0]], counts[reply_topic]


def _running(part: Any, client_id: str, on_failure: Callable[[BaseException], None]) -> asyncio.Task[None]:
    task: asyncio.Task[None] = asyncio.create_task(part, name=f"{client_id} {part.__qualname__}")

    def ended(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            on_failure(error)

    task.add_done_callback(ended)
    return task


async def disconnect(connection: Connection, within_s: float) -> None:
    """Close everything in about `within_s`, whatever state the broker is in. Never raises."""
    sending, reading = connection.tasks
    sending.cancel()
    await _stop(connection.producer, connection.consumer, max(0.1, within_s - ABANDON_S))
    reading.cancel()  # ends by itself when the consumer has stopped, unless it waits for something else
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ABANDON_S):
            await asyncio.gather(sending, reading, return_exceptions=True)


async def _stop(producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, within_s: float) -> None:
    await asyncio.gather(kafka.stop(producer, within_s), kafka.stop(consumer, within_s))

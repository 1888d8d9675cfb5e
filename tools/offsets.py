"""What a cluster says of its topics to a reader without a group: partitions, offsets.

Every question has a limit: a broker that does not answer is an error, not a wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import TopicPartition

from topics.closing import network_of
from topics.errors import BrokerUnavailable
from topics.kafka import log_ends, require_topics

STALLED_AFTER_S: Final = 15.0
"""Several times what a leader's move takes."""

Offsets: TypeAlias = dict[TopicPartition, int]
A = TypeVar("A")


async def ends_of(consumer: AIOKafkaConsumer, places: Iterable[TopicPartition]) -> Offsets:
    """The offsets that the next records will get: reading that far waits for transactions that are still open."""
    return await _bounded(consumer, log_ends(consumer, places))


async def begins_of(consumer: AIOKafkaConsumer, places: Iterable[TopicPartition]) -> Offsets:
    """The offsets of the oldest records that are still there."""
    found: Offsets = await _bounded(consumer, consumer.beginning_offsets(list(places)))
    return found


async def span_of(consumer: AIOKafkaConsumer, place: TopicPartition) -> tuple[int, int]:
    """The oldest offset that is still there, and the next one."""
    return (await begins_of(consumer, [place]))[place], (await ends_of(consumer, [place]))[place]


async def offsets_at(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], us: int) -> Offsets:
    """The first offset of each partition whose record is not older than this time (Unix µs); else its end."""
    found: dict[TopicPartition, Any] = await _bounded(
        consumer, consumer.offsets_for_times(dict.fromkeys(ends, max(0, -(-us // 1000))))
    )
    return {place: end if found[place] is None else found[place].offset for place, end in ends.items()}


async def partition_counts(consumer: AIOKafkaConsumer, topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has on the cluster. Raises `TopicMissing`."""
    await require_topics(consumer, topics)
    cluster = await network_of(consumer).fetch_all_metadata()
    return {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}


async def cluster_id(consumer: AIOKafkaConsumer) -> str:
    """By which a cluster is known whatever its addresses; "" if it does not tell."""
    network = network_of(consumer)
    asking = network.send(network.get_random_node(), MetadataRequest([], allow_auto_topic_creation=False))
    return getattr(await _bounded(consumer, asking), "cluster_id", None) or ""


def stalled(consumer: AIOKafkaConsumer, what: str) -> BrokerUnavailable:
    """The error of a cluster that has not done `what` in time."""
    servers = consumer._client._bootstrap_servers
    return BrokerUnavailable(f"the cluster at {servers} {what} within {STALLED_AFTER_S:g} s: look at its brokers")


async def _bounded(consumer: AIOKafkaConsumer, asking: Awaitable[A]) -> A:
    try:
        async with asyncio.timeout(STALLED_AFTER_S):
            return await asking
    except (TimeoutError, KafkaError) as error:
        raise stalled(consumer, "does not tell about its topics") from error

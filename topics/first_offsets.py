"""Gives consumer groups that have none their first offsets, so that lag is counted before the first worker joins.

Without them a group of no members looks as if it were done, and nothing that scales on lag would start a worker.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, KafkaError
from aiokafka.structs import TopicPartition

from topics.closing import network_of
from topics.errors import BrokerUnavailable
from topics.kafka import ACLS, make_consumer, require_topics, started
from topics.names import LANES, Lane
from topics.settings import FleetSettings


async def commit_first_offsets(settings: FleetSettings) -> Mapping[Lane, int]:
    """Commit the begin of each partition for which a lane's group has no offset; how many, by lane.

    A group with members is left alone: they commit by themselves.

    Raises:
        BrokerUnavailable: the cluster does not answer, or does not let us.
        TopicMissing: a states topic is not there.
    """
    done: dict[Lane, int] = {}
    for lane in LANES:
        group, topic = settings.names.group(lane), settings.names.states(lane)
        consumer = make_consumer(settings.kafka, client_id=f"{settings.name}-first-offsets", group_id=group)
        async with started(consumer, settings.kafka):
            await require_topics(consumer, [topic])
            try:
                done[lane] = await _commit(consumer, topic)
            except CommitFailedError:
                done[lane] = 0
            except KafkaError as error:
                raise BrokerUnavailable(f"offsets of group {group} cannot be committed ({error!r}); {ACLS}") from error
    return done


async def _commit(consumer: AIOKafkaConsumer, topic: str) -> int:
    numbers = (await network_of(consumer).fetch_all_metadata()).partitions_for_topic(topic) or ()
    places = [TopicPartition(topic, number) for number in sorted(numbers)]
    consumer.assign(places)
    missing = [place for place in places if await consumer.committed(place) is None]
    if missing:
        await consumer.commit(await consumer.beginning_offsets(missing))
    return len(missing)

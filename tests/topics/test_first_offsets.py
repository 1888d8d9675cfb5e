"""First offsets of groups that have none, on a real broker."""

from __future__ import annotations

import pytest
from aiokafka.structs import TopicPartition

from topics.first_offsets import commit_first_offsets
from topics.kafka import make_consumer, quiet_library_logs, started
from topics.names import LANES
from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings, TopicSettings

pytestmark = pytest.mark.broker


async def test_groups_without_offsets_get_the_beginning(kafka: KafkaSettings, fleet_name: str) -> None:
    """Once; offsets that are there stay, and a group with members is left alone."""
    quiet_library_logs()
    settings = FleetSettings(name=fleet_name, kafka=kafka, topics=TopicSettings(partitions=3))
    await ensure_topics(settings)
    high, place = settings.names.group("high"), TopicPartition(settings.names.states("high"), 1)
    async with started(make_consumer(kafka, client_id="test", group_id=high), kafka) as consumer:
        consumer.assign([place])
        await consumer.commit({place: 7})
    assert await commit_first_offsets(settings) == {"high": 2, "normal": 3, "low": 3}
    assert await commit_first_offsets(settings) == dict.fromkeys(LANES, 0)
    async with started(make_consumer(kafka, client_id="test", group_id=high), kafka) as consumer:
        assert [await consumer.committed(TopicPartition(place.topic, number)) for number in range(3)] == [0, 7, 0]


async def test_a_group_with_members_is_left_alone(kafka: KafkaSettings, fleet_name: str) -> None:
    """They have positions of their own, and commit them."""
    quiet_library_logs()
    settings = FleetSettings(name=fleet_name, kafka=kafka, topics=TopicSettings(partitions=2))
    await ensure_topics(settings)
    group = settings.names.group("low")
    async with started(make_consumer(kafka, client_id="test", group_id=group), kafka) as member:
        member.subscribe([settings.names.states("low")])
        await member.getmany(timeout_ms=3000)
        assert member.assignment()
        assert await commit_first_offsets(settings) == {"high": 2, "normal": 2, "low": 0}

"""A fleet of the test's own on the session's broker, without workers."""

from __future__ import annotations

import pytest

from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings, TopicSettings


@pytest.fixture
async def fleet(kafka: KafkaSettings, fleet_name: str) -> FleetSettings:
    """Settings of a fleet whose topics exist, four partitions each."""
    settings = FleetSettings(name=fleet_name, kafka=kafka, topics=TopicSettings(partitions=4))
    await ensure_topics(settings)
    return settings

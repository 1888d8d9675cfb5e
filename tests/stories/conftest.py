"""What stories share: a fresh fleet on the session's broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.stories.fleet import Fleet
from tests.stories.models import write_package
from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings


@pytest.fixture
async def fleet(kafka: KafkaSettings, fleet_name: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet with topics and no workers; whatever it starts is gone afterwards."""
    settings = FleetSettings(name=fleet_name, kafka=kafka)
    await ensure_topics(settings)
    fleet = Fleet(settings, tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    """A model that answers each observation with itself."""
    return write_package(tmp_path / "probe")

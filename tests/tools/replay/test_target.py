"""Who may be written to without --yes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tools.dead.read import make_reader
from tools.replay.target import Target, look, refusal
from topics.kafka import make_consumer, started
from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings


def target(**changes: Any) -> Target:
    return replace(Target("t", "c", {}, {}, members=0, others_states=0), **changes)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (target(fleet="own", cluster="own"), "own is the fleet that was recorded (no worker is at work)"),
        (target(fleet="own", cluster="own", members=3), "(its groups have 3 members)"),
        (target(fleet="own", members=3), "own is the fleet that was recorded"),
        (target(members=3, others_states=2), "t is live: its groups have 3 members, and agents published 2 states"),
    ],
)
def test_the_recorded_fleet_and_a_live_one_are_refused(found: Target, text: str) -> None:
    """With what was found and what to do."""
    why = refusal(found, "own", "own")
    assert why is not None and text in why and "--yes" in why


@pytest.mark.parametrize("found", [target(), target(members=6), target(others_states=5), target(fleet="own")])
def test_nobody_is_disturbed_elsewhere(found: Target) -> None:
    """A test fleet with workers of its own; the fleet's name on a cluster where nobody works."""
    assert refusal(found, "own", "own") is None


@pytest.mark.broker
async def test_members_of_several_groups_are_counted(kafka: KafkaSettings, fleet_name: str) -> None:
    """aiokafka cannot read an answer about several groups, and a new cluster knows no group at first."""
    settings = FleetSettings(name=fleet_name, kafka=kafka)
    await ensure_topics(settings)
    consumer = make_consumer(kafka, client_id="test", group_id=settings.names.group("low"))
    async with started(make_reader(kafka), kafka) as reader:
        found = await look(settings, reader)
        assert (found.fleet, found.members, found.others_states) == (fleet_name, 0, 0)
        assert found.partitions == dict.fromkeys((*settings.names.state_topics(), settings.names.actions), 12)
        assert {*found.ends.values()} == {0} and len(found.ends) == 48 and found.cluster
        async with started(consumer, kafka):
            consumer.subscribe([settings.names.states("low")])
            async with asyncio.timeout(20):
                while not consumer.assignment():
                    await consumer.getmany(timeout_ms=100)
            assert (await look(settings, reader)).members == 1

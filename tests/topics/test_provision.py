"""Provisioning against a real broker: creates, alters, grows; never deletes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from topics.drift import TopicFound
from topics.errors import BrokerUnavailable
from topics.kafka import make_admin, quiet_library_logs, require_topics, started
from topics.names import LANES
from topics.provision import ProvisionError, apply, ensure_topics, find_differences, read_cluster
from topics.settings import FleetSettings, KafkaSettings, TopicSettings
from topics.specs import specs_of


def fleet(name: str, kafka: KafkaSettings, **topics: Any) -> FleetSettings:
    """A fleet with few partitions."""
    return FleetSettings(name=name, kafka=kafka, topics=TopicSettings(**{"partitions": 3, **topics}))


@pytest.fixture
async def admin(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connected to the session's broker."""
    quiet_library_logs()
    async with started(make_admin(kafka, client_id="test"), kafka) as client:
        yield client


@pytest.mark.broker
async def test_a_fleet_is_created_once(kafka: KafkaSettings, fleet_name: str) -> None:
    """The second apply finds everything in order."""
    settings = fleet(fleet_name, kafka)
    assert len(await find_differences(settings)) == 5
    first = await ensure_topics(settings)
    assert ([item.topic for item in first.done], first.left) == ([*settings.names.all_topics()], ())
    assert await find_differences(settings) == ()
    assert await ensure_topics(settings) == ((), ())


@pytest.mark.broker
async def test_looking_creates_nothing(admin: AIOKafkaAdminClient, kafka: KafkaSettings, fleet_name: str) -> None:
    """Not even where brokers create topics by themselves."""
    await find_differences(fleet(fleet_name, kafka))
    assert not [name for name in await admin.list_topics() if name.startswith(fleet_name)]


@pytest.mark.broker
async def test_live_lanes_grow_only_with_permission(kafka: KafkaSettings, fleet_name: str) -> None:
    """Everything else is done meanwhile; with permission every lane ends up with the same number."""
    await ensure_topics(fleet(fleet_name, kafka))
    larger = fleet(fleet_name, kafka, partitions=6, dead_partitions=2)
    refused = await ensure_topics(larger)
    assert [item.topic for item in refused.done] == [larger.names.dead]
    assert {item.fix for item in refused.left} == {"remap"}
    assert {item.topic for item in refused.left} == {*larger.names.state_topics(), larger.names.actions}
    allowed = await ensure_topics(larger, allow_remap=True)
    assert allowed.left == ()
    assert await find_differences(larger) == ()


@pytest.mark.broker
async def test_altering_keeps_what_others_set(
    admin: AIOKafkaAdminClient, kafka: KafkaSettings, fleet_name: str
) -> None:
    """An operator's own configuration of a topic survives, although Kafka's AlterConfigs resets what it is not told."""
    settings = fleet(fleet_name, kafka)
    low = settings.names.states("low")
    await admin.create_topics([NewTopic(low, 3, 1, topic_configs={"retention.ms": "1000", "flush.ms": "777"})])
    await require_topics(admin, [low])  # a new topic takes a moment to be seen
    done = (await apply(admin, specs_of(settings))).done
    assert ("retention.ms", "1000") in [(item.what, item.found) for item in done if item.topic == low]
    assert await find_differences(settings) == ()
    assert (await read_cluster(admin, [low]))[low].configs["flush.ms"] == "777"


@pytest.mark.broker
async def test_more_partitions_than_wanted_are_left_alone(
    admin: AIOKafkaAdminClient, kafka: KafkaSettings, fleet_name: str
) -> None:
    """Reported, never deleted."""
    settings = fleet(fleet_name, kafka)
    await ensure_topics(fleet(fleet_name, kafka, partitions=5))
    result = await ensure_topics(settings, allow_remap=True)
    assert result.done == ()
    assert {(item.what, item.found, item.fix) for item in result.left} == {("partitions", "5", "by hand")}
    found = await read_cluster(admin, [settings.names.states(lane) for lane in LANES])
    assert {topic.partitions for topic in found.values()} == {5}


@pytest.mark.broker
async def test_too_few_brokers_is_one_line_and_creates_nothing(kafka: KafkaSettings, fleet_name: str) -> None:
    """Replication, brokers, and the variable to set."""
    settings = fleet(fleet_name, kafka, replication_factor=3, min_insync_replicas=2)
    with pytest.raises(ProvisionError) as failure:
        await ensure_topics(settings)
    line = str(failure.value)
    assert "topics.replication_factor=3 needs 3 brokers, the cluster has 1" in line
    assert "FLEET_TOPICS__REPLICATION_FACTOR=1" in line
    assert "\n" not in line
    assert len(await find_differences(settings)) == 5


@pytest.mark.broker
async def test_two_people_may_apply_at_once(
    monkeypatch: pytest.MonkeyPatch, admin: AIOKafkaAdminClient, kafka: KafkaSettings, fleet_name: str
) -> None:
    """A topic that somebody else has created in between is no error; what differs then is left."""
    await ensure_topics(fleet(fleet_name, kafka, partitions=5))
    looks = []

    async def nothing_at_first(*arguments: Any) -> dict[str, TopicFound]:
        looks.append(arguments)
        return await read_cluster(*arguments) if len(looks) > 1 else {}

    monkeypatch.setattr("topics.provision.read_cluster", nothing_at_first)
    result = await apply(admin, specs_of(fleet(fleet_name, kafka)))
    assert {item.what for item in result.done} == {"topic"}
    assert {item.what for item in result.left} == {"partitions"}


class RefusingAdmin:
    """An admin client of a cluster that refuses everything, or does not answer."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def describe_topics(self) -> list[dict[str, Any]]:
        if self.error:
            raise self.error
        return []

    async def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [object()]}

    async def create_topics(self, topics: list[NewTopic]) -> Any:
        class Response:
            topic_errors = ((topics[0].name, 44, "names must start\nwith the team"),)

        return Response


async def test_what_a_cluster_refuses_is_one_line(offline: FleetSettings) -> None:
    """A policy of the cluster's, with its own words."""
    with pytest.raises(ProvisionError) as failure:
        await apply(RefusingAdmin(), specs_of(offline))  # type: ignore[arg-type,unused-ignore]
    assert str(failure.value) == "topic f.states.high cannot be created: names must start with the team"


async def test_a_cluster_that_stops_answering_is_one_line(offline: FleetSettings) -> None:
    """Not aiokafka's exception."""
    with pytest.raises(BrokerUnavailable, match="does not answer"):
        await apply(RefusingAdmin(TimeoutError()), specs_of(offline))  # type: ignore[arg-type,unused-ignore]


@pytest.fixture
def offline() -> FleetSettings:
    """Settings of a fleet without a cluster."""
    return FleetSettings(name="f")

"""What `fleet doctor` finds: on made-up clusters and machines, and on a real broker that is not as it should be."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from aiokafka.structs import TopicPartition
from typer.testing import CliRunner

from tools.cli import application
from tools.demo.packages import find_package
from tools.doctor.cluster import Group, Partition, Seen, brokers, clocks, groups, replicas, topics
from tools.doctor.findings import Finding, Level, exit_code
from tools.doctor.machine import cores, gpus, model
from topics.drift import Difference
from topics.kafka import make_admin, make_consumer, make_producer, quiet_library_logs, started
from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings, TopicSettings, load_settings
from workers.resources import Cpus
from workers.settings import Settings

CARTPOLE = find_package("CartPole-v1")
HEALTHY = Group(
    "high", "arena.high", state="Stable", protocol="range", members=["w1.high at 10.0.0.1"],
    committed={0: 10, 1: 12}, begins={0: 0, 1: 0}, ends={0: 10, 1: 15},
)  # fmt: skip
SEEN = Seen(3, 1, {"arena.states.high": [Partition(0, 1, 3, 3), Partition(1, 2, 3, 3)]}, (), [HEALTHY], {})
SAFE = FleetSettings(name="arena", topics=TopicSettings(replication_factor=3, min_insync_replicas=2))


def levels(findings: Iterable[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


def worst(findings: Iterable[Finding]) -> Finding:
    """The one finding that is neither ok nor a note."""
    (found,) = [finding for finding in findings if finding.level not in ("ok", "note")]
    return found


def test_a_healthy_cluster_has_nothing_to_complain_of() -> None:
    """Every check says so in one line."""
    found = [*brokers(SEEN, SAFE), *topics(SEEN), *replicas(SEEN, SAFE), *groups(SEEN), *clocks(SEEN)]
    assert levels(found) == ["ok"] * 5
    assert found[3].found == "arena.high: 1 workers, Stable, lag 3"


@pytest.mark.parametrize(
    ("topics_are", "count", "level", "says"),
    [
        ({"replication_factor": 3, "min_insync_replicas": 2}, 2, "problem", "and 2 brokers"),
        ({}, 3, "warning", "takes states along"),
        ({"replication_factor": 3, "min_insync_replicas": 3}, 3, "warning", "no broker may be away"),
        ({"replication_factor": 3}, 3, "warning", "by one broker alone"),
    ],
)
def test_copies_must_fit_the_brokers(topics_are: dict[str, int], count: int, level: Level, says: str) -> None:
    """Too few brokers, and settings that lose states or stand still when one dies."""
    settings = FleetSettings(name="arena", topics=TopicSettings(**topics_are))
    found = worst(brokers(replace(SEEN, brokers=count), settings))
    assert found.level == level and says in found.found and found.do


def test_differences_of_topics_are_problems() -> None:
    """With what is there and what should be; unequal lanes are named as such."""
    missing = Difference("arena.dead", "topic", None, "1 partition", "create", "")
    unequal = {"arena.states.high": [Partition(0, 1, 1, 1)], "arena.states.low": [Partition(0, 1, 1, 1)] * 2}
    found = [*topics(replace(SEEN, differences=[missing], partitions=unequal))]
    assert levels(found) == ["problem", "problem"]
    assert "arena.dead: topic is missing" in found[0].found and found[0].do == "fleet topics apply"
    assert "arena.states.high 1, arena.states.low 2" in found[1].found


@pytest.mark.parametrize(
    ("partition", "level", "says"),
    [
        (Partition(0, -1, 3, 2), "problem", "no leader: arena.states.high[0]"),
        (Partition(0, 1, 3, 1), "problem", "fewer than 2 copies in sync"),
        (Partition(0, 1, 3, 2), "warning", "copies lag behind"),
    ],
)
def test_copies_that_are_away(partition: Partition, level: Level, says: str) -> None:
    """By what still works: nothing, no writing, everything."""
    found = worst(replicas(replace(SEEN, partitions={"arena.states.high": [partition]}), SAFE))
    assert found.level == level and says in found.found


@pytest.mark.parametrize(
    ("changes", "level", "says"),
    [
        ({"error": "GroupAuthorizationFailedError"}, "problem", "cannot be read"),
        ({"members": [], "state": "Empty"}, "problem", "no worker, Empty, lag 3"),
        ({"protocol": "sticky"}, "problem", "assigns by 'sticky'"),
        ({"members": ["a", "b", "c"]}, "warning", "3 workers for 2 partitions"),
        ({"begins": {0: 0, 1: 14}}, "problem", "2 states were deleted by retention"),
        ({"committed": {0: 10, 1: 99}}, "problem", "it was made anew"),
    ],
)
def test_groups_that_are_not_well(changes: dict[str, Any], level: Level, says: str) -> None:
    """Each with what to do."""
    found = worst(groups(replace(SEEN, groups=[replace(HEALTHY, **changes)])))
    assert found.level == level and says in found.found and found.do


def test_a_group_that_never_was_has_no_offsets() -> None:
    """Its lag counts from the begin, and scaling on lag would not see it."""
    fresh = replace(HEALTHY, members=[], state="Dead", committed={0: None, 1: None})
    found = [*groups(replace(SEEN, groups=[fresh]))]
    assert fresh.lag == 25
    assert [one.level for one in found] == ["problem", "warning"] and "--commit-offsets" in found[1].do


def test_states_from_the_future_are_told() -> None:
    """By topic."""
    assert "2 partitions" in worst(clocks(replace(SEEN, ahead={"arena.states.low": 2}))).found


def test_threads_beyond_the_quota_are_told() -> None:
    """And what there is."""
    settings = load_settings(Settings, overrides={"model": {"path": CARTPOLE}, "predictors": [{"threads": 16}]})
    found = [*cores(settings, Cpus(tuple(range(16)), 16, quota=2.0))]
    assert "16 of 16 cores, a CPU quota of 2 cores" in found[0].found
    assert levels(found) == ["note", "warning"]


def test_a_gpu_that_is_named_and_not_there_is_a_problem() -> None:
    """With the reason that torch has."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    settings = load_settings(Settings, overrides={"predictors": [{"device": "cuda:0"}]})
    found = worst(gpus(settings))
    assert found.level == "problem" and "predictors name cuda:0" in found.found


def test_a_model_is_loaded_and_its_pairs_are_checked(tmp_path: Path) -> None:
    """A broken package is one line."""
    good = load_settings(Settings, overrides={"model": {"path": CARTPOLE}})
    assert [(one.level, one.found) for one in model(good)] == [("ok", "cartpole v1 loads, golden pairs match")]
    bad = load_settings(Settings, overrides={"model": {"path": tmp_path}})
    assert levels(model(bad)) == ["problem"]


def test_exit_codes_tell_problems_from_what_could_not_be_seen() -> None:
    """A warning is no failure."""
    unknown, problem, warning = (Finding(level, "x", "y") for level in ("unknown", "problem", "warning"))
    assert [exit_code(one) for one in ([warning], [warning, unknown], [unknown, problem])] == [0, 2, 1]


def told(*words: str) -> tuple[int, list[dict[str, str]]]:
    """Exit code and findings of the command."""
    ran = CliRunner().invoke(application(["doctor"]), ["doctor", "--json", *words])
    return ran.exit_code, json.loads(ran.stdout)


def test_no_cluster_is_one_problem_and_hides_nothing() -> None:
    """The machine was looked at all the same."""
    code, found = told("--bootstrap-servers", "127.0.0.1:1")
    assert code == 1
    assert [one["check"] for one in found if one["level"] == "problem"] == ["brokers"]
    assert {"versions", "cores", "disk"} <= {one["check"] for one in found}


@pytest.mark.broker
async def test_a_real_cluster_that_is_not_as_it_should_be(kafka: KafkaSettings, fleet_name: str) -> None:
    """Unequal lanes, small messages, a missing topic, a group that fell behind retention, states from the future."""
    quiet_library_logs()
    settings = FleetSettings(name=fleet_name, kafka=kafka, topics=TopicSettings(partitions=3))
    names = settings.names
    await ensure_topics(settings)
    admin = make_admin(kafka, client_id="test")
    async with started(admin, kafka):
        await admin.delete_topics([names.dead, names.states("low")])
        await admin.create_topics([NewTopic(names.states("low"), 2, 1, topic_configs={"max.message.bytes": "1000"})])
    place = TopicPartition(names.states("high"), 0)
    async with started(make_producer(kafka, client_id="test"), kafka) as producer:
        ahead_ms = int((time.time() + 3600) * 1000)
        await producer.send_and_wait(place.topic, b"x", partition=0, timestamp_ms=ahead_ms)
    async with started(make_consumer(kafka, client_id="test", group_id=names.group("high")), kafka) as consumer:
        consumer.assign([place])
        await consumer.commit({place: 7})
    words = ["--fleet", fleet_name, "--bootstrap-servers", kafka.bootstrap_servers]
    code, found = await asyncio.to_thread(told, *words)
    text = "\n".join(f"{one['level']} {one['found']}" for one in found)
    assert code == 1
    for expected in (
        f"problem {names.dead}: topic is missing",
        "problem lanes have different partition counts",
        "max.message.bytes is 1000",
        f"problem {names.group('high')}[0]: offset 7, but the topic ends at 1",
        f"warning {names.group('normal')} has no offsets of 3 partitions",
        "over 2 s from the future",
    ):
        assert expected in text, text

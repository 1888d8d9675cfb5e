"""Checks of the cluster: brokers, topics, groups and their offsets, rights, clocks. Reads only, joins no group.

`read` asks the cluster once; the checks are plain functions of what it said.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.structs import TopicPartition

from tools.doctor.findings import Finding
from tools.offsets import begins_of, ends_of, offsets_at
from topics.drift import Difference, compare
from topics.kafka import ACLS, make_admin, make_consumer, started
from topics.names import LANES, Lane
from topics.provision import read_cluster
from topics.settings import FleetSettings
from topics.specs import specs_of

AHEAD_S: Final = 2.0
"""States with times further in the future come from a clock that is wrong."""


@dataclass(frozen=True, slots=True)
class Partition:
    """As the controller sees it."""

    number: int
    leader: int
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class Group:
    """One lane's group: its state, members' names and hosts, offset by partition (None: none), ends and begins."""

    lane: Lane
    name: str
    error: str = ""
    state: str = "Empty"
    protocol: str = ""
    members: Sequence[str] = ()
    committed: Mapping[int, int | None] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """What KEDA and `fleet_lag_records` count; a partition without an offset counts from its begin."""
        return sum(
            max(0, end - (offset if (offset := self.committed.get(number)) is not None else self.begins.get(number, 0)))
            for number, end in self.ends.items()
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """What the cluster said."""

    brokers: int
    controller: int | None
    partitions: Mapping[str, Sequence[Partition]]
    differences: Sequence[Difference]
    groups: Sequence[Group]
    ahead: Mapping[str, int]
    """Topic → partitions whose newest states are from the future."""


async def read(settings: FleetSettings) -> Seen:
    """Ask the cluster. Raises what `topics.kafka.start` and `topics.provision` raise."""
    names = settings.names
    admin = make_admin(settings.kafka, client_id=f"{settings.name}-doctor")
    async with started(admin, settings.kafka):
        cluster = await admin.describe_cluster()
        listed = {one["topic"]: one["partitions"] for one in await admin.describe_topics()}
        specs = specs_of(settings)
        found = await read_cluster(admin, [spec.name for spec in specs])
        partitions = {name: [_partition(one) for one in listed.get(name, ())] for name in names.all_topics()}
        groups = [await _group(admin, settings, lane) for lane in LANES if listed.get(names.states(lane))]
        ahead = await _ahead(settings, {name: len(listed.get(name, ())) for name in names.state_topics()})
    return Seen(len(cluster["brokers"]), cluster.get("controller_id"), partitions, compare(specs, found), groups, ahead)


def _partition(found: Mapping[str, Any]) -> Partition:
    return Partition(found["partition"], found["leader"], len(found["replicas"]), len(found["isr"]))


async def _group(admin: AIOKafkaAdminClient, settings: FleetSettings, lane: Lane) -> Group:
    name, topic = settings.names.group(lane), settings.names.states(lane)
    try:
        ((described,),) = [one.groups for one in await admin.describe_consumer_groups([name])]
        if described[0]:
            return Group(lane, name, error=for_code(described[0]).__name__)
        offsets = await admin.list_consumer_group_offsets(name)
    except KafkaError as error:
        return Group(lane, name, error=type(error).__name__)
    async with started(make_consumer(settings.kafka, client_id=f"{settings.name}-doctor"), settings.kafka) as consumer:
        numbers = sorted(await _numbers(admin, topic))
        places = [TopicPartition(topic, number) for number in numbers]
        begins, ends = await begins_of(consumer, places), await ends_of(consumer, places)
    known = {place.partition: one.offset for place, one in offsets.items() if place.topic == topic}
    committed = {number: known[number] if known.get(number, -1) >= 0 else None for number in numbers}
    members = [f"{member[1]} at {member[2].lstrip('/')}" for member in described[5]]
    return Group(
        lane,
        name,
        state=described[2],
        protocol=described[4],
        members=members,
        committed=committed,
        begins={place.partition: offset for place, offset in begins.items()},
        ends={place.partition: offset for place, offset in ends.items()},
    )


async def _numbers(admin: AIOKafkaAdminClient, topic: str) -> list[int]:
    return [one["partition"] for found in await admin.describe_topics([topic]) for one in found["partitions"]]


async def _ahead(settings: FleetSettings, counts: Mapping[str, int]) -> dict[str, int]:
    """Asks for the first state later than now: there is none where clocks agree. Costs no reading."""
    places = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    if not places:
        return {}
    async with started(make_consumer(settings.kafka, client_id=f"{settings.name}-doctor"), settings.kafka) as consumer:
        ends = await ends_of(consumer, places)
        at = await offsets_at(consumer, ends, int((time.time() + AHEAD_S) * 1e6))
    ahead: dict[str, int] = {}
    for place, offset in at.items():
        if offset < ends[place]:
            ahead[place.topic] = ahead.get(place.topic, 0) + 1
    return ahead


def brokers(seen: Seen, settings: FleetSettings) -> Iterator[Finding]:
    """How many there are, against the copies that the topics want."""
    yield Finding("ok", "brokers", f"{seen.brokers} at {settings.kafka.bootstrap_servers} answer")
    copies, least = settings.topics.replication_factor, settings.topics.min_insync_replicas
    if seen.brokers < copies:
        found = f"topics.replication_factor={copies}, and {seen.brokers} brokers"
        yield Finding("problem", "brokers", found, "start more brokers, or lower it")
    if seen.brokers >= 3 and copies < 3:
        found = f"topics.replication_factor={copies} on {seen.brokers} brokers: one that dies takes states along"
        yield Finding("warning", "brokers", found, "topics.replication_factor=3, topics.min_insync_replicas=2")
    if copies > 1 and least == copies:
        found = f"topics.min_insync_replicas={least} of {copies} copies: no broker may be away"
        yield Finding("warning", "brokers", found, f"topics.min_insync_replicas={copies - 1}")
    if copies >= 3 and least == 1:
        found = "topics.min_insync_replicas=1: an answer may be acknowledged by one broker alone"
        yield Finding("warning", "brokers", found, "topics.min_insync_replicas=2")


def topics(seen: Seen) -> Iterator[Finding]:
    """Every difference between the cluster and the settings."""
    for one in seen.differences:
        found = f"{one.topic}: {one.what} is {one.found or 'missing'}, expected {one.wanted}"
        yield Finding("problem", "topics", found, one.why or "fleet topics apply")
    if not seen.differences:
        yield Finding("ok", "topics", f"{len(seen.partitions)} topics are as the settings want them")
    counts = {name: len(found) for name, found in seen.partitions.items() if ".states." in name and found}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} {count}" for name, count in counts.items())
        do = "fleet topics apply --allow-remap: one worker then owns an agent in every lane"
        yield Finding("problem", "topics", f"lanes have different partition counts: {found}", do)


def replicas(seen: Seen, settings: FleetSettings) -> Iterator[Finding]:
    """Partitions without a leader, or with copies that lag."""
    every = [(name, one) for name, found in seen.partitions.items() for one in found]
    offline = [f"{name}[{one.number}]" for name, one in every if one.leader < 0]
    lagging = [f"{name}[{one.number}]" for name, one in every if one.in_sync < one.replicas]
    blocked = [f"{name}[{one.number}]" for name, one in every if one.in_sync < settings.topics.min_insync_replicas]
    if offline:
        yield Finding("problem", "replicas", f"no leader: {some(offline)}", "start the brokers that hold them")
    if blocked:
        found = (
            f"fewer than {settings.topics.min_insync_replicas} copies in sync, nothing can be written: {some(blocked)}"
        )
        yield Finding("problem", "replicas", found, "start the brokers that are away")
    elif lagging and not offline:
        yield Finding("warning", "replicas", f"copies lag behind: {some(lagging)}", "look at the brokers that are away")
    if every and not (offline or lagging):
        yield Finding("ok", "replicas", f"all copies of {len(every)} partitions are in sync")


def groups(seen: Seen) -> Iterator[Finding]:
    """Members, offsets and lag of each lane's group."""
    for group in seen.groups:
        yield from _look_at(group)
    owners = {group.lane: set(group.members) for group in seen.groups if group.members}
    if len({frozenset(names) for names in owners.values()}) > 1:
        yield Finding("note", "groups", "the lanes have different workers: pools of their own, or one that joins now")


def _look_at(group: Group) -> Iterator[Finding]:
    if group.error:
        yield Finding("problem", "groups", f"group {group.name} cannot be read: {group.error}", ACLS)
        return
    workers = f"{len(group.members)} workers" if group.members else "no worker"
    level = "ok" if group.members or not group.lag else "problem"
    do = "" if level == "ok" else "start workers: fleet worker"
    yield Finding(level, "groups", f"{group.name}: {workers}, {group.state}, lag {group.lag:,}", do)  # type: ignore[arg-type]
    if group.members and group.protocol not in ("", "range"):
        found = f"{group.name} assigns by {group.protocol!r}: an agent's lanes may lie with different workers"
        yield Finding("problem", "groups", found, "only our workers may be in it; who else joined?")
    if len(group.members) > len(group.ends):
        found = (
            f"{group.name}: {len(group.members)} workers for {len(group.ends)} partitions, the rest has nothing to do"
        )
        yield Finding("warning", "groups", found, "fewer workers, or more partitions in a new fleet")
    missing = [number for number, offset in group.committed.items() if offset is None]
    if missing and not group.members:
        found = (
            f"{group.name} has no offsets of {len(missing)} partitions: nothing that scales on lag would start a worker"
        )
        yield Finding("warning", "groups", found, "fleet topics apply --commit-offsets")
    for number, offset in group.committed.items():
        if offset is not None and offset < group.begins.get(number, 0):
            lost = group.begins[number] - offset
            found = f"{group.name}[{number}]: {lost:,} states were deleted by retention before they were answered"
            yield Finding("problem", "groups", found, "more workers, or a longer topics.retention of this lane")
        if offset is not None and offset > group.ends.get(number, offset):
            end = group.ends[number]
            found = f"{group.name}[{number}]: offset {offset:,}, but the topic ends at {end:,}: it was made anew"
            yield Finding("problem", "groups", found, "delete the group's offsets while no worker runs")


def clocks(seen: Seen) -> Iterator[Finding]:
    """Times of states against this machine's clock; a clock that is behind cannot be seen this way."""
    for topic, count in seen.ahead.items():
        found = f"{topic}: newest states of {count} partitions are over {AHEAD_S:g} s from the future"
        yield Finding("warning", "clocks", found, "set the clocks of the agents or of this machine (NTP)")
    if not seen.ahead:
        yield Finding("ok", "clocks", "no state is from the future")


def of_cluster(seen: Seen, settings: FleetSettings) -> Iterator[tuple[str, Iterator[Finding]]]:
    """Every check of the cluster, by name."""
    yield "brokers", brokers(seen, settings)
    yield "topics", topics(seen)
    yield "replicas", replicas(seen, settings)
    yield "groups", groups(seen)
    yield "clocks", clocks(seen)


def some(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

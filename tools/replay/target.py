"""The fleet that a replay writes to: its partitions, whether somebody lives there, and the refusal to disturb them.

Asks the cluster before anything is sent. `refusal` decides, from what was found, and knows nothing of Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from tools.offsets import ends_of, partition_counts
from topics.errors import BrokerUnavailable, FleetError
from topics.kafka import make_admin, started
from topics.names import LANES
from topics.outbox import Place
from topics.settings import FleetSettings

CLIENT_ID: Final = "fleet-replay"
TRAFFIC_SEEN_IN_S: Final = 1.0
"""Agents of a live fleet publish several times a second."""
COORDINATOR_WITHIN_S: Final = 10.0
"""A new cluster makes its internal topics when the first group is asked for, and refuses until then."""


class LiveFleet(FleetError):
    """The target looks like a fleet in production."""


@dataclass(frozen=True, slots=True)
class Target:
    """What was found on the cluster."""

    fleet: str
    cluster: str
    partitions: Mapping[str, int]
    """By topic: the lanes and the actions."""
    ends: Mapping[Place, int]
    """The offsets that the next records of each partition will get."""
    members: int
    """Workers' consumers, over all lanes."""
    others_states: int
    """States that somebody published within `TRAFFIC_SEEN_IN_S`; looked at only where there are members."""


async def look(settings: FleetSettings, consumer: AIOKafkaConsumer) -> Target:
    """Raises `TopicMissing`, `BrokerUnavailable`."""
    names = settings.names
    topics = (*names.state_topics(), names.actions)
    counts = await partition_counts(consumer, topics)
    places = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]
    cluster, members = await _ask(settings)
    ends, others = await ends_of(consumer, places), 0
    if members:
        await asyncio.sleep(TRAFFIC_SEEN_IN_S)
        later = await ends_of(consumer, places)
        others = sum(later[place] - ends[place] for place in places if place.topic != names.actions)
        ends = later
    return Target(names.fleet, cluster, counts, {(*place,): end for place, end in ends.items()}, members, others)


def refusal(target: Target, recorded_fleet: str, recorded_cluster: str) -> str | None:
    """Why nothing may be sent without --yes; None where nobody is disturbed."""
    workers = f"its groups have {target.members} members" if target.members else "no worker is at work"
    if target.fleet == recorded_fleet and (target.members or target.cluster == recorded_cluster):
        return f"{target.fleet} is the fleet that was recorded ({workers}): name another --fleet, or add --yes"
    if target.members and target.others_states:
        return (
            f"{target.fleet} is live: {workers}, and agents published {target.others_states} states within "
            f"{TRAFFIC_SEEN_IN_S:g} s: name another --fleet, or add --yes"
        )
    return None


async def _ask(settings: FleetSettings) -> tuple[str, int]:
    """The cluster's own ID ("" where its brokers tell none) and how many members the fleet's groups have."""
    groups = [settings.names.group(lane) for lane in LANES]
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + COORDINATOR_WITHIN_S
    while True:
        try:
            async with started(make_admin(settings.kafka, client_id=CLIENT_ID), settings.kafka) as admin:
                cluster = await admin.describe_cluster()
                # one by one: aiokafka 0.14 cannot read an answer about several
                described = [await admin.describe_consumer_groups([group]) for group in groups]
            break
        except KafkaError as error:
            if loop.time() > give_up_at:
                what = f"the cluster does not tell who is in groups {', '.join(groups)}: {error!r}"
                raise BrokerUnavailable(what) from error
            await asyncio.sleep(0.2)
    members = sum(len(group[5]) for responses in described for response in responses for group in response.groups)
    return str(cluster.get("cluster_id") or ""), members

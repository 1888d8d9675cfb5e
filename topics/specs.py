"""What each topic of a fleet must look like on the cluster.

Takes the fleet's settings, gives one `TopicSpec` per topic. Pure: `drift` compares it with a cluster,
`provision` makes the cluster agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topics.names import LANES
from topics.settings import FleetSettings, TopicSettings

_MINUTE_MS = 60_000
# Kafka deletes whole closed segments, and by default closes one after 7 days or 1 GiB: a retention of 30
# minutes would keep days. A quarter of the retention bounds what is kept too long; below a minute a broker
# would be busy with rolling files.
SEGMENTS_PER_RETENTION = 4
MIN_SEGMENT_MS = _MINUTE_MS
MAX_SEGMENT_MS = 7 * 24 * 60 * _MINUTE_MS
# A dead letter carries the untouched payload of a state plus headers that say why and where from.
DEAD_LETTER_OVERHEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it must be."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    """The topic configurations that are ours; others on the cluster are left alone."""
    keyed: bool
    """The agent's ID picks the partition, so another partition count moves agents."""


def specs_of(settings: FleetSettings) -> tuple[TopicSpec, ...]:
    """The fleet's topics: states by lane (all with the same partition count), actions, and dead letters if any."""
    names, topics = settings.names, settings.topics
    keyed = {names.states(lane): topics.retention_ms(lane) for lane in LANES}
    keyed[names.actions] = topics.actions_retention_ms
    letters = [_dead(topics, names.dead)] if names.dead in names.written else []
    return (*(_spec(topics, name, retention_ms=retention_ms) for name, retention_ms in keyed.items()), *letters)


def _spec(topics: TopicSettings, name: str, *, retention_ms: int) -> TopicSpec:
    return TopicSpec(
        name=name,
        partitions=topics.partitions,
        replication_factor=topics.replication_factor,
        configs=_configs(topics, retention_ms, topics.max_message_bytes),
        keyed=True,
    )


def _dead(topics: TopicSettings, name: str) -> TopicSpec:
    return TopicSpec(
        name=name,
        partitions=topics.dead_partitions,
        replication_factor=topics.replication_factor,
        configs=_configs(topics, topics.dead_retention_ms, topics.max_message_bytes + DEAD_LETTER_OVERHEAD_BYTES),
        keyed=False,
    )


def _configs(topics: TopicSettings, retention_ms: int, max_message_bytes: int) -> dict[str, str]:
    segment_ms = min(max(retention_ms // SEGMENTS_PER_RETENTION, MIN_SEGMENT_MS), MAX_SEGMENT_MS)
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "segment.ms": str(segment_ms),
        "max.message.bytes": str(max_message_bytes),
        "min.insync.replicas": str(topics.min_insync_replicas),
    }

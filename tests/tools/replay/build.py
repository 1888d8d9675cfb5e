"""Recordings for tests: written as `fleet record` writes them, without a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tools.recording.about import About
from tools.recording.recorded import Recorded
from tools.recording.write import RecordingWriter
from topics.names import FleetNames, Lane
from topics.partitions import Partitioner

PARTITIONS = 12


def record(
    path: Path, fleet: str, states: Iterable[tuple[Lane, str, int, bytes]], *, cluster: str = "recorded"
) -> list[Recorded]:
    """A recording of (lane, agent, timestamp in ms, value), in their order; gives its records."""
    names, offsets, partitioner = FleetNames(fleet), Counter[tuple[str, int]](), Partitioner(PARTITIONS)
    records = []
    for number, (lane, agent, timestamp_ms, value) in enumerate(states):
        key, topic = agent.encode(), names.states(lane)
        place = topic, partitioner(key)
        headers = (("kafka_correlationId", b"%08d" % number),)
        records.append(Recorded(*place, offsets[place], timestamp_ms, 0, key, value, headers))
        offsets[place] += 1
    writer = RecordingWriter(path, About(fleet, cluster, dict.fromkeys(names.state_topics(), PARTITIONS)))
    writer.add(records)
    writer.finish()
    return records

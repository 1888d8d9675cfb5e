"""What differs from the specs, and what may be done about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topics.drift import TopicFound, compare
from topics.settings import FleetSettings
from topics.specs import TopicSpec, specs_of

SPECS = specs_of(FleetSettings(name="f"))
LANE, DEAD = SPECS[0], SPECS[-1]


def as_specified(spec: TopicSpec) -> TopicFound:
    """The topic as `apply` makes it, with a configuration of somebody else's."""
    configs = {**spec.configs, "compression.type": "zstd"}
    return TopicFound(spec.partitions, spec.replication_factor, configs, configs)


def test_a_cluster_as_specified_has_no_differences() -> None:
    """Configurations that are not ours do not count."""
    assert compare(SPECS, {spec.name: as_specified(spec) for spec in SPECS}) == ()


def test_missing_topics_are_created() -> None:
    """On an empty cluster: all of them, in the order of the specs."""
    differences = compare(SPECS, {})
    assert [item.topic for item in differences] == [spec.name for spec in SPECS]
    assert {item.fix for item in differences} == {"create"}


@pytest.mark.parametrize(("spec", "fix"), [(LANE, "remap"), (SPECS[3], "remap"), (DEAD, "grow")])
def test_growing_moves_agents_where_their_key_picks_the_partition(spec: TopicSpec, fix: str) -> None:
    """Lanes and actions need permission, with the reason; dead letters have no such key."""
    (difference,) = compare([replace(spec, partitions=24)], {spec.name: as_specified(spec)})
    assert (difference.what, difference.wanted, difference.fix) == ("partitions", "24", fix)
    assert ("order and their state break" in difference.why) == (fix == "remap")


def test_partitions_are_never_taken_away() -> None:
    """Kafka cannot; the difference is for a person."""
    (difference,) = compare([replace(LANE, partitions=6)], {LANE.name: as_specified(LANE)})
    assert (difference.found, difference.wanted, difference.fix) == ("12", "6", "by hand")


def test_replication_is_for_a_person() -> None:
    """Moving replicas copies all data: not something to do in passing."""
    (difference,) = compare([replace(LANE, replication_factor=3)], {LANE.name: as_specified(LANE)})
    assert (difference.what, difference.fix) == ("replication factor", "by hand")


def test_each_configuration_of_ours_is_compared() -> None:
    """One difference per key; one that the cluster does not tell counts as not there."""
    found = as_specified(LANE)
    changed = {**found.configs, "retention.ms": "1"}
    del changed["segment.ms"]
    differences = compare([LANE], {LANE.name: replace(found, configs=changed)})
    assert [(item.what, item.found, item.fix) for item in differences] == [
        ("retention.ms", "1", "alter"),
        ("segment.ms", None, "alter"),
    ]

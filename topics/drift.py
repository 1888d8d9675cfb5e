"""Where a cluster differs from the specs, and what may be done about each difference.

Pure: takes specs and what was found, gives differences. `provision` reads the cluster and acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from topics.specs import TopicSpec

Fix = Literal["create", "alter", "grow", "remap", "by hand"]
"""create, alter (configurations) and grow are safe; remap is a growth that moves agents and must be allowed;
what is left is for a person."""

REMAP_REASON = (
    "agents would move to other partitions, so their order and their state break: stop agents and workers, "
    "let the lanes drain, then use --allow-remap"
)
SHRINK_REASON = "Kafka cannot take partitions away: set the number found, or make a fleet of another name"
REPLICAS_REASON = "moving replicas copies the data: use kafka-reassign-partitions.sh"


@dataclass(frozen=True, slots=True)
class TopicFound:
    """One topic as it is on the cluster."""

    partitions: int
    replication_factor: int
    """The smallest of its partitions."""
    configs: Mapping[str, str | None]
    """Every configuration in effect, defaults of the cluster included."""
    own_configs: Mapping[str, str]
    """Those that were set on this topic."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as specified."""

    topic: str
    what: str
    """"topic", "partitions", "replication factor" or the name of a configuration."""
    found: str | None
    """None: not there."""
    wanted: str
    fix: Fix
    why: str = ""
    """Why `apply` does not just do it."""


def compare(specs: Iterable[TopicSpec], found: Mapping[str, TopicFound]) -> tuple[Difference, ...]:
    """Every difference, topic by topic in the order of the specs; none if the cluster is in order."""
    return tuple(difference for spec in specs for difference in _differences(spec, found.get(spec.name)))


def _differences(spec: TopicSpec, found: TopicFound | None) -> Iterator[Difference]:
    if found is None:
        wanted = f"{spec.partitions} partitions × {spec.replication_factor}"
        yield Difference(spec.name, "topic", None, wanted, "create")
        return
    if found.partitions != spec.partitions:
        yield _partitions(spec, found.partitions)
    if found.replication_factor != spec.replication_factor:
        yield Difference(
            spec.name,
            "replication factor",
            str(found.replication_factor),
            str(spec.replication_factor),
            "by hand",
            REPLICAS_REASON,
        )
    for key, wanted in spec.configs.items():
        if (value := found.configs.get(key)) != wanted:
            yield Difference(spec.name, key, value, wanted, "alter")


def _partitions(spec: TopicSpec, found: int) -> Difference:
    fix, why = _how_to_grow(spec, found)
    return Difference(spec.name, "partitions", str(found), str(spec.partitions), fix, why)


def _how_to_grow(spec: TopicSpec, found: int) -> tuple[Fix, str]:
    if found > spec.partitions:
        return "by hand", SHRINK_REASON
    return ("remap", REMAP_REASON) if spec.keyed else ("grow", "")

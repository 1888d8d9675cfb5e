"""Names of topics, consumer groups and lanes: the only place where a name is put together.

Takes a fleet's name, gives the names of everything the fleet has on a cluster. Never talks to the cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from topics.errors import SettingsError

Lane = Literal["high", "normal", "low"]
LANES: tuple[Lane, ...] = get_args(Lane)
"""Every lane, most urgent first."""

# Kafka allows 249 characters in a topic's name; what we append ("." "states" "." "normal") takes 14 of them.
MAX_FLEET_NAME_CHARACTERS = 200
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class FleetNames:
    """Names of one fleet's topics and groups.

    Raises:
        SettingsError: `fleet` has characters that Kafka refuses in topic names, or is empty or too long.
    """

    fleet: str

    def __post_init__(self) -> None:
        if not _LEGAL_NAME.fullmatch(self.fleet) or self.fleet in (".", ".."):
            raise SettingsError(
                f"fleet name {self.fleet!r} cannot be a Kafka topic prefix: use letters, digits, '.', '_' and '-' only"
            )
        if len(self.fleet) > MAX_FLEET_NAME_CHARACTERS:
            raise SettingsError(
                f"fleet name has {len(self.fleet)} characters, at most {MAX_FLEET_NAME_CHARACTERS} fit: "
                f"{self.fleet[:24]!r}…"
            )

    def states(self, lane: Lane) -> str:
        """Topic that agents publish the states of a lane to."""
        return f"{self.fleet}.states.{lane}"

    @property
    def actions(self) -> str:
        """Topic of the answers to states that name no reply topic."""
        return f"{self.fleet}.actions"

    @property
    def dead(self) -> str:
        """Topic of the dead letters: what could not be served, with the reason."""
        return f"{self.fleet}.dead"

    def group(self, lane: Lane) -> str:
        """Consumer group of a lane; each lane has its own, so that no lane waits behind another."""
        return f"{self.fleet}.{lane}"

    def transactional_id(self, lane: Lane, partition: int) -> str:
        """Of whoever owns this partition of a lane, with `delivery = "exactly_once"`."""
        return f"{self.fleet}.{lane}.{partition}"

    def lane_of(self, topic: str) -> Lane:
        """Lane of a states topic.

        Raises:
            ValueError: the topic is not one of this fleet's states topics.
        """
        for lane in LANES:
            if topic == self.states(lane):
                return lane
        raise ValueError(f"topic {topic!r} is not a states topic of fleet {self.fleet!r}")

    def state_topics(self) -> tuple[str, ...]:
        """The states topics, most urgent lane first."""
        return tuple(self.states(lane) for lane in LANES)

    @property
    def written(self) -> tuple[str, ...]:
        """What workers write by themselves; states may name further reply topics."""
        return self.actions, self.dead

    def all_topics(self) -> tuple[str, ...]:
        """Every topic of the fleet: states by lane, actions, dead letters."""
        return (*self.state_topics(), *self.written)


class ShadowNames(FleetNames):
    """The same states read by groups of their own; answers go to a topic that no agent reads, dead letters nowhere."""

    __slots__ = ()

    @property
    def actions(self) -> str:
        """Topic of what a candidate would have answered."""
        return f"{self.fleet}.actions.shadow"

    def group(self, lane: Lane) -> str:
        """A consumer group of its own: the live one's offsets stay as they are."""
        return f"{self.fleet}.shadow.{lane}"

    def transactional_id(self, lane: Lane, partition: int) -> str:
        """Another one than the live worker's, or the two would fence each other."""
        return f"{self.fleet}.shadow.{lane}.{partition}"

    @property
    def written(self) -> tuple[str, ...]:
        """The answers, and nothing else."""
        return (self.actions,)

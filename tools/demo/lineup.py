"""Who plays with whom, and on which lane: pure functions over agents' numbers and observations.

An agent that is about to fail asks on `high`, everybody else on `normal`; every eighth agent plays in the background on
`low`, in groups of their own, so that nobody waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from topics.names import Lane
from topics.tensors import Array

BACKGROUND_EVERY: Final = 8
URGENT_EVERY: Final = 16
"""In environments without limits of their own, every 16th agent asks on `high`."""
GROUPS: Final = 8
"""A group waits for its slowest answer, so some groups must be at play while others wait; each costs a call a step."""
SMALLEST_GROUP: Final = 8
LARGEST_GROUP: Final = 64

URGENT_BEYOND: Final[Mapping[str, Mapping[int, float]]] = {
    # Position (the track ends at 2.4), angle in rad (the pole falls at 0.21) and its speed. A trained policy holds the
    # pole that well that these are its least comfortable few per cent of states.
    "CartPole-v1": {0: 1.0, 2: 0.04, 3: 0.36},
    # Distance from the pad's middle, speed of sinking, tilt in rad and its speed.
    "LunarLander-v3": {0: 0.3, 3: 0.6, 4: 0.35, 5: 0.35},
}
"""Index in the observation → its absolute value from which on the agent is about to fail."""


@dataclass(frozen=True, slots=True)
class Seats:
    """The agents of one group."""

    agents: tuple[int, ...]
    background: bool


def line_up(agents: int) -> list[Seats]:
    """Agents 0 to `agents` − 1 in groups."""
    behind = range(BACKGROUND_EVERY - 1, agents, BACKGROUND_EVERY)
    front = [number for number in range(agents) if number % BACKGROUND_EVERY != BACKGROUND_EVERY - 1]
    groups = max(min(GROUPS, len(front) // SMALLEST_GROUP), -(-len(front) // LARGEST_GROUP), 1)
    seats = [Seats(tuple(front[at::groups]), background=False) for at in range(groups)]
    groups = -(-len(behind) // LARGEST_GROUP)
    return seats + [Seats(tuple(behind[at::groups]), background=True) for at in range(groups)]


def urgent_rows(environment: str, agents: Sequence[int], observations: Array) -> Array:
    """bool [n]: which agents are about to fail, by their `observations` [n, *shape]."""
    limits = URGENT_BEYOND.get(environment)
    if limits is None:
        return np.array([number % URGENT_EVERY == 0 for number in agents])
    urgent = np.zeros(len(observations), bool)
    for index, limit in limits.items():
        urgent |= np.abs(observations[:, index]) > limit
    return urgent


def lanes_of(urgent: Array) -> list[Lane]:
    """The lane of each row of a group in the foreground."""
    return ["high" if row else "normal" for row in urgent.tolist()]

"""What the fleet shall reach: p99 by lane, and the states a second of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topics.errors import SettingsError
from topics.names import LANES, Lane

SPARE: Final = 0.9
"""Settings are recommended where the predicted p99 is within this share of its target: a p99 from some hundred states,
as the check measures it, differs by about a tenth from run to run."""

SLOWEST_PER_S: Final = 2.0
"""Of a lane with a limit: a minute then has the 100 states that a p99 needs at least."""


@dataclass(frozen=True, slots=True)
class Target:
    """`p99_ms` from the moment a state is due until its agent has the answer; lanes that are not named have no limit.
    `rate_per_s`: states of each lane that is used."""

    p99_ms: Mapping[Lane, float]
    rate_per_s: Mapping[Lane, float]

    @property
    def total_per_s(self) -> float:
        """Of all lanes."""
        return sum(self.rate_per_s.values())

    def strain(self, p99_ms: Mapping[Lane, float]) -> float:
        """The worst lane's p99 ÷ its target; at most 1 where all are met."""
        return max(p99_ms[lane] / limit_ms for lane, limit_ms in self.p99_ms.items())


def make_target(p99_ms: Mapping[Lane, float], rate_per_s: Mapping[Lane, float]) -> Target:
    """A target whose parts fit.

    Raises:
        SettingsError: a lane has a limit and hardly any states.
    """
    for lane in p99_ms:
        if rate_per_s.get(lane, 0.0) < SLOWEST_PER_S:
            found = f"--p99 names {lane}, which has {rate_per_s.get(lane, 0.0):g} states/s"
            raise SettingsError(f"{found}, expected at least {SLOWEST_PER_S:g}: give its rate, or leave it out")
    return Target(p99_ms, {lane: rate_per_s[lane] for lane in LANES if rate_per_s.get(lane)})


def by_lane(text: str, flag: str, unit: str) -> dict[Lane, float]:
    """Numbers above 0 by lane, from "high=20,normal=50".

    Raises:
        SettingsError: a lane does not exist or is named twice, or its number is none or not above 0.
    """
    found: dict[Lane, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        lane = next((lane for lane in LANES if lane == name), None)
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if lane is None or lane in found or not 0 < value < float("inf"):
            raise SettingsError(
                f"{flag} has {part!r}, expected lane={unit} with each of {', '.join(LANES)} at most once"
            )
        found[lane] = value
    return found

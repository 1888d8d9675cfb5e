"""When states are sent, by whom and in which lane, all of it decided before the first one leaves. Pure.

An open load does not wait for answers: a fleet that stalls meets the same arrivals, and every state's latency counts
from the moment at which it was due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from topics.errors import SettingsError
from topics.names import LANES, Lane

Kind = Literal["poisson", "uniform"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Mix = Mapping[Lane, float]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """n states: seconds after the start (ascending), number of the agent, lane of each."""

    at_s: npt.NDArray[np.float64]
    agents: npt.NDArray[np.intp]
    lanes: list[Lane]

    def __len__(self) -> int:
        return len(self.lanes)


def arrivals(kind: Kind, rate_per_s: float, seconds: float, agents: int, mix: Mix, seed: int) -> Arrivals:
    """The arrivals of `seconds` at `rate_per_s`: evenly spaced, or with exponential gaps (a Poisson process).

    Agents take turns, so one agent's states are as far apart as can be; lanes are drawn from `mix`.
    """
    random = np.random.default_rng(seed)
    expected = rate_per_s * seconds
    if kind == "uniform":
        at_s = np.arange(round(expected)) / rate_per_s
    else:
        # Six standard deviations more than expected: the gaps reach past the end.
        gaps = random.exponential(1 / rate_per_s, size=int(expected + 6 * np.sqrt(expected) + 10))
        at_s = np.cumsum(gaps)
        at_s = at_s[at_s < seconds]
    shares = np.array([mix.get(lane, 0.0) for lane in LANES])
    drawn = random.choice(len(LANES), size=len(at_s), p=shares / shares.sum())
    return Arrivals(at_s, np.arange(len(at_s)) % agents, [LANES[number] for number in drawn])


@dataclass(frozen=True, slots=True)
class Stream:
    """States of one lane, from one moment to another, seconds after the start."""

    lane: Lane
    kind: Kind
    rate_per_s: float
    from_s: float
    to_s: float


def merged(streams: Sequence[Stream], agents: int, seed: int) -> Arrivals:
    """The arrivals of several streams in the order of their times; each stream has `agents` agents of its own."""
    parts = [
        arrivals(stream.kind, stream.rate_per_s, stream.to_s - stream.from_s, agents, {stream.lane: 1}, seed + number)
        for number, stream in enumerate(streams)
    ]
    at_s = np.concatenate([part.at_s + stream.from_s for part, stream in zip(parts, streams, strict=True)])
    order = np.argsort(at_s, kind="stable")
    numbers = np.concatenate([part.agents + number * agents for number, part in enumerate(parts)])
    lanes = [lane for part in parts for lane in part.lanes]
    return Arrivals(at_s[order], numbers[order], [lanes[row] for row in order])


def parse_mix(text: str) -> dict[Lane, float]:
    """Shares by lane from "high=0.1,normal=0.7,low=0.2"; they are relative to their sum.

    Raises:
        SettingsError: a lane does not exist, a share is no number ≥ 0, or all are 0.
    """
    mix: dict[Lane, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        lane = next((lane for lane in LANES if lane == name), None)
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if lane is None or not 0 <= share < float("inf"):
            raise SettingsError(f"--mix has {part!r}, expected lane=share with a lane of {', '.join(LANES)}")
        mix[lane] = share
    if not sum(mix.values()):
        raise SettingsError(f"--mix {text!r} has no share above 0, expected for example normal=1")
    return mix


def split(agents: int, mix: Mix) -> dict[Lane, int]:
    """`agents` divided by lane in the proportions of `mix`; what rounding leaves goes to the largest share."""
    total = sum(mix.values())
    counts = {lane: int(agents * share / total) for lane, share in mix.items()}
    counts[max(mix, key=lambda lane: mix[lane])] += agents - sum(counts.values())
    return {lane: count for lane, count in counts.items() if count}

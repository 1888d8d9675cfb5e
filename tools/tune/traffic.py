"""The states that a fleet is tuned for: made up (Poisson, a rate for each lane), or as they were recorded."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tools.bench.arrivals import Arrivals, Stream, merged
from tools.bench.states import agent_ids
from tools.recording.read import Recording
from tools.recording.recorded import kind_and_lane
from tools.recording.selection import Selection
from tools.tune.simulate import States
from topics.errors import SettingsError
from topics.names import LANES, Lane
from topics.partitions import Partitioner

LONGEST_S: Final = 60.0
"""Of traffic that is looked at: enough for 3,000 states of a lane with 50 a second."""
MOST_STATES: Final = 500_000
"""Of traffic that is looked at."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """States with their times from 0 to `seconds`, and the rates of their lanes; `keys[n]`: record key of agent n."""

    arrivals: Arrivals
    keys: Sequence[bytes]
    seconds: float
    rate_per_s: Mapping[Lane, float]
    about: str

    def parts(self, workers: int, partitions: int) -> list[npt.NDArray[np.intp]]:
        """Which states each of `workers` gets, the busiest worker first: agents to partitions as every client hashes
        them, partitions to workers as the Range assignor deals them out."""
        partition_of = Partitioner(partitions)
        owner_of = np.array([_range(partition_of(key), workers, partitions) for key in self.keys])
        owners = owner_of[self.arrivals.agents]
        parts = [np.flatnonzero(owners == worker) for worker in range(workers)]
        return sorted(parts, key=len, reverse=True)

    def states(self, rows: npt.NDArray[np.intp]) -> States:
        """The states of these rows, for the simulation."""
        arrivals, agents = self.arrivals, self.arrivals.agents[rows]
        at_us = np.round(arrivals.at_s[rows] * 1e6).astype(np.int64)
        return States(at_us, [self.keys[agent] for agent in agents], [arrivals.lanes[row] for row in rows])

    def until(self, end_s: float) -> Arrivals:
        """The first `end_s` seconds, over and over if there is less of it."""
        arrivals, turns = self.arrivals, int(np.ceil(end_s / self.seconds))
        at_s = np.concatenate([arrivals.at_s + turn * self.seconds for turn in range(turns)])
        n = int(np.searchsorted(at_s, end_s))
        return Arrivals(at_s[:n], np.tile(arrivals.agents, turns)[:n], (arrivals.lanes * turns)[:n])

    def times(self, factor: float) -> Traffic:
        """The same states, `factor` times as fast."""
        arrivals = Arrivals(self.arrivals.at_s / factor, self.arrivals.agents, self.arrivals.lanes)
        rates = {lane: rate * factor for lane, rate in self.rate_per_s.items()}
        return Traffic(arrivals, self.keys, self.seconds / factor, rates, f"{self.about}, {factor:g} times as fast")


def poisson(rate_per_s: Mapping[Lane, float], agents: int, seed: int = 1) -> Traffic:
    """Independent states of `agents` agents in each lane."""
    total = sum(rate_per_s.values())
    seconds = min(LONGEST_S, max(MOST_STATES / total, 1.0))
    streams = [Stream(lane, "poisson", rate, 0, seconds) for lane, rate in rate_per_s.items()]
    arrivals = merged(streams, agents, seed)
    keys = [agent.encode() for agent in agent_ids(agents * len(streams))]
    return Traffic(arrivals, keys, seconds, rate_per_s, f"Poisson arrivals of {agents} agents in each lane")


def busiest(
    at_s: npt.NDArray[np.float64], agents: npt.NDArray[np.intp], lanes: list[Lane], longest_s: float
) -> Arrivals:
    """The stretch of at most `longest_s` seconds with the most states; its times from 0."""
    ends = np.searchsorted(at_s, at_s + longest_s)
    first = int(np.argmax(ends - np.arange(len(at_s))))
    part = slice(first, int(ends[first]))
    return Arrivals(at_s[part] - at_s[first], agents[part], lanes[part])


def recorded(path: Path) -> Traffic:
    """The states of a recording, the busiest minute of it: Kafka's times, to the ms.

    Raises:
        RecordingError: it cannot be read.
        SettingsError: it has no two states.
    """
    recording = Recording.open(path)
    at_ms, agents, lanes = array("q"), array("q"), list[Lane]()
    numbers: dict[bytes, int] = {}
    for records in recording.records(Selection(kinds=("states",))):
        for record in records:
            lane = kind_and_lane(record.topic, recording.about.fleet)[1]
            if lane is not None:
                at_ms.append(record.timestamp_ms)
                agents.append(numbers.setdefault(record.key or b"", len(numbers)))
                lanes.append(lane)
    if len(at_ms) < 2:
        raise SettingsError(f"--recording {path} has {len(at_ms)} states, expected a stretch of traffic")
    times_ms = np.array(at_ms)
    at_s = (times_ms - times_ms[0]) / 1000.0
    stretch = busiest(at_s, np.array(agents, np.intp), lanes, LONGEST_S)
    seconds = float(stretch.at_s[-1]) + 0.001
    rates = {lane: stretch.lanes.count(lane) / seconds for lane in LANES if lane in stretch.lanes}
    return Traffic(stretch, list(numbers), seconds, rates, f"{seconds:.3g} s of {path}")


def _range(partition: int, workers: int, partitions: int) -> int:
    """The worker of a partition: contiguous shares, the first ones larger by one where they do not come out even."""
    share, more = divmod(partitions, workers)
    if partition < more * (share + 1):
        return partition // (share + 1)
    return more + (partition - more * (share + 1)) // share

"""What a fleet with some settings would do: its workers in simulated time, each with its share of the states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tools.tune.curve import Curve
from tools.tune.round_trip import RoundTrip
from tools.tune.simulate import Simulation
from tools.tune.target import Target
from tools.tune.traffic import Traffic
from topics.names import LANES, Lane
from workers.settings import Settings
from workers.slots import Limits

STATES: Final = 8_000
"""Simulated for a first look at a candidate: about a quarter of a second. Before settings are recommended, `CAREFUL`
times as many."""
CAREFUL: Final = 6
SETTLED: Final = 0.05
"""Share of the states, at the start, that does not count: the fleet begins empty."""
SHORTEST_S: Final = 2.0
"""Of traffic, also where that is more than `STATES`: queues take a while to fill."""
STEP: Final = 0.05
"""Of the strain: candidates that differ by less are equal."""
RESERVE: Final = 2.0
"""Times the rate that full batches should be able to answer; more is not better."""
BEHIND: Final = 0.1
"""Share of the states that may be without an answer when the last one comes; with more, queues only grow, if only
those of lanes without a limit."""
FEWEST: Final = 100
"""States of each lane with a limit, of one worker."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings to try."""

    workers: int
    predictors: int
    """In each worker."""
    max_batch: int
    max_wait_ms: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What they would do. `busy`: share of the time that predictors run; `rows`: of a batch, on average."""

    candidate: Candidate
    p50_ms: Mapping[Lane, float]
    p99_ms: Mapping[Lane, float]
    strain: float
    """The worst lane's p99 ÷ its target, or how far the fleet fell behind ÷ `BEHIND`, if that is more."""
    busy: float
    rows: float


class Fleet:
    """Tries candidates for one model, one traffic and one target, with `states` states at a first look."""

    def __init__(
        self,
        settings: Settings,
        curve: Curve,
        traffic: Traffic,
        trip: RoundTrip,
        target: Target,
        states: int = STATES,
    ) -> None:
        self.settings, self.curve, self.traffic, self.trip, self.target = settings, curve, traffic, trip, target
        self._states = states
        self.tried: dict[Candidate, Outcome] = {}
        """With a first look each."""
        self._parts: dict[int, list[npt.NDArray[np.intp]]] = {}

    def parts(self, workers: int) -> Sequence[npt.NDArray[np.intp]]:
        """The states of each worker, the busiest first."""
        if workers not in self._parts:
            self._parts[workers] = self.traffic.parts(workers, self.settings.topics.partitions)
        return self._parts[workers]

    def busiest_per_s(self, workers: int) -> float:
        """The rate of the busiest of so many workers."""
        return len(self.parts(workers)[0]) / self.traffic.seconds

    def keeps_up(self, candidate: Candidate, traffic_factor: float = 1.0) -> bool:
        """Whether full batches would answer what the busiest worker gets; else queues only grow."""
        return traffic_factor * self.busiest_per_s(candidate.workers) < self.capacity_per_s(candidate)

    def capacity_per_s(self, candidate: Candidate) -> float:
        """What one of its workers answers in full batches, back to back."""
        return candidate.predictors * self.curve.rows_per_s(candidate.max_batch)

    def rank(self, outcome: Outcome) -> tuple[int, bool, float, int, bool, float]:
        """The lower the better: what meets the target best. Among equals what is set already, else the smallest batch
        that has enough in reserve: after a burst batches are full, and whoever comes then waits for one."""
        ours, batch = outcome.candidate, self.settings.batch
        other_batch, other_wait = ours.max_batch != batch.max_batch, ours.max_wait_ms != batch.max_wait_ms
        reserve = min(RESERVE, self.capacity_per_s(ours) / self.busiest_per_s(ours.workers))
        return math.ceil(outcome.strain / STEP), other_batch, -reserve, ours.max_batch, other_wait, ours.max_wait_ms

    def look(self, candidate: Candidate) -> Outcome:
        """A first look at a candidate, remembered."""
        if candidate not in self.tried:
            self.tried[candidate] = self.simulated(candidate)
        return self.tried[candidate]

    def careful(self, candidate: Candidate) -> Outcome:
        """With more states, before it is recommended."""
        return self.simulated(candidate, CAREFUL)

    def simulated(self, candidate: Candidate, times_longer: int = 1, traffic_factor: float = 1.0) -> Outcome:
        """The states of the busiest workers, with `traffic_factor` times as many a second."""
        states = times_longer * self._states
        waits_ms: dict[Lane, list[npt.NDArray[np.float64]]] = {lane: [] for lane in LANES}
        busy, behind, batches, left = [], [], 0.0, states
        traffic = self.traffic if traffic_factor == 1 else self.traffic.times(traffic_factor)
        shortest_s = max(SHORTEST_S, *(FEWEST / self.target.rate_per_s[lane] for lane in self.target.p99_ms))
        for part in self.parts(candidate.workers):
            if left <= 0:
                break
            per_s = len(part) / traffic.seconds
            n = int(np.searchsorted(traffic.arrivals.at_s[part], max(shortest_s, left / max(per_s, 1e-9))))
            ran = self._simulation(candidate, traffic, part[:n])
            self._add(waits_ms, ran, traffic, part[:n])
            busy.append(ran.busy)
            behind.append(ran.behind)
            batches += n / ran.rows if n else 0
            left -= n
        return self._outcome(candidate, waits_ms, max(behind), float(np.mean(busy)), (states - left) / max(batches, 1))

    def _simulation(self, candidate: Candidate, traffic: Traffic, rows: npt.NDArray[np.intp]) -> Simulation:
        simulation = Simulation(
            traffic.states(rows), self.curve, self._limits(candidate), candidate.predictors, self.settings.max_depths()
        )
        simulation.run()
        return simulation

    def _limits(self, candidate: Candidate) -> Limits:
        return Limits(
            max_batch=candidate.max_batch,
            max_wait_us=round(candidate.max_wait_ms * 1000),
            low_max_age_us=self.settings.lanes.low.max_age_ms * 1000,
            buckets=tuple(self.curve.batch_us),
            fast_pass_wait_us=round(self.settings.batch.fast_pass_wait_ms * 1000),
        )

    @staticmethod
    def _add(
        waits_ms: dict[Lane, list[npt.NDArray[np.float64]]],
        ran: Simulation,
        traffic: Traffic,
        rows: npt.NDArray[np.intp],
    ) -> None:
        first = int(SETTLED * len(rows))
        lanes = np.array([traffic.arrivals.lanes[row] for row in rows[first:]])
        for lane in LANES:
            waits_ms[lane].append(ran.waits_us[first:][lanes == lane] / 1000)

    def _outcome(
        self,
        candidate: Candidate,
        waits_ms: Mapping[Lane, list[npt.NDArray[np.float64]]],
        behind: float,
        busy: float,
        rows: float,
    ) -> Outcome:
        joined = {lane: np.concatenate(waits_ms[lane]) for lane in self.target.rate_per_s}
        total = {lane: self.trip.added(lane, waits) for lane, waits in joined.items() if len(waits)}
        p50_ms = {lane: float(np.percentile(ms, 50)) for lane, ms in total.items()}
        p99_ms = {lane: float(np.percentile(ms, 99)) for lane, ms in total.items()}
        return Outcome(candidate, p50_ms, p99_ms, max(self.target.strain(p99_ms), behind / BEHIND), busy, rows)

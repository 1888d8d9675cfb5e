"""What a benchmark found and what it comes to: medians, ratios, goals, and the dictionary for JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

import numpy as np

from tools.bench.stats import Latency, Seconds, Spread, latency, ratios, rounded


@dataclass(slots=True)
class LaneRun:
    """One lane in one run: states sent in the measured window, those answered, and the seconds that took."""

    offered: int = 0
    answered: int = 0
    latencies_s: list[Seconds] = field(default_factory=list)

    def add(self, latencies_s: Seconds) -> None:
        """States that were sent, NaN where no answer came."""
        self.offered += len(latencies_s)
        self.answered += int(np.count_nonzero(~np.isnan(latencies_s)))
        self.latencies_s.append(latencies_s)


@dataclass(slots=True)
class Run:
    """One run of one side."""

    decisions_per_s: float = 0.0
    cpu_us: float = 0.0
    lanes: dict[str, LaneRun] = field(default_factory=dict)

    def lane(self, name: str) -> LaneRun:
        """The lane's part, made when first asked for."""
        return self.lanes.setdefault(name, LaneRun())


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure must be; `key` is a path in the result's dictionary."""

    key: str
    bound: Literal["at least", "at most"]
    value: float

    def met(self, found: float | None) -> bool:
        """Whether `found` keeps the bound; nothing measured keeps none."""
        if found is None:
            return False
        return found >= self.value if self.bound == "at least" else found <= self.value


@dataclass(frozen=True, slots=True)
class Result:
    """Adjacent runs of the fleet and of its floor; `bare` is empty where there is none."""

    benchmark: str
    options: Mapping[str, Any]
    fleet: Sequence[Run]
    bare: Sequence[Run]
    goals: Sequence[Goal] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values; `ratio` is ours ÷ the floor's."""
        found: dict[str, Any] = {"benchmark": self.benchmark, "options": dict(self.options)}
        if any(run.decisions_per_s for run in (*self.fleet, *self.bare)):
            found |= self._throughput()
        if any(run.lanes for run in self.fleet):
            found |= _lanes("lanes", self.fleet) | (_lanes("bare_lanes", self.bare) if self.bare else {})
        found |= self.more
        found["rounds"] = [self._round(number) for number in range(len(self.fleet))]
        found["goals"] = [self._goal(goal, found) for goal in self.goals]
        plain: dict[str, Any] = rounded(found)
        return plain

    def _throughput(self) -> dict[str, Any]:
        fleet = [run.decisions_per_s for run in self.fleet]
        found = {
            "decisions_per_s": median(fleet),
            "cpu_us_per_decision": median(run.cpu_us for run in self.fleet),
        }
        if self.bare:
            found |= {
                "bare_decisions_per_s": median(run.decisions_per_s for run in self.bare),
                "bare_cpu_us_per_decision": median(run.cpu_us for run in self.bare),
                **named("ratio", ratios(fleet, [run.decisions_per_s for run in self.bare])),
                **named("cpu_ratio", ratios([run.cpu_us for run in self.fleet], [run.cpu_us for run in self.bare])),
            }
        return found

    def _round(self, number: int) -> dict[str, Any]:
        sides = {"fleet": self.fleet[number]} | ({"bare": self.bare[number]} if self.bare else {})
        return {
            side: {
                "decisions_per_s": run.decisions_per_s,
                "cpu_us_per_decision": run.cpu_us,
                "lanes": {lane: _lane([part]) for lane, part in run.lanes.items()},
            }
            for side, run in sides.items()
        }

    @staticmethod
    def _goal(goal: Goal, found: Mapping[str, Any]) -> dict[str, Any]:
        value: Any = found
        for key in goal.key.split("/"):
            value = value.get(key) if isinstance(value, Mapping) else None
        return {**asdict(goal), "found": value, "met": goal.met(value)}


def named(name: str, values: Spread) -> dict[str, float]:
    """A spread under three keys."""
    return {name: values.median, f"{name}_min": values.low, f"{name}_max": values.high}


def _lanes(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The lanes of several runs, latencies pooled, and their sums."""
    names = list(dict.fromkeys(lane for run in runs for lane in run.lanes))
    lanes = {lane: _lane([run.lanes[lane] for run in runs if lane in run.lanes]) for lane in names}
    prefix = name.removesuffix("lanes")
    sums = {key: sum(lane[key] for lane in lanes.values()) for key in ("offered", "answered", "unanswered")}
    return {name: lanes} | {f"{prefix}{key}": value for key, value in sums.items()}


def _lane(parts: Sequence[LaneRun]) -> dict[str, Any]:
    pooled: Latency = latency([seconds for part in parts for seconds in part.latencies_s])
    offered, answered = sum(part.offered for part in parts), sum(part.answered for part in parts)
    return {**asdict(pooled), "offered": offered, "answered": answered, "unanswered": offered - answered}

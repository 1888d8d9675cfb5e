"""Targets that no settings meet, told before anything is tried: which bound, and what would be needed. Pure."""

from __future__ import annotations

import math

from tools.tune.fleet import Fleet
from tools.tune.round_trip import MOST_PER_S
from tools.tune.search import Most, TargetImpossible
from tools.tune.target import SPARE


def check_possible(fleet: Fleet, most: Most) -> None:
    """Raises `TargetImpossible` where a round trip, the device or the workers' event loops cannot do it."""
    _round_trips(fleet)
    _event_loops(fleet, most)
    _devices(fleet, most)


def _round_trips(fleet: Fleet) -> None:
    """No answer is quicker than a round trip and the smallest batch."""
    least_ms = fleet.curve.least_ms
    for lane, limit_ms in fleet.target.p99_ms.items():
        trip_ms = fleet.trip.p99_ms(lane)
        if trip_ms + least_ms > limit_ms * SPARE:
            raise TargetImpossible(
                f"p99 of {lane} {limit_ms:g} ms is out of reach: a round trip without a model takes {trip_ms:.3g} ms "
                f"(p99) and the smallest batch {least_ms:.3g} ms; expected --p99 {lane}="
                f"{math.ceil((trip_ms + least_ms) / SPARE)} or more, a quicker machine or model"
            )


def _event_loops(fleet: Fleet, most: Most) -> None:
    per_s = fleet.busiest_per_s(most.workers)
    if per_s > MOST_PER_S:
        raise TargetImpossible(
            f"{fleet.target.total_per_s:,.0f} states/s are too many for {most.workers} workers: the busiest gets "
            f"{per_s:,.0f}/s, and an event loop carries {MOST_PER_S:,.0f}/s; needs about {_workers(fleet, MOST_PER_S)}"
        )


def _devices(fleet: Fleet, most: Most) -> None:
    """Full batches on all predictors, back to back, are the most there is."""
    per_s, each_per_s = fleet.busiest_per_s(most.workers), fleet.curve.capacity_per_s
    if per_s >= most.predictors * each_per_s:
        raise TargetImpossible(
            f"{fleet.target.total_per_s:,.0f} states/s are too many for {most.workers} workers of {most.predictors} "
            f"predictors: each does {each_per_s:,.0f}/s at most; needs more predictors (--max-predictors), a quicker "
            f"model, or about {_workers(fleet, most.predictors * each_per_s)}"
        )


def _workers(fleet: Fleet, each_per_s: float) -> str:
    """How many are needed where each does so much, and where to say so."""
    needed = math.ceil(fleet.target.total_per_s / each_per_s)
    partitions = fleet.settings.topics.partitions
    few = f", and more than topics.partitions={partitions}" if needed > partitions else ""
    return f"{needed} workers (--max-workers){few}"

"""Finds the fewest predictors that meet a target, and the batch settings that meet it best, among what `Fleet` tries.

Fleets grow by doubling until one meets the target, then the smallest that does is bracketed. In each a coarse grid of
batch sizes and waits is tried; around the best of the last one, its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tools.tune.fleet import Candidate, Fleet, Outcome
from tools.tune.round_trip import MOST_PER_S
from tools.tune.target import SPARE
from topics.errors import FleetError

WAITS_MS: Final = (0.0, 5.0, 20.0)
"""Of the coarse grid; the neighbours of the best are tried after it."""
COARSE: Final = 3
"""Batch sizes of the coarse grid."""
FACTORS: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Of the target's rates, to show what is in reserve."""

Bar = Callable[[str, float], AbstractContextManager[Callable[[float], None]]]


class TargetImpossible(FleetError):
    """No settings meet the target; says which bound ends it, and what would be needed."""


@dataclass(frozen=True, slots=True)
class Most:
    """How large a fleet may get."""

    workers: int
    predictors: int
    """In each worker."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is recommended, with a careful look at it; and what the settings in force would do with one worker, None
    where it falls ever further behind."""

    best: Outcome
    now: Outcome | None
    sizes: Sequence[Outcome]
    """The best of each size that was tried, the smallest first."""
    nearby: Sequence[Outcome]
    """All that was tried in a fleet of the recommended size."""
    by_rate: Sequence[tuple[float, Outcome]]
    """The recommended settings at other rates: states/s of all lanes together, ascending."""


def search(fleet: Fleet, most: Most, bar: Bar) -> Found:
    """The recommendation.

    Raises:
        TargetImpossible: there is none.
    """
    sizes = list(_sizes(fleet, most))
    for size in sizes[_smallest(fleet, sizes, bar) :]:
        first = _best_of(fleet, size, bar)
        _around(fleet, first.candidate, bar)
        nearby = sorted(_tried(fleet, size), key=fleet.rank)
        best = _confirmed(fleet, nearby, bar)
        if best.strain <= SPARE:
            break
    else:
        if best.strain > 1:
            raise TargetImpossible(out_of_reach(fleet, best))
    looks: dict[tuple[int, int], list[Outcome]] = {}
    for outcome in fleet.tried.values():
        looks.setdefault(_size(outcome.candidate), []).append(outcome)
    bests = [min(looks[size], key=fleet.rank) for size in sizes if size in looks]
    return Found(best, _now(fleet), bests, nearby, _by_rate(fleet, best.candidate, bar))


def _by_rate(fleet: Fleet, candidate: Candidate, bar: Bar) -> list[tuple[float, Outcome]]:
    """The same mix of lanes at other rates, as far as the fleet keeps up."""
    able = [factor for factor in FACTORS if fleet.keeps_up(candidate, factor)]
    found = []
    with bar("other rates", len(able)) as on_done:
        for factor in able:
            found.append((factor * fleet.target.total_per_s, fleet.simulated(candidate, traffic_factor=factor)))
            on_done(len(found))
    return found


def as_set(fleet: Fleet, bar: Bar) -> Found:
    """The settings in force instead of a recommendation, in one worker.

    Raises:
        TargetImpossible: it falls ever further behind.
    """
    candidate = _in_force(fleet)
    if not fleet.keeps_up(candidate):
        most_per_s = candidate.predictors * fleet.curve.rows_per_s(candidate.max_batch)
        raise TargetImpossible(
            f"as set, one worker does {most_per_s:,.0f} states/s at most (batches of {candidate.max_batch}), and "
            f"{fleet.target.total_per_s:,.0f} arrive: it falls ever further behind; without --as-set fleet tune looks "
            "for settings that keep up"
        )
    outcome = fleet.careful(candidate)
    return Found(outcome, outcome, (), (), _by_rate(fleet, candidate, bar))


def _in_force(fleet: Fleet) -> Candidate:
    """The settings as they are, in one worker."""
    batch, hot = fleet.settings.batch, [ours for ours in fleet.settings.predictors if not ours.standby]
    return Candidate(1, len(hot), min(batch.max_batch, max(fleet.curve.batch_us)), batch.max_wait_ms)


def _now(fleet: Fleet) -> Outcome | None:
    candidate = _in_force(fleet)
    return fleet.simulated(candidate) if fleet.keeps_up(candidate) else None


def _size(candidate: Candidate) -> tuple[int, int]:
    return candidate.workers, candidate.predictors


def _sizes(fleet: Fleet, most: Most) -> Iterator[tuple[int, int]]:
    """Numbers of workers and of predictors in each that could keep up, the fewest predictors first, then the fewest
    workers: one queue in front of several predictors waits less than several queues. A worker more that leaves the
    busiest one as many partitions helps nobody's tail."""
    partitions = fleet.settings.topics.partitions
    counts = [n for n in range(1, most.workers + 1) if n == 1 or -(-partitions // n) < -(-partitions // (n - 1))]
    for total in range(1, counts[-1] * most.predictors + 1):
        workers = next((n for n in counts if total % n == 0 and total // n <= most.predictors), 0)
        if not workers or fleet.busiest_per_s(workers) > MOST_PER_S:
            continue
        if fleet.busiest_per_s(workers) < total // workers * fleet.curve.capacity_per_s:
            yield workers, total // workers


def _smallest(fleet: Fleet, sizes: Sequence[tuple[int, int]], bar: Bar) -> int:
    """Which is the smallest size whose best meets the target at a first look."""
    below, at, step = -1, 0, 1
    while (best := _best_of(fleet, sizes[at], bar)).strain > SPARE:
        if at == len(sizes) - 1:
            raise TargetImpossible(out_of_reach(fleet, best))
        below, at, step = at, min(at + step, len(sizes) - 1), 2 * step
    while at - below > 1:
        middle = (at + below) // 2
        if _best_of(fleet, sizes[middle], bar).strain <= SPARE:
            at = middle
        else:
            below = middle
    return at


def out_of_reach(fleet: Fleet, best: Outcome) -> str:
    """Why the largest fleet that was allowed does not do, in one line."""
    ours = best.candidate
    fleet_of = f"{ours.workers} workers of {ours.predictors} predictors, the most that was tried"
    more = "needs more of them (--max-workers, --max-predictors) or a quicker model"
    if fleet.target.strain(best.p99_ms) <= SPARE:
        return f"states of lanes without a limit would pile up with {fleet_of}; {more}"
    lane = max(fleet.target.p99_ms, key=lambda lane: best.p99_ms[lane] / fleet.target.p99_ms[lane])
    found_ms, limit_ms = best.p99_ms[lane], fleet.target.p99_ms[lane]
    return (
        f"p99 of {lane} would be {found_ms:.3g} ms with {fleet_of}; {limit_ms:g} ms with a tenth to spare {more}, "
        f"or --p99 {lane}={math.ceil(found_ms / SPARE)}"
    )


def _best_of(fleet: Fleet, size: tuple[int, int], bar: Bar) -> Outcome:
    workers, predictors = size
    grid = [
        Candidate(workers, predictors, max_batch, wait_ms) for max_batch in _coarse(fleet, size) for wait_ms in WAITS_MS
    ]
    if fleet.keeps_up(as_now := replace(_in_force(fleet), workers=workers, predictors=predictors)):
        grid.append(as_now)
    return min(_looks(fleet, grid, f"{workers} × {predictors} predictors", bar), key=fleet.rank)


def _looks(fleet: Fleet, candidates: Sequence[Candidate], title: str, bar: Bar) -> list[Outcome]:
    """A look at each, under a bar for those that were not looked at before."""
    new = [candidate for candidate in dict.fromkeys(candidates) if candidate not in fleet.tried]
    if new:
        with bar(title, len(new)) as on_done:
            for number, candidate in enumerate(new):
                fleet.look(candidate)
                on_done(number + 1)
    return [fleet.look(candidate) for candidate in candidates]


def _able(fleet: Fleet, size: tuple[int, int]) -> list[int]:
    """Batch sizes with which a fleet of this size keeps up: buckets, as all else is padded to one."""
    return [rows for rows in fleet.curve.batch_us if fleet.keeps_up(Candidate(*size, rows, 0.0))]


def _coarse(fleet: Fleet, size: tuple[int, int]) -> list[int]:
    """A few of the able ones, both ends among them."""
    able = _able(fleet, size)
    if len(able) <= COARSE:
        return able
    return [able[round(number * (len(able) - 1) / (COARSE - 1))] for number in range(COARSE)]


def _tried(fleet: Fleet, size: tuple[int, int]) -> list[Outcome]:
    return [outcome for candidate, outcome in fleet.tried.items() if _size(candidate) == size]


def _around(fleet: Fleet, best: Candidate, bar: Bar) -> None:
    """Looks at the neighbours of the best."""
    able = _able(fleet, _size(best))
    neighbours = {one for pair in pairwise(able) if best.max_batch in pair for one in pair} | {best.max_batch}
    waits_ms = {best.max_wait_ms, best.max_wait_ms / 2, best.max_wait_ms * 2 or 2.0}
    around = [replace(best, max_batch=rows) for rows in sorted(neighbours)]
    around += [replace(best, max_wait_ms=wait_ms) for wait_ms in sorted(waits_ms)]
    _looks(fleet, around, "around the best", bar)


def _confirmed(fleet: Fleet, looks: Sequence[Outcome], bar: Bar) -> Outcome:
    """The best that also holds with more states; where none of the first three does, the one that comes nearest."""
    seen: list[Outcome] = []
    candidates = [look.candidate for look in looks[:3]]
    with bar("a careful look", len(candidates)) as on_done:
        for candidate in candidates:
            seen.append(fleet.careful(candidate))
            on_done(len(seen))
            if seen[-1].strain <= SPARE:
                on_done(len(candidates))
                break
    return min(seen, key=lambda outcome: outcome.strain)

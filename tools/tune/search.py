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

from tools.tune.fleet import CAREFUL, STATES, Candidate, Fleet, Outcome
from tools.tune.target import SPARE
from topics.errors import FleetError

WAITS_MS: Final = (0.0, 5.0, 20.0)
"""Of the coarse grid; the neighbours of the best are tried after it."""
COARSE: Final = 4
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
    """What is recommended, with a careful look at it; what the settings in force would do with one worker; and the best
    of each size that was tried, the smallest first."""

    best: Outcome
    now: Outcome | None
    sizes: Sequence[Outcome]
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
    best = _smallest(fleet, sizes, bar)
    refined = [*_tried(fleet, best.candidate), *_around(fleet, best.candidate, bar)]
    best = _confirmed(fleet, refined, bar)
    looks: dict[tuple[int, int], list[Outcome]] = {}
    for outcome in fleet.tried.values():
        looks.setdefault(_size(outcome.candidate), []).append(outcome)
    bests = [min(looks[size], key=fleet.rank) for size in sizes if size in looks]
    return Found(best, _now(fleet), bests, sorted(refined, key=fleet.rank), _by_rate(fleet, best.candidate, bar))


def _by_rate(fleet: Fleet, candidate: Candidate, bar: Bar) -> list[tuple[float, Outcome]]:
    """The same mix of lanes at other rates, as far as the fleet keeps up."""
    able = [factor for factor in FACTORS if fleet.keeps_up(candidate, factor)]
    found = []
    with bar("other rates", len(able)) as on_done:
        for factor in able:
            found.append((factor * fleet.target.total_per_s, fleet.simulated(candidate, STATES, factor)))
            on_done(len(found))
    return found


def _now(fleet: Fleet) -> Outcome | None:
    """The settings in force, in one worker; None where that falls ever further behind."""
    batch, hot = fleet.settings.batch, [ours for ours in fleet.settings.predictors if not ours.standby]
    candidate = Candidate(1, len(hot), min(batch.max_batch, max(fleet.curve.batch_us)), batch.max_wait_ms)
    return fleet.simulated(candidate, STATES) if fleet.keeps_up(candidate) else None


def _size(candidate: Candidate) -> tuple[int, int]:
    return candidate.workers, candidate.predictors


def _sizes(fleet: Fleet, most: Most) -> Iterator[tuple[int, int]]:
    """Numbers of workers and of predictors in each that could keep up, the fewest predictors first, then the fewest
    workers: one queue in front of several predictors waits less than several queues."""
    for total in range(1, most.workers * most.predictors + 1):
        workers = next((n for n in range(1, most.workers + 1) if total % n == 0 and total // n <= most.predictors), 0)
        if not workers or not fleet.trip.carries(fleet.busiest_per_s(workers)):
            continue
        if fleet.busiest_per_s(workers) < total // workers * fleet.curve.capacity_per_s:
            yield workers, total // workers


def _smallest(fleet: Fleet, sizes: Sequence[tuple[int, int]], bar: Bar) -> Outcome:
    """The best of the smallest size that meets the target."""
    at, step, below = 0, 1, -1
    best = _best_of(fleet, sizes[0], bar)
    while best.strain > SPARE:
        if at == len(sizes) - 1:
            raise TargetImpossible(out_of_reach(fleet, best))
        below, at, step = at, min(at + step, len(sizes) - 1), 2 * step
        best = _best_of(fleet, sizes[at], bar)
    while at - below > 1:
        middle = (at + below) // 2
        between = _best_of(fleet, sizes[middle], bar)
        if between.strain <= SPARE:
            best, at = between, middle
        else:
            below = middle
    return best


def out_of_reach(fleet: Fleet, best: Outcome) -> str:
    """Why the largest fleet that was allowed does not do, in one line."""
    lane = max(fleet.target.p99_ms, key=lambda lane: best.p99_ms[lane] / fleet.target.p99_ms[lane])
    ours, found_ms = best.candidate, best.p99_ms[lane]
    return (
        f"p99 of {lane} would be {found_ms:.3g} ms with {ours.workers} workers of {ours.predictors} predictors, the most "
        f"that was tried; {fleet.target.p99_ms[lane]:g} ms with a tenth to spare need more (--max-workers, "
        f"--max-predictors), a quicker model, or --p99 {lane}={math.ceil(found_ms / SPARE)}"
    )


def _best_of(fleet: Fleet, size: tuple[int, int], bar: Bar) -> Outcome:
    workers, predictors = size
    grid = [
        Candidate(workers, predictors, max_batch, wait_ms) for max_batch in _coarse(fleet, size) for wait_ms in WAITS_MS
    ]
    return min(_looks(fleet, grid, f"{workers} × {predictors} predictors", bar), key=fleet.rank)


def _looks(fleet: Fleet, candidates: Sequence[Candidate], title: str, bar: Bar) -> list[Outcome]:
    with bar(title, len(candidates)) as on_done:
        looks = []
        for number, candidate in enumerate(candidates):
            looks.append(fleet.look(candidate))
            on_done(number + 1)
    return looks


def _able(fleet: Fleet, size: tuple[int, int]) -> list[int]:
    """Batch sizes with which a fleet of this size keeps up: buckets, as all else is padded to one."""
    return [rows for rows in fleet.curve.batch_us if fleet.keeps_up(Candidate(*size, rows, 0.0))]


def _coarse(fleet: Fleet, size: tuple[int, int]) -> list[int]:
    """A few of the able ones, both ends among them."""
    able = _able(fleet, size)
    if len(able) <= COARSE:
        return able
    return [able[round(number * (len(able) - 1) / (COARSE - 1))] for number in range(COARSE)]


def _tried(fleet: Fleet, like: Candidate) -> list[Outcome]:
    return [outcome for candidate, outcome in fleet.tried.items() if _size(candidate) == _size(like)]


def _around(fleet: Fleet, best: Candidate, bar: Bar) -> list[Outcome]:
    """The neighbours of the best that are not tried yet."""
    able = _able(fleet, _size(best))
    neighbours = {one for pair in pairwise(able) if best.max_batch in pair for one in pair} | {best.max_batch}
    waits_ms = {best.max_wait_ms, best.max_wait_ms / 2, best.max_wait_ms * 2 or 2.0}
    around = [replace(best, max_batch=rows) for rows in sorted(neighbours)]
    around += [replace(best, max_wait_ms=wait_ms) for wait_ms in sorted(waits_ms)]
    return _looks(fleet, [one for one in dict.fromkeys(around) if one not in fleet.tried], "around the best", bar)


def _confirmed(fleet: Fleet, looks: Sequence[Outcome], bar: Bar) -> Outcome:
    """The best that also holds with more states; where none does, the one that comes nearest."""
    seen: list[Outcome] = []
    candidates = [look.candidate for look in sorted(looks, key=fleet.rank) if look.strain <= SPARE][:3]
    with bar("a careful look", len(candidates)) as on_done:
        for candidate in candidates:
            seen.append(fleet.simulated(candidate, CAREFUL * STATES))
            on_done(len(seen))
            if seen[-1].strain <= SPARE:
                on_done(len(candidates))
                break
    return min(seen, key=lambda outcome: outcome.strain)

"""What is recommended, and what is refused with which reason."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tools.tune.build import curve, fleet, no_bar, settings
from tools.tune.bounds import check_possible
from tools.tune.fleet import Candidate
from tools.tune.round_trip import RoundTrip, given
from tools.tune.search import Most, TargetImpossible, as_set, search
from topics.names import LANES


def test_the_smallest_fleet_that_meets_the_target_is_found() -> None:
    """One predictor less does not, with whatever batches."""
    ours = fleet({"high": 30, "normal": 60}, {"high": 50, "normal": 2000})
    found = search(ours, Most(4, 4), no_bar)
    best = found.best.candidate
    assert best.workers * best.predictors == 2
    assert found.best.p99_ms["high"] <= 27 and found.best.p99_ms["normal"] <= 54
    assert {outcome.candidate.workers * outcome.candidate.predictors for outcome in found.sizes} >= {2}
    smaller = [Candidate(1, 1, rows, 5.0) for rows in ours.curve.batch_us]
    assert all(ours.simulated(one).strain > 1 for one in smaller)


def test_what_is_set_stays_where_it_does_not_matter() -> None:
    """An operator changes nothing for nothing."""
    found = search(fleet({"normal": 50}, {"normal": 100}, like=curve(2000, 0)), Most(2, 2), no_bar)
    assert found.best.candidate == Candidate(1, 1, 64, 20.0)
    assert found.now is not None and found.now.strain == pytest.approx(found.best.strain, rel=0.1)


def test_of_equal_batches_the_smallest_with_enough_in_reserve_wins() -> None:
    """Full ones, after a burst, are what the next state waits for."""
    ours = fleet({"normal": 200}, {"normal": 60}, like=curve(20_000, 1000), ours=settings(max_batch=2))
    found = search(ours, Most(1, 1), no_bar)
    assert found.best.candidate.max_batch == 8
    assert {outcome.candidate.max_batch for outcome in found.nearby if outcome.strain < 0.9} >= {8, 64}


def test_bad_settings_are_told_from_good_ones() -> None:
    """Batches of one on a device whose passes are dear fall behind; larger ones do not."""
    ours = fleet({"normal": 60}, {"normal": 300}, like=curve(8000, 100), ours=settings(max_batch=1))
    with pytest.raises(TargetImpossible, match="one worker does 123 states/s at most"):
        as_set(ours, no_bar)
    found = search(ours, Most(1, 1), no_bar)
    assert found.now is None
    assert found.best.candidate.max_batch >= 8 and found.best.strain < 1


def test_settings_in_force_are_looked_at_as_they_are() -> None:
    """With --as-set, without a search."""
    ours = fleet({"normal": 60}, {"normal": 300}, like=curve(8000, 100), ours=settings(max_batch=8, max_wait_ms=7))
    found = as_set(ours, no_bar)
    assert found.best.candidate == Candidate(1, 1, 8, 7.0)
    assert not found.sizes and len(found.by_rate) > 2
    assert [rate for rate, _ in found.by_rate][:4] == [75, 150, 225, 300]


def test_no_worker_is_added_that_leaves_the_busiest_as_it_is() -> None:
    """Of 12 partitions, 7 to 11 workers leave one of them two, as 6 do."""
    ours = fleet({"normal": 18}, {"normal": 2500})
    found = search(ours, Most(12, 1), no_bar)
    assert {outcome.candidate.workers for outcome in found.sizes} <= {1, 2, 3, 4, 6, 12}


@pytest.mark.parametrize(
    ("p99_ms", "rate", "most", "reason"),
    [
        (5, 100, Most(2, 2), "p99 of normal 5 ms is out of reach: a round trip without a model takes 3 ms"),
        (50, 10_000, Most(2, 2), "10,000 states/s are too many for 2 workers of 2 predictors: each does 1,882/s"),
        (50, 500_000, Most(2, 600), "an event loop carries 53,333/s; needs about 10 workers"),
    ],
)
def test_targets_out_of_reach_are_told_before_anything_is_tried(
    p99_ms: float, rate: float, most: Most, reason: str
) -> None:
    """Which bound ends it, and what would be needed."""
    with pytest.raises(TargetImpossible, match=reason):
        check_possible(fleet({"normal": p99_ms}, {"normal": rate}), most)


def test_a_target_that_the_largest_fleet_misses_says_what_it_would_reach() -> None:
    """With the p99 to ask for instead."""
    with pytest.raises(TargetImpossible, match=r"p99 of high would be .* with 1 workers of 1 predictors.* --p99 high="):
        search(fleet({"high": 7}, {"high": 50, "normal": 900}), Most(1, 1), no_bar)


def test_a_lane_without_a_limit_may_not_pile_up() -> None:
    """It would, for ever, although the other lane keeps its limit."""
    ours = fleet({"high": 200}, {"high": 10, "low": 1780})
    with pytest.raises(TargetImpossible, match="states of lanes without a limit would pile up"):
        search(ours, Most(1, 1), no_bar)


def test_a_slow_round_trip_counts_in_the_tail() -> None:
    """Waits and round trips are added state by state, not percentile by percentile."""
    ms = np.where(np.arange(1000) < 980, 2.0, 40.0)
    trip = RoundTrip(dict.fromkeys(LANES, ms), 15, 0, measured=True)
    candidate = Candidate(1, 1, 64, 20.0)
    slow, quick = (fleet({"normal": 60}, {"normal": 100}, trip=each) for each in (trip, given(2.0)))
    assert slow.careful(candidate).p99_ms["normal"] > quick.careful(candidate).p99_ms["normal"] + 30
    assert slow.careful(candidate).p50_ms["normal"] == pytest.approx(quick.careful(candidate).p50_ms["normal"], abs=0.5)

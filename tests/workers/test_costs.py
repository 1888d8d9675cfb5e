"""Costs: what a batch takes is learned quickly, and not from hiccups."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.costs import Costs

SIZES = (1, 8, 32, 64)


def costs(alpha_us: int, beta_us: int) -> Costs:
    """Seeded by a warm-up."""
    return Costs(SIZES, {rows: alpha_us + beta_us * rows for rows in (1, 8, 32, 64, 128, 256)})


def test_the_warm_up_is_enough_to_know_every_size() -> None:
    """No agent meets a worker that knows nothing; a batch is padded, so only its size's bucket counts."""
    ours = costs(1000, 10)
    assert [ours.batch_us(n) for n in (1, 2, 8, 9, 64)] == [1010, 1080, 1080, 1320, 1640]
    assert ours.line() == (pytest.approx(1000), pytest.approx(10))


def test_the_largest_batch_is_padded_to_the_next_bucket() -> None:
    """A max_batch of 50 runs in the bucket of 64, not of 32 or 128."""
    assert Costs((1, 50), {1: 10, 32: 32, 64: 64, 128: 128}).full_us == 64


def test_what_never_ran_lies_on_the_line_through_the_rest() -> None:
    """And before anything ran nothing is known."""
    ours = Costs(SIZES)
    assert ours.full_us == 0 and ours.least_us == 0
    ours.learn(8, 1080)
    ours.learn(32, 1320)
    assert ours.full_us == 1640 and ours.batch_us(1) == 1010 and ours.least_us == 0


def test_three_hiccups_in_a_row_change_nothing() -> None:
    """A busy host is not a slower device."""
    ours = costs(1000, 10)
    for _ in range(7):
        ours.learn(64, 1640)
    for _ in range(3):
        ours.learn(64, 1_000_000)
    assert ours.full_us == 1640


def test_a_slow_first_batch_of_one_does_not_bound_the_others_for_ever() -> None:
    """Under load no batch of one ever runs again: a larger one tells just as well how soon an answer can come."""
    ours = Costs(SIZES, {1: 60_000, 8: 4000, 32: 4000, 64: 4000})
    assert ours.least_us == 4000
    ours = Costs(SIZES, dict.fromkeys(SIZES, 60_000))
    ours.learn(64, 4000)
    assert ours.least_us == 4000


def test_a_device_that_became_slower_or_quicker_is_known_after_four_batches() -> None:
    """Clocks go down, other tenants come and go."""
    ours = costs(1000, 10)
    for took_us in (5000, 500):
        for _ in range(7):
            ours.learn(64, took_us)
        assert ours.full_us == took_us
    for _ in range(4):
        ours.learn(64, 9000)
    assert ours.full_us == 9000


def test_jitter_hardly_moves_it() -> None:
    """Within the jitter itself."""
    ours, chance = costs(1000, 10), random.Random(1)
    for _ in range(200):
        ours.learn(64, round(1640 * chance.uniform(0.9, 1.1)))
        assert abs(ours.full_us - 1640) < 164


def test_a_batch_is_cut_to_what_is_done_in_time() -> None:
    """Where rows are what takes the time."""
    assert [costs(10, 100).rows_within(64, us) for us in (9000, 3300, 900)] == [64, 32, 8]


def test_a_batch_is_not_cut_where_that_helps_nobody_or_makes_rows_dear() -> None:
    """A pass of 100 ms, whatever its size: one row alone would be no quicker and 64 times as dear."""
    assert costs(100_000, 0).rows_within(64, 10_000) == 64
    assert costs(9000, 100).rows_within(64, 9900) == 64, "8 rows would do, at five times the price"


def test_free_are_the_rows_of_padding_and_those_that_a_device_hardly_notices() -> None:
    """Never those that would cost."""
    assert [costs(1000, 100).free_rows(n) for n in (1, 2, 9)] == [1, 8, 32]
    assert costs(10_000, 1).free_rows(2) == 64
    unknown = Costs(SIZES)
    unknown.learn(1, 100)
    assert unknown.free_rows(1) == 1, "a guess is no reason to make a batch larger"


@given(
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 10**9)), max_size=50),
    st.integers(1, 64),
    st.integers(0, 10**9),
)
def test_whatever_was_learned_answers_stay_within_bounds(seen: list[tuple[int, int]], n: int, us: int) -> None:
    """No rows out of nothing, no negative times."""
    ours = Costs(SIZES)
    for rows, took_us in seen:
        ours.learn(rows, took_us)
    assert 1 <= ours.rows_within(n, us) <= n <= ours.free_rows(n) <= 64
    assert ours.batch_us(n) >= 0 and ours.least_us >= 0
    assert min(ours.line()) >= 0

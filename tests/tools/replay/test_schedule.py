"""Due times: absolute, in the recorded order, without drift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.dead.filters import WrongCall
from tools.replay.schedule import Schedule, parse_copies, parse_speed

SPEEDS = st.floats(0.1, 100)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), SPEEDS)
def test_the_millionth_due_time_is_as_exact_as_the_first(gaps_ms: list[int], speed: float) -> None:
    """Rounding never adds up: every due time is within 1 µs of recorded time ÷ speed."""
    schedule, begin_ms = Schedule(speed), 1_760_000_000_000
    for at_ms in np.split(begin_ms + np.cumsum(gaps_ms * 20), 4):
        exact_us = (at_ms - begin_ms - gaps_ms[0]) * 1000 / speed
        assert np.abs(schedule.dues_us(at_ms) - exact_us).max() <= 1


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=100), SPEEDS)
def test_states_whose_times_go_back_keep_their_order(times_ms: list[int], speed: float) -> None:
    """Clocks of agents differ; what was recorded later is never due earlier."""
    schedule = Schedule(speed)
    parts = [part for part in np.array_split(np.array(times_ms), 3) if len(part)]
    dues = [due_us for part in parts for due_us in schedule.dues_us(part).tolist()]
    assert dues == sorted(dues) and dues[0] == 0


def test_a_loop_begins_a_millisecond_behind_the_last_state() -> None:
    """Three loops of 10 ms."""
    schedule, dues = Schedule(2.0), list[int]()
    for _ in range(3):
        dues += schedule.dues_us(np.array([500, 504, 510])).tolist()
        schedule.next_loop()
    assert dues == [0, 2000, 5000, 5500, 7500, 10500, 11000, 13000, 16000]


def test_at_max_everything_is_due_at_once() -> None:
    """The recorded times do not count."""
    schedule = Schedule(None)
    assert schedule.dues_us(np.array([5, 500, 5000])).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("text", "speed"), [("4", 4.0), ("x4", 4.0), ("×0.5", 0.5), ("max", None)])
def test_speeds_are_factors_or_max(text: str, speed: float | None) -> None:
    """With or without the x."""
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["0.01", "101", "fast", "", "-1", "nan"])
def test_other_speeds_are_refused(text: str) -> None:
    """In one line with what was expected."""
    with pytest.raises(WrongCall, match="expected a factor"):
        parse_speed(text)


def test_agents_are_multiplied_by_whole_factors() -> None:
    """x4 or 4, not 1.5."""
    assert (parse_copies("x4"), parse_copies("3")) == (4, 3)
    for text in ("0", "1.5", "x", "20000"):
        with pytest.raises(WrongCall, match="whole factor"):
            parse_copies(text)

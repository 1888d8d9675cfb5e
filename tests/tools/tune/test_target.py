"""Targets as people type them."""

from __future__ import annotations

import pytest

from tools.tune.target import by_lane, make_target
from topics.errors import SettingsError


def test_numbers_by_lane() -> None:
    """Each lane at most once, in any order."""
    assert by_lane("normal=50, high=20.5", "--p99", "ms") == {"normal": 50, "high": 20.5}


@pytest.mark.parametrize("text", ["", "urgent=1", "high", "high=0", "high=-1", "high=x", "high=inf", "high=1,high=2"])
def test_other_texts_are_refused(text: str) -> None:
    """With the flag in the error."""
    with pytest.raises(SettingsError, match="--p99 has"):
        by_lane(text, "--p99", "ms")


def test_a_lane_without_states_has_no_p99() -> None:
    """Nor one with so few that nobody could tell it."""
    with pytest.raises(SettingsError, match="--p99 names high, which has 0 states/s"):
        make_target({"high": 20}, {"normal": 100})
    with pytest.raises(SettingsError, match="high, which has 1 states/s"):
        make_target({"high": 20}, {"normal": 100, "high": 1})


def test_strain_is_that_of_the_worst_lane() -> None:
    """Lanes without a limit do not count."""
    target = make_target({"high": 20, "normal": 50}, {"high": 10, "normal": 10, "low": 10})
    assert target.strain({"high": 10, "normal": 100, "low": 1e9}) == 2
    assert target.total_per_s == 30

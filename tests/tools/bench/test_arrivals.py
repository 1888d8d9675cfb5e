"""The schedule of an open load, and shares of lanes."""

from __future__ import annotations

import numpy as np
import pytest

from tools.bench.arrivals import arrivals, parse_mix, split
from tools.bench.closed import Plan
from topics.errors import SettingsError


def test_uniform_arrivals_are_evenly_spaced() -> None:
    """One every ms at 1,000 a second, the first at once."""
    found = arrivals("uniform", 1000, 2, 7, {"normal": 1}, 1)
    assert len(found) == 2000
    assert np.allclose(np.diff(found.at_s), 0.001)
    assert found.at_s[0] == 0


def test_poisson_arrivals_have_the_rate_and_exponential_gaps() -> None:
    """Standard deviation of the gaps = their mean, and nothing after the end."""
    found = arrivals("poisson", 1000, 60, 512, {"normal": 1}, 3)
    gaps = np.diff(found.at_s)
    assert len(found) == pytest.approx(60_000, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert (gaps >= 0).all()
    assert found.at_s[-1] < 60


def test_the_same_seed_gives_the_same_arrivals() -> None:
    """Both sides of a comparison meet the same load."""
    one, two = (arrivals("poisson", 500, 2, 9, {"high": 1, "low": 1}, 5) for _ in range(2))
    assert (one.at_s == two.at_s).all()
    assert one.lanes == two.lanes


def test_agents_take_turns() -> None:
    """So one agent's states are as far apart as can be."""
    assert arrivals("uniform", 10, 1, 4, {"normal": 1}, 1).agents.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_lanes_come_in_the_shares_of_the_mix() -> None:
    """Shares are relative to their sum; a lane without one gets nothing."""
    lanes = arrivals("uniform", 10_000, 1, 4, {"high": 1, "normal": 3}, 1).lanes
    assert lanes.count("high") == pytest.approx(2500, rel=0.1)
    assert lanes.count("low") == 0


def test_a_mix_is_read_from_text() -> None:
    """As on the command line."""
    assert parse_mix("high=0.1, normal=0.7,low=0.2") == {"high": 0.1, "normal": 0.7, "low": 0.2}


@pytest.mark.parametrize("text", ["urgent=1", "high", "high=x", "high=-1", "high=nan", "high=inf", "", "normal=0"])
def test_a_wrong_mix_is_one_line(text: str) -> None:
    """With what was found and what was expected."""
    with pytest.raises(SettingsError, match="--mix") as caught:
        parse_mix(text)
    assert "\n" not in str(caught.value)


def test_a_split_leaves_nobody_out() -> None:
    """Rounding goes to the largest share."""
    assert split(512, {"high": 0.1, "normal": 0.7, "low": 0.2}) == {"high": 51, "normal": 359, "low": 102}
    assert split(1, {"high": 0.5, "normal": 0.5, "low": 0}) == {"high": 1}


def test_every_agent_is_in_one_group() -> None:
    """Groups are full but the last of each lane."""
    groups = Plan(100, 32, 1, 1, {"high": 0.5, "normal": 0.5}).groups()
    assert [(lane, len(ids)) for lane, ids in groups] == [("high", 32), ("high", 18), ("normal", 32), ("normal", 18)]
    assert len({agent for _, ids in groups for agent in ids}) == 100

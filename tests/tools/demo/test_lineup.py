"""Who plays with whom, and on which lane."""

from __future__ import annotations

import numpy as np
import pytest

from tools.demo.lineup import LARGEST_GROUP, lanes_of, line_up, urgent_rows


@pytest.mark.parametrize("agents", [1, 7, 8, 32, 64, 512, 2000])
def test_every_agent_sits_in_exactly_one_group(agents: int) -> None:
    """Nobody is left out, nobody plays twice, and no group is larger than a batch."""
    groups = line_up(agents)
    assert sorted(number for group in groups for number in group.agents) == list(range(agents))
    assert all(0 < len(group.agents) <= LARGEST_GROUP for group in groups)


def test_an_eighth_plays_in_the_background_in_groups_of_its_own() -> None:
    """Background agents never share a group with others, who would wait for them."""
    groups = line_up(512)
    assert sum(len(group.agents) for group in groups if group.background) == 512 // 8
    assert sum(not group.background for group in groups) > 1, "several groups, so that some play while others wait"


def test_an_agent_about_to_fall_asks_on_high() -> None:
    """Either the angle or the position is enough, in either direction."""
    observations = np.array([[0, 0, 0, 0], [0, 0, -0.05, 0], [1.3, 0, 0, 0], [0, 9, 0, 0]], np.float32)
    urgent = urgent_rows("CartPole-v1", range(4), observations)
    assert lanes_of(urgent) == ["normal", "high", "high", "normal"]


def test_an_unknown_environment_has_a_rule_as_well() -> None:
    """Some agents ask on high whatever the environment shows."""
    urgent = urgent_rows("Whatever-v0", range(64), np.zeros((64, 3, 2)))
    assert urgent.dtype == bool
    assert 0 < urgent.sum() < 64

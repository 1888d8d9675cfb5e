"""Groups of agents: chance comes from the seeds alone."""

from __future__ import annotations

import numpy as np
import pytest

from tools.demo.group import Group
from topics.errors import FleetError
from topics.tensors import TensorSpec

CARTPOLE = TensorSpec("observation", "float32", (4,))
ACTIONS = [np.array([step % 2, (step // 3) % 2]) for step in range(60)]


def _played(numbers: list[int], seed: int = 0) -> Group:
    group = Group("CartPole-v1", numbers, seed, CARTPOLE)
    rows = [0 if number == 3 else 1 for number in numbers]
    for actions in ACTIONS:
        group.step(actions[rows])
    return group


def test_an_agent_plays_the_same_whoever_sits_beside_it() -> None:
    """The proof relies on it: local play groups the agents in another way."""
    together, alone = _played([3, 5]).played(), [_played([3]).played()[0], _played([5]).played()[0]]
    assert together == alone
    assert all(one.returns for one in together), "bad actions end episodes, so resets are compared as well"


def test_other_seeds_and_other_agents_see_other_episodes() -> None:
    """Otherwise the proof would compare one episode many times."""
    first = Group("CartPole-v1", range(4), 0, CARTPOLE).observations
    assert len({row.tobytes() for row in first}) == 4
    assert not np.array_equal(first, Group("CartPole-v1", range(4), 1, CARTPOLE).observations)


def test_another_action_shows_in_the_record_even_if_the_returns_do_not() -> None:
    """CartPole gives 1 a step, so returns alone would hide a flipped action."""
    ours, theirs = (Group("CartPole-v1", [0], 0, CARTPOLE) for _ in range(2))
    ours.step(np.array([0]))
    theirs.step(np.array([1]))
    (our_record,), (their_record,) = ours.played(), theirs.played()
    assert our_record.unfinished == their_record.unfinished == 1.0
    assert our_record.actions_sha256 != their_record.actions_sha256


def test_a_group_that_never_stepped_has_a_record() -> None:
    """Play may end before the first answer."""
    (record,) = Group("CartPole-v1", [0], 0, CARTPOLE).played()
    assert (record.steps, record.returns, record.unfinished) == (0, (), 0.0)


def test_an_environment_that_gymnasium_lacks_is_one_line() -> None:
    """The id comes from the command line."""
    with pytest.raises(FleetError, match=r"^Gymnasium cannot make Nope-v0: .*$"):
        Group("Nope-v0", [0], 0, CARTPOLE)


def test_a_model_for_another_environment_is_refused() -> None:
    """Both shapes are named."""
    with pytest.raises(FleetError, match=r"observations of shape \(4,\), the model takes \(8,\)"):
        Group("CartPole-v1", [0], 0, TensorSpec("observation", "float32", (8,)))

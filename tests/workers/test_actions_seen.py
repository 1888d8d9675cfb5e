"""Which actions the model takes, seen from outside."""

from __future__ import annotations

import numpy as np
import pytest

from workers.actions_seen import EVERY, MOST, ActionsSeen


def looked(seen: ActionsSeen, *batches: np.ndarray) -> ActionsSeen:
    """Each batch where it is looked at."""
    for batch in batches:
        seen.look(batch)
        for _ in range(EVERY - 1):
            seen.look(np.full_like(batch, 1))
    return seen


def test_shares_of_integer_actions_are_those_of_the_first_batch() -> None:
    """No slow start from zero."""
    seen = looked(ActionsSeen(), np.array([0, 0, 1, 2]))
    assert seen.shares == {"0": 0.5, "1": 0.25, "2": 0.25}


def test_another_behaviour_shows_after_some_batches() -> None:
    """And what was before is forgotten."""
    seen = looked(ActionsSeen(), *[np.zeros(64, np.int64)] * 8)
    assert seen.shares == {"0": 1.0}
    looked(seen, *[np.full(64, 3)] * 4)
    assert seen.shares["3"] > 0.6
    looked(seen, *[np.full(64, 3)] * 30)
    assert seen.shares["3"] > 0.999


def test_shares_of_a_steady_mix_add_up_to_one() -> None:
    """Whatever the batches' sizes."""
    rng = np.random.default_rng(1)
    seen = looked(ActionsSeen(), *[rng.integers(0, 4, size) for size in (1, 64, 3, 300, 7)])
    assert sum(seen.shares.values()) == pytest.approx(1)


def test_many_actions_share_the_last_series() -> None:
    """Few series, however large the action space."""
    seen = looked(ActionsSeen(), np.arange(1000))
    assert len(seen.shares) == MOST and seen.shares[str(MOST - 1)] > 0.9


def test_continuous_actions_have_a_mean_and_a_deviation_by_number() -> None:
    """Of the first numbers of an action."""
    rng = np.random.default_rng(1)
    seen = looked(ActionsSeen(), *[rng.normal([1, -2], [0.5, 2], (64, 2)).astype(np.float32) for _ in range(40)])
    assert seen.means == {"0": pytest.approx(1, abs=0.2), "1": pytest.approx(-2, abs=0.5)}
    assert seen.deviations == {"0": pytest.approx(0.5, rel=0.2), "1": pytest.approx(2, rel=0.2)}
    assert not seen.shares


def test_an_empty_batch_is_no_action() -> None:
    """As when every row was at fault."""
    assert looked(ActionsSeen(), np.zeros((0, 2))).means == {}

"""Whatever way a call gives its observations, every state decodes to what its agent sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topics.client.agents import Agent
from topics.client.arguments import per_row, seqs_for
from topics.client.encode import Asked, TurnEncoder, encode_call
from topics.errors import InputError
from topics.records import State
from topics.wire import decode_state, encode_state

NOW_US = 1_700_000_000_000_000
OBSERVATIONS = np.arange(12, dtype=np.float32).reshape(3, 4)


def decoded(observations: Any, asked: Asked = Asked(), seqs: tuple[int, ...] = (5, 6, 7)) -> list[State]:  # noqa: B008
    return [decode_state(value) for value in encode_call(observations, seqs, asked, NOW_US)]


def test_rows_of_an_array_are_tensors() -> None:
    """In the array's own dtype, with the call's time and each agent's step."""
    states = decoded(OBSERVATIONS)
    for row, state in enumerate(states):
        np.testing.assert_array_equal(state.observation, OBSERVATIONS[row])
        assert state.observation.dtype == np.float32
    assert [state.seq for state in states] == [5, 6, 7]
    assert {state.sent_us for state in states} == {NOW_US}


def test_nested_lists_become_an_array() -> None:
    """A vector environment that returns lists is as good."""
    states = decoded(OBSERVATIONS.tolist())
    np.testing.assert_array_equal(states[2].observation, OBSERVATIONS[2])


def test_maps_of_inputs_are_split_by_row() -> None:
    """Dict spaces: every state is a map of its own tensors."""
    images = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
    states = decoded({"camera": images, "speed": [1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(states[1].observation["camera"], images[1])
    assert states[2].observation["speed"] == 3.0


def test_observations_of_different_shapes_travel_one_by_one() -> None:
    """Agents of one fleet may send sequences of different lengths."""
    rows = [np.ones(2, np.float32), np.ones(3, np.float32), np.ones(1, np.float32)]
    assert [len(state.observation) for state in decoded(rows)] == [2, 3, 1]


def test_what_is_shared_and_what_is_per_row() -> None:
    """Kinds, deadlines and episodes may be one for all or a list, in any combination."""
    (a, b, c) = decoded(OBSERVATIONS, Asked("walk", 20, 4, {"temperature": 0.5}))
    assert (a.kind, b.deadline_us, c.episode, a.options) == ("walk", NOW_US + 20_000, 4, {"temperature": 0.5})
    (a, b, c) = decoded(OBSERVATIONS, Asked(["walk", "fall", None], [20, 5.5, None], [4, "x", 6]))
    assert [(s.kind, s.deadline_us, s.episode) for s in (a, b, c)] == [
        ("walk", NOW_US + 20_000, 4),
        ("fall", NOW_US + 5_500, "x"),
        (None, None, 6),
    ]
    np.testing.assert_array_equal(b.observation, OBSERVATIONS[1])
    states = decoded({"x": OBSERVATIONS}, Asked(["walk", "fall", "walk"], 20, [1, 2, 3]))
    assert [(s.kind, s.episode, s.observation["x"][0]) for s in states] == [
        ("walk", 1, 0),
        ("fall", 2, 4),
        ("walk", 3, 8),
    ]


@pytest.mark.parametrize(
    ("observations", "text"),
    [
        (OBSERVATIONS[:2], r"shape \[2, 4\] has 2 rows for 3 agents"),
        ([[1.0, 2.0]], r"1 rows? for 3 agents|has 1 rows for 3 agents"),
        (np.float32(1), "no rows"),
        ({"camera": np.ones((2, 4))}, "camera of shape"),
    ],
)
def test_rows_that_do_not_fit_the_agents_are_refused(observations: Any, text: str) -> None:
    """The text names what was found and how many agents there are."""
    with pytest.raises(ValueError, match=text):
        decoded(observations)


def test_dtypes_that_cannot_travel_are_refused() -> None:
    """Complex numbers have no place on the wire."""
    with pytest.raises(InputError, match="complex128"):
        decoded(np.ones((3, 2), np.complex128))


@pytest.mark.parametrize(
    "observation",
    [
        np.arange(4, dtype=np.float32),
        np.arange(8, dtype=np.float64)[::2],
        np.arange(4, dtype=">f4"),
        np.array(3, np.int16),
        np.zeros((0, 3), np.uint8),
        [1, 2.5, 3],
        {"a": np.ones(3), "b": 2},
        7,
    ],
    ids=str,
)
def test_single_states_have_the_bytes_of_the_wire(observation: Any) -> None:
    """What the turn encoder splices is what `wire.encode_state` writes."""
    encoder = TurnEncoder()
    for seq in (0, 200, 70_000):
        for kind, deadline_us, episode in ((None, None, None), ("k", NOW_US + 5, 3), ("k", NOW_US + 5, "e")):
            state = State(observation, seq, episode, kind, deadline_us, NOW_US)
            assert encoder.value(state) == encode_state(state)


def test_arguments_are_one_for_all_or_one_per_row() -> None:
    """Lists, tuples and arrays are per row; strings and maps are not taken apart."""
    assert per_row("high", 4, "lane") == "high"
    assert per_row({"tier": "boss"}, 1, "attributes") == {"tier": "boss"}
    assert per_row(np.array([1, 2]), 2, "episode") == [1, 2]
    assert type(per_row(np.array([1, 2]), 2, "episode")[0]) is int
    assert per_row(("a", None), 2, "kind") == ["a", None]
    with pytest.raises(ValueError, match="lane has 2 entries for 3 agents"):
        per_row(["high", "low"], 3, "lane")


def test_steps_are_counted_per_agent() -> None:
    """An agent that appears twice in one call takes two steps; a given step moves the counter."""
    a, b = Agent("a", b"a", 0, 0), Agent("b", b"b", 0, 0)
    assert seqs_for([a, b, a], None) == [0, 0, 1]
    assert seqs_for([a, b], [10, 20]) == [10, 20]
    assert seqs_for([a, b], None) == [11, 21]

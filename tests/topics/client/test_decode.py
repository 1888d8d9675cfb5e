"""The columnar reader gives what decoding every record by itself gives, for any mixture of answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client import decode
from topics.client.decode import ActionReader
from topics.client.stats import ClientStats
from topics.columns import ActionColumns
from topics.records import OUTCOMES, Action, Timing
from topics.tensors import Array, TensorSpec
from topics.wire import decode_action, encode_action


def reader() -> ActionReader:
    return ActionReader(ClientStats())


def batch(actions: Array, model: str = "m-1", extras: dict[str, Array] | None = None, **fields: Any) -> list[bytes]:
    """Answers as a worker writes them."""
    outputs = {"action": actions} | (extras or {})
    specs = [TensorSpec(name, array.dtype.name, array.shape[1:]) for name, array in outputs.items()]
    size = len(actions)
    waits_us = fields.get("waits_us", [1234] * size)
    seqs = fields.get("seqs", range(size))
    return ActionColumns(specs, model, "w1").encode(["normal"] * size, waits_us, [1] * size, seqs, 500, outputs)


def forbid_single(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """More than `allowed` records decoded one by one fail the test."""
    left = [allowed]

    def counting(value: bytes) -> Action:
        left[0] -= 1
        assert left[0] >= 0, "decoded one by one"
        return decode_action(value)

    monkeypatch.setattr(decode, "decode_action", counting)


@pytest.mark.parametrize(
    "actions",
    [
        np.arange(50),
        np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32),
        np.random.default_rng(0).normal(size=(50, 8, 2)),
        np.random.default_rng(0).integers(0, 2, (50, 4)).astype(bool),
        np.empty((50, 0), np.float32),
    ],
    ids=["discrete", "continuous", "chunk of steps", "bool", "nothing"],
)
def test_a_batch_is_read_in_columns(actions: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dtype, shape and values survive, rows stay in order, and only the first answer is decoded by itself."""
    forbid_single(monkeypatch, 1)
    found = reader().read(
        batch(actions, waits_us=[10**k % 70001 for k in range(50)], seqs=[7**k for k in range(22)] * 2 + [0] * 6)
    )
    assert found.actions.dtype == actions.dtype
    np.testing.assert_array_equal(found.actions, actions)
    assert (found.outcomes == "action").all()


def test_layouts_are_remembered_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call decodes nothing by itself."""
    forbid_single(monkeypatch, 1)
    ours = reader()
    ours.read(batch(np.arange(3)))
    np.testing.assert_array_equal(ours.read(batch(np.arange(70000, 70005))).actions, np.arange(70000, 70005))


def test_a_policy_and_its_candidate_are_both_read_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models whose answers differ in shape: each has its layout."""
    forbid_single(monkeypatch, 2)
    ours = reader()
    one, two = batch(np.arange(4), "m-1"), batch(np.arange(4), "m-2", {"value": np.ones((4, 1), np.float32)})
    for _ in range(3):
        mixed = [value for pair in zip(one, two, strict=True) for value in pair]
        np.testing.assert_array_equal(ours.read(mixed).actions, [0, 0, 1, 1, 2, 2, 3, 3])


def test_extras_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model outputs behind the action do not disturb it."""
    forbid_single(monkeypatch, 1)
    actions = np.arange(20, dtype=np.float32).reshape(10, 2)
    extras = {"logits": np.random.default_rng(1).normal(size=(10, 4)), "value": np.arange(10)}
    np.testing.assert_array_equal(reader().read(batch(actions, extras=extras)).actions, actions)


def test_rows_without_an_answer_or_without_an_action_are_zero() -> None:
    """`outcomes` tells them apart; the other rows have the model's dtype and shape."""
    answers = batch(np.arange(5, 10))
    refusal = encode_action(Action("expired", 3, reason="late"))
    values = [answers[0], None, refusal, answers[3], None]
    found = reader().read(values)
    assert found.outcomes.tolist() == ["action", "", "expired", "action", ""]
    assert found.actions.tolist() == [5, 0, 0, 8, 0]
    assert found.records[2].reason == "late"


def test_a_call_without_any_action_looks_like_the_last_one() -> None:
    """Loops that index `actions` do not break when a whole call expires."""
    ours = reader()
    ours.read(batch(np.ones((2, 3), np.float32)))
    expired = encode_action(Action("expired", 3, reason="late"))
    found = ours.read([expired, None])
    assert (found.actions.shape, found.actions.dtype) == ((2, 3), np.float32)


def test_before_any_action_there_is_none() -> None:
    """Nothing is known of their shape yet."""
    assert reader().read([None, None]).actions.tolist() == [None, None]


def test_actions_of_different_shapes_stay_apart() -> None:
    """Chunks with their own horizon are an object array, each row as it came."""
    long, short = batch(np.ones((1, 8, 2)))[0], batch(np.zeros((1, 4, 2)))[0]
    found = reader().read([long, short, None])
    assert found.actions.dtype == object
    assert [getattr(action, "shape", None) for action in found.actions] == [(8, 2), (4, 2), None]


def test_plain_actions_are_read() -> None:
    """Agents that send plain numbers are answered with plain numbers."""
    values = [encode_action(Action("action", n, [n, n + 1])) for n in range(3)]
    found = reader().read(values)
    assert found.actions.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert found.action(1) == [1, 2]


@pytest.mark.parametrize("action", [{"left": 1}, "up", None, [[1], [2, 3]]])
def test_actions_that_are_no_numbers_are_handed_through(action: Any) -> None:
    """A map, a word, nothing, a ragged list."""
    found = reader().read([encode_action(Action("action", 0, action))] * 2)
    assert found.action(0) == action
    assert found.actions.tolist() == [action] * 2


def test_bytes_that_are_no_answer_fail_alone() -> None:
    """Its neighbours are read; the reason says what was found."""
    stats = ClientStats()
    answers = batch(np.arange(3))
    found = ActionReader(stats).read([answers[0], b"\xc1nonsense", answers[2], b""])
    assert found.outcomes.tolist() == ["action", "failed", "action", "failed"]
    assert found.actions.tolist() == [0, 0, 2, 0]
    assert "cannot be read" in str(found.records[1].reason)
    assert stats.unreadable == 2


def test_a_tensor_that_contains_the_mark_is_no_match() -> None:
    """The action's own bytes may look like a layout of another model; head and place must fit too."""
    ours = reader()
    ours.read(batch(np.arange(2)))
    mark = ours._layouts[0].mark
    raw = np.frombuffer(mark + bytes(64), np.uint8)[None]
    np.testing.assert_array_equal(ours.read(batch(raw)).actions, raw)


def test_actions_may_be_changed_in_place() -> None:
    """Wrappers that clip do so."""
    found = reader().read(batch(np.ones((4, 2), np.float32)))
    found.actions *= 2
    assert found.actions.max() == 2


answers = st.one_of(
    st.none(),
    st.builds(
        lambda outcome, seq: encode_action(Action(outcome, seq, reason="why")),
        st.sampled_from(OUTCOMES[1:]),
        st.integers(0, 2**40),
    ),
    st.builds(
        lambda seq, n, wait_us, extras: encode_action(
            Action("action", seq, np.full((2,), n, np.int32), timing=Timing(wait_us, 5, 6), extras=extras)
        ),
        st.integers(0, 2**40),
        st.integers(-5, 5),
        st.integers(0, 2**20),
        st.sampled_from([{}, {"value": np.ones(3)}, {"value": 1.5}]),
    ),
    st.binary(max_size=40),
)


@given(st.lists(st.lists(answers, max_size=12), min_size=1, max_size=4))
def test_columns_are_what_single_records_are(calls: list[list[bytes | None]]) -> None:
    """For any sequence of calls, every row's outcome and action equal those of the record by itself."""
    ours = reader()
    for values in calls:
        found = ours.read(values)
        for row, value in enumerate(values):
            if value is None:
                assert found.outcomes[row] == ""
                continue
            try:
                record = decode_action(value)
            except Exception:
                assert found.outcomes[row] == "failed"
                continue
            assert found.outcomes[row] == record.outcome
            if record.outcome == "action":
                np.testing.assert_array_equal(found.action(row), record.action)

"""Columns write the very bytes that the wire writes one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from topics.columns import ActionColumns, encode_states
from topics.records import Action, State, Timing
from topics.tensors import TensorSpec
from topics.wire import encode_action, encode_state


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=4)),
    st.integers(0, 2**40),
    st.none() | st.just("k"),
)
def test_states_of_one_call_have_the_bytes_of_single_ones(rows: Any, first: int, kind: str | None) -> None:
    """For every shape, each row's bytes equal `encode_state` of that row."""
    shared = State(None, sent_us=5, deadline_us=6, kind=kind, options={"a": 1})
    seqs = list(range(first, first + len(rows)))
    expected = [encode_state(State(row, seq, None, kind, 6, 5, {"a": 1})) for row, seq in zip(rows, seqs, strict=True)]
    assert encode_states(rows, seqs, shared) == expected


@pytest.mark.parametrize("extras", [(), (TensorSpec("logits", "float32", (2,)), TensorSpec("value", "float32", ()))])
def test_actions_of_a_batch_have_the_bytes_of_single_ones(extras: tuple[TensorSpec, ...]) -> None:
    """With and without extras, rows of different lanes, waits and step counters."""
    outputs = (TensorSpec("action", "int64", ()), *extras)
    columns = ActionColumns(outputs, "m v1", "w-1")
    values = {spec.name: np.arange(3 * spec.count, dtype=spec.numpy).reshape(3, *spec.shape) for spec in outputs}
    encoded = columns.encode(["high", "normal", "high"], [5, 70_000, 5], [1, 2, 1], [0, 300, 2**33], 80, values)
    for row, (lane, wait_us, seq) in enumerate([("high", 5, 0), ("normal", 70_000, 300), ("high", 5, 2**33)]):
        single = Action(
            "action",
            seq,
            values["action"][row],
            model="m v1",
            lane=lane,
            worker="w-1",
            timing=Timing(wait_us, 80, 3),
            extras={spec.name: values[spec.name][row] for spec in extras},
            epoch=2 if lane == "normal" else 1,
        )
        assert encoded[row] == encode_action(single)

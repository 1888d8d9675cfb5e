"""The state reader gives what `decode_state` gives, for every record, whatever it has learned before."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.columns import encode_states
from topics.errors import DecodeError
from topics.observations import Observations
from topics.records import State
from topics.state_reader import MAX_HEADS, StateReader
from topics.tensors import TensorSpec
from topics.wire import decode_state

SPEC = TensorSpec("observation", "float32", (4,))
SEQS = st.sampled_from([0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1, 0xA3736571])


def plainly(value: bytes) -> State | None:
    with suppress(DecodeError):
        return decode_state(value, ext_hook=Observations([SPEC]).ext_hook)
    return None


def read(reader: StateReader, value: bytes) -> State | None:
    with suppress(DecodeError):
        return reader.read(value)
    return None


@given(
    st.lists(SEQS, min_size=3, max_size=8),
    st.none() | st.integers(0, 2**62),
    st.none() | st.sampled_from(["k", "\u00a3seq", "seq"]),
    st.sampled_from([{}, {"a": 1}, {"seq": 3}]),
)
def test_records_of_one_call_are_read_as_they_were_sent(
    seqs: list[int], deadline_us: int | None, kind: str | None, options: dict[str, Any]
) -> None:
    """All lengths of `seq`, before and after the head is known."""
    rows = np.arange(4 * len(seqs), dtype=np.float32).reshape(-1, 4)
    reader = StateReader([SPEC])
    shared = State(None, sent_us=5, deadline_us=deadline_us, kind=kind, options=options)
    for value in encode_states(rows, seqs, shared):
        assert read(reader, value) == plainly(value)
    assert len(reader._heads) == 1 or 0xA3736571 in seqs  # which has the bytes of the key in it


@settings(max_examples=400)
@given(st.data())
def test_whatever_was_learned_any_record_is_read_as_without_it(data: Any) -> None:
    """Records damaged anywhere, in any order with good ones: the same state, or refused in both ways."""
    rows = np.zeros((6, 4), np.float32)
    good = encode_states(rows, range(6), State(None, sent_us=9, kind=data.draw(st.sampled_from(["a", "bb"]))))
    reader = StateReader([SPEC])
    for _ in range(data.draw(st.integers(1, 12))):
        value = bytearray(data.draw(st.sampled_from(good)))
        for _ in range(data.draw(st.integers(0, 2))):
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        assert read(reader, bytes(value)) == plainly(bytes(value))


def test_a_key_inside_a_string_is_not_taken_for_the_key() -> None:
    """A record whose last string looks like `seq` and an observation is decoded in full, every time."""
    tail = msgpack.packb("observation") + SPEC.ext_prefix
    fake = b"\xa3seq\x05" + tail + bytes(16)
    head = msgpack.packb({"v": 1, "observation": [1.0, 2.0, 3.0, 4.0]})
    value = b"\x83" + head[1:] + msgpack.packb("note") + b"\xc4" + bytes([len(fake)]) + fake
    reader = StateReader([SPEC])
    for _ in range(4):
        state = reader.read(value)
        assert state == plainly(value)
        assert state.observation == [1.0, 2.0, 3.0, 4.0] and state.seq == 0
    assert not reader._heads


def test_memory_is_bounded_by_the_number_of_heads() -> None:
    """A client with a new head for every call does not grow the table without end."""
    reader = StateReader([SPEC])
    for sent_us in range(3 * MAX_HEADS):
        for value in encode_states(np.zeros((2, 4), np.float32), [1, 2], State(None, sent_us=sent_us)):
            reader.read(value)
    assert len(reader._heads) <= MAX_HEADS


@pytest.mark.parametrize("dtype", ["bool", "float64"])
def test_models_with_other_inputs_are_read_too(dtype: str) -> None:
    """Bools are normalised, so they never take the short way."""
    spec = TensorSpec("observation", dtype, (2,))
    reader = StateReader([spec])
    rows = np.array([[0, 1], [1, 1], [1, 0]], spec.numpy)
    for value, row in zip(encode_states(rows, range(3), State(None)), rows, strict=True):
        (found,) = reader.observations.rows(reader.read(value).observation)
        assert bytes(memoryview(found).cast("B")) == row.tobytes()

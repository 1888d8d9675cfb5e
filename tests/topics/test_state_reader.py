"""States that are read together are those that `decode_state` gives, for every record, whatever was learned before."""

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
from topics.state_reader import ABSENT, MAX_LAYOUTS, MAX_LENGTHS, MIN_ALIKE, StateReader
from topics.tensors import TensorSpec
from topics.wire import decode_state, encode_state

SPEC = TensorSpec("observation", "float32", (4,))
ROW = np.arange(4, dtype=np.float32)
WHOLE = st.sampled_from([0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**61, 2**62, 2**63, 2**64 - 1])


def plainly(value: bytes) -> State | None:
    with suppress(DecodeError):
        return decode_state(value, ext_hook=Observations([SPEC]).ext_hook)
    return None


def assert_read_alike(reader: StateReader, values: list[bytes]) -> int:
    """Whatever was read together equals what decoding gives; how many that was."""
    columns = reader.read_alike(values)
    numbers = zip(columns.seq.tolist(), columns.sent_us.tolist(), columns.deadline_us.tolist(), strict=True)
    for value, row, (seq, sent_us, deadline_us) in zip(values, columns.rows, numbers, strict=True):
        if row is not None:
            state = plainly(value)
            assert state is not None
            assert (row, seq) == (state.observation, state.seq)
            assert (sent_us, deadline_us) == tuple(
                ABSENT if us is None else us for us in (state.sent_us, state.deadline_us)
            )
    return sum(row is not None for row in columns.rows)


STATES = st.builds(
    State,
    observation=st.just(ROW) | st.just([1.0, 2.0, 3.0, 4.0]) | st.just(np.zeros(3, np.float32)),
    seq=WHOLE,
    episode=st.none() | st.integers(-(2**40), 2**40) | st.sampled_from(["a", "b"]),
    kind=st.none() | st.sampled_from(["k", "x"]),
    deadline_us=st.none() | WHOLE | st.just(-5),
    sent_us=st.none() | WHOLE,
    options=st.sampled_from([{}, {"a": 1}, {"seq": 3}]),
)


@given(st.lists(STATES, min_size=MIN_ALIKE, max_size=40))
def test_states_of_all_kinds_side_by_side_are_read_as_they_were_sent(states: list[State]) -> None:
    """Numbers of every size, fields there or not, unusual observations among usual ones; read twice, as the second
    poll meets what the first has taught."""
    reader = StateReader([SPEC])
    values = [encode_state(state) for state in states]
    assert_read_alike(reader, values)
    assert_read_alike(reader, values)


@settings(max_examples=300)
@given(st.data())
def test_whatever_was_learned_any_record_is_read_as_without_it(data: Any) -> None:
    """Records damaged anywhere, in any order with good ones: the same state, or left to be decoded alone."""
    rows = np.zeros((MIN_ALIKE, 4), np.float32)
    kind = data.draw(st.sampled_from(["a", "bb"]))
    good = encode_states(rows, range(MIN_ALIKE), State(None, sent_us=2**50, deadline_us=2**51, kind=kind))
    reader = StateReader([SPEC])
    for _ in range(3):
        values = [bytearray(value) for value in good]
        for _ in range(data.draw(st.integers(0, 6))):
            value = data.draw(st.sampled_from(values))
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        assert_read_alike(reader, data.draw(st.permutations([bytes(value) for value in values])))


def test_the_usual_states_of_many_clients_need_no_decoding() -> None:
    """Different times, deadlines and counters, one kind: the first is decoded, all are read together."""
    reader = StateReader([SPEC])
    values = [
        encode_state(State(ROW + n, seq=200 + n % 50, kind="walk", sent_us=2**50 + n, deadline_us=2**50 + 7 * n))
        for n in range(64)
    ]
    assert assert_read_alike(reader, values) == 64


def test_a_bad_one_in_front_leaves_the_others_together() -> None:
    """The first value teaches nothing, so the next is asked."""
    good = encode_states(np.zeros((20, 4), np.float32), range(20), State(None))
    bad = good[0][:-1] + b"\xff"
    bad = b"\xc1" + bad[1:]
    assert assert_read_alike(StateReader([SPEC]), [bad, *good]) == 20


def test_a_key_inside_a_string_is_not_taken_for_the_key() -> None:
    """Where a field lies is told by MessagePack itself, not by what the bytes look like."""
    fake = b"\xa3seq\x05" + msgpack.packb("observation") + SPEC.ext_prefix + bytes(16)
    plain = msgpack.packb({"v": 1, "observation": [1.0, 2.0, 3.0, 4.0]})
    value = b"\x83" + plain[1:] + msgpack.packb("note") + b"\xc4" + bytes([len(fake)]) + fake
    assert assert_read_alike(StateReader([SPEC]), [value] * MIN_ALIKE) == 0


def test_a_field_that_comes_twice_is_decoded_alone() -> None:
    """MessagePack takes the last of both; a layout would have to know which."""
    once = encode_state(State(ROW, seq=3))
    twice = bytes([once[0] + 1]) + msgpack.packb("seq") + b"\x09" + once[1:]
    assert plainly(twice) is not None
    assert assert_read_alike(StateReader([SPEC]), [twice] * MIN_ALIKE) == 0


def test_memory_is_bounded_whatever_kinds_of_states_come() -> None:
    """Ever new kinds and lengths do not grow the table without end."""
    reader = StateReader([SPEC])
    for n in range(3 * MAX_LENGTHS):
        for letter in "abcdefg":
            assert_read_alike(reader, [encode_state(State(ROW, kind=letter * (n + 1)))] * MIN_ALIKE)
    assert len(reader._layouts) <= MAX_LENGTHS
    assert max(map(len, reader._layouts.values())) <= MAX_LAYOUTS


@pytest.mark.parametrize("dtype", ["bool", "float64"])
def test_models_with_other_inputs_are_read_too(dtype: str) -> None:
    """Bools are normalised, so they never take the short way."""
    spec = TensorSpec("observation", dtype, (2,))
    reader = StateReader([spec])
    rows = np.array([[0, 1], [1, 1], [1, 0]] * 4, spec.numpy)
    values = encode_states(rows, range(12), State(None))
    assert sum(row is not None for row in reader.read_alike(values).rows) == (0 if dtype == "bool" else 12)
    for value, row in zip(values, rows, strict=True):
        (found,) = reader.observations.rows(reader.read(value).observation)
        assert bytes(memoryview(found).cast("B")) == row.tobytes()

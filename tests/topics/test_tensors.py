"""Tensors: zero-copy views, other clients' arrays, and conversions that lose nothing but precision."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import DecodeError, InputError
from topics.observations import Observations, is_plain
from topics.records import State
from topics.tensors import TensorSpec, from_ext, from_map, to_ext, to_row
from topics.wire import decode_state, encode_state

SPEC = TensorSpec("observation", "float32", (4,))


def test_reading_a_tensor_copies_nothing() -> None:
    """The array is a view of the received bytes."""
    data = to_ext(np.arange(4, dtype=np.float32)).data
    array = from_ext(data)
    assert not array.flags.owndata and not array.flags.writeable
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))


def test_the_usual_observation_stays_a_view_until_the_batch() -> None:
    """A tensor in the model's own dtype and shape never becomes an array of its own."""
    observations = Observations([SPEC])
    value = encode_state(State(np.arange(4, dtype=np.float32)))
    state = decode_state(value, ext_hook=observations.ext_hook)
    assert state.observation == (np.arange(4, dtype=np.float32).tobytes(),)
    batch = observations.collate([observations.rows(state.observation)] * 3)
    np.testing.assert_array_equal(batch["observation"], np.tile(np.arange(4, dtype=np.float32), (3, 1)))


def test_a_large_observation_is_not_copied_on_the_way_to_the_batch() -> None:
    """An image stays a view of its record."""
    observations = Observations([TensorSpec("image", "uint8", (64, 64, 3))])
    state = decode_state(encode_state(State(np.zeros((64, 64, 3), np.uint8))), ext_hook=observations.ext_hook)
    (row,) = observations.rows(state.observation)
    assert type(row) is memoryview and len(row) == 64 * 64 * 3


FOREIGN: dict[str, Any] = {
    "numbers": [1, 2.5, 3, 4],
    "msgpack-numpy, byte keys": {
        b"nd": True,
        b"type": "<f4",
        b"kind": b"",
        b"shape": (4,),
        b"data": np.array([1, 2.5, 3, 4], "<f4").tobytes(),
    },
    "msgpack-numpy, string keys": {
        "nd": True,
        "type": "<f8",
        "shape": [4],
        "data": np.array([1, 2.5, 3, 4]).tobytes(),
    },
    "__ndarray__": {
        "__ndarray__": True,
        "dtype": ">f4",
        "shape": [4],
        "data": np.array([1, 2.5, 3, 4], ">f4").tobytes(),
    },
    "dtype, shape, data": {"dtype": "float64", "shape": [4], "data": np.array([1, 2.5, 3, 4]).tobytes()},
    "float64 tensor": np.array([1, 2.5, 3, 4]),
    "big-endian array": np.array([1, 2.5, 3, 4], ">f4"),
    "bfloat16 tensor": np.array([1, 2.5, 3, 4], ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_clients_arrays_are_understood(name: str) -> None:
    """Robot and game clients speak msgpack-numpy, maps and plain lists."""
    row = to_row(FOREIGN[name], SPEC)
    assert row.dtype == np.float32
    np.testing.assert_array_equal(row, np.array([1, 2.5, 3, 4], np.float32))


REFUSED: dict[str, tuple[Any, str]] = {
    "wrong shape": (np.zeros(5, np.float32), r"observation has shape \[5\], expected \[4\]"),
    "ragged": ([[1], [1, 2]], "not a regular list"),
    "text": ("abcd", "is a str"),
    "texts": (["a", "b", "c", "d"], "other than numbers"),
    "nothing": (None, "is a NoneType"),
    "an unknown map": ({"x": 1}, "is a map with"),
    "a huge number": ([2**70, 0, 0, 0], "other than numbers"),
    "a number among texts": ([1, 2, "c", 4], "other than numbers"),
    "bytes": ([[b"a"], [b""]], "other than numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_named(name: str) -> None:
    """The line says what was found and what the model takes."""
    found, says = REFUSED[name]
    with pytest.raises(InputError, match=says):
        to_row(found, SPEC)


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [2**64 - 1, 0]])
def test_a_shape_that_no_array_has_is_refused(shape: list[int]) -> None:
    """It holds no numbers, so no bytes are missing; numpy cannot make it all the same."""
    with pytest.raises(DecodeError, match="larger than any array"):
        to_row({"dtype": "float32", "shape": shape, "data": b""}, SPEC)


def test_floats_are_never_cut_to_integers() -> None:
    """Only precision may be lost, not meaning."""
    with pytest.raises(InputError, match="dtype float32, expected uint8"):
        to_row(np.zeros(2, np.float32), TensorSpec("image", "uint8", (2,)))


@pytest.mark.parametrize("value", [[256, 0], [-1, 0], np.array([300, 1], np.int64)])
def test_integers_out_of_range_never_wrap(value: Any) -> None:
    """300 is not 44."""
    with pytest.raises(InputError, match="outside uint8"):
        to_row(value, TensorSpec("image", "uint8", (2,)))


def test_bools_on_the_wire_are_zero_or_one() -> None:
    """A byte of 7 in a bool tensor is undefined behaviour further on, so it is normalised."""
    array = np.frombuffer(bytes([0, 7]), np.bool_)
    row = to_row(array, TensorSpec("mask", "bool", (2,)))
    assert row.tobytes() == b"\x00\x01"


@given(
    st.dictionaries(
        st.sampled_from(["nd", "dtype", "type", "shape", "data", "__ndarray__"]),
        st.one_of(
            st.none(),
            st.binary(max_size=16),
            st.text(max_size=9),
            st.lists(st.integers(-1, 2**40), max_size=9),
            st.booleans(),
        ),
    )
)
def test_hostile_maps_raise_decode_error_only(found: dict[str, Any]) -> None:
    """Maps that look like arrays are read, refused, or left alone."""
    with suppress(DecodeError):
        from_map(found)


def test_several_inputs_come_by_name() -> None:
    """A model with two inputs takes a map of tensors and names the one that is missing."""
    observations = Observations([SPEC, TensorSpec("goal", "float32", (2,))])
    rows = observations.rows({"observation": [1, 2, 3, 4], "goal": np.zeros(2, np.float32)})
    assert [row.nbytes for row in rows] == [16, 8]
    with pytest.raises(InputError, match="no input 'goal'"):
        observations.rows({"observation": [1, 2, 3, 4]})


def test_plain_speakers_are_recognised() -> None:
    """Who sends lists is answered in lists."""
    assert is_plain([1, 2]) and is_plain({"a": [1.0]}) and is_plain(3)
    assert not is_plain(np.zeros(1)) and not is_plain(FOREIGN["dtype, shape, data"])

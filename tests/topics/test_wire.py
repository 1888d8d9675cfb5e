"""Wire version 1: what is written can be read, golden bytes never change, and hostile bytes raise DecodeError only."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from topics.errors import DecodeError
from topics.records import OUTCOMES, Action, Origin, State, Timing
from topics.tensors import DTYPES, to_ext
from topics.wire import Limits, decode_action, decode_state, encode_action, encode_state

GOLDEN = Path(__file__).parent / "golden"

STATES = {
    "state_v1_tensor": State(np.array([0.5, -1.0, 2.0, 0.25], np.float32), seq=7, sent_us=1_764_539_000_000_000),
    "state_v1_full": State(
        {"camera": np.arange(12, dtype=np.uint8).reshape(2, 2, 3), "speed": np.float64(1.5)},
        seq=300,
        episode="e-1",
        kind="urgent",
        deadline_us=1_764_539_000_020_000,
        sent_us=1_764_539_000_000_000,
        options={"temperature": 0.5},
    ),
    "state_v1_plain": State([0.5, -1.0, 2, 0], seq=0),
}
ACTIONS = {
    "action_v1_tensor": Action(
        "action",
        7,
        np.int64(1),
        model="cartpole v1",
        lane="high",
        worker="w-1",
        timing=Timing(120, 80, 64),
        extras={"logits": np.array([0.5, 1.5], np.float32)},
    ),
    "action_v1_epoch": Action("rejected", None, reason="bad", model="m v1", lane="high", worker="w-1", epoch=3),
    "action_v1_expired": Action("expired", 3, reason="deadline passed", model="m v1", lane="low", worker="w-1"),
    "action_v1_fallback": Action(
        "expired",
        3,
        np.array([0.5, -1.0], np.float32),
        reason="deadline passes",
        model="m v1",
        lane="low",
        worker="w-1",
    ),
    "action_v1_origin": Action("action", 0, 1, lane="normal", origin=Origin("f.states.normal", 3, 41)),
}


@pytest.mark.parametrize("name", STATES)
def test_golden_states_keep_their_bytes(name: str) -> None:
    """Bytes written by any earlier version stay what this version writes and reads."""
    golden = (GOLDEN / f"{name}.msgpack").read_bytes()
    assert encode_state(STATES[name]) == golden
    assert_same(decode_state(golden), STATES[name])


@pytest.mark.parametrize("name", ACTIONS)
def test_golden_actions_keep_their_bytes(name: str) -> None:
    """Bytes written by any earlier version stay what this version writes and reads."""
    golden = (GOLDEN / f"{name}.msgpack").read_bytes()
    assert encode_action(ACTIONS[name]) == golden
    assert_same(decode_action(golden), ACTIONS[name])


def assert_same(found: Any, expected: Any) -> None:
    for name in expected.__slots__:
        np.testing.assert_equal(getattr(found, name), getattr(expected, name))


arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: hnp.arrays(
        np.dtype("float32") if name == "bfloat16" else np.dtype(name),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0),
    ).map(lambda array: array.astype(DTYPES[name]))
)
micros = st.integers(0, 2**62)


@given(arrays, st.integers(0, 2**63 - 1), st.none() | micros, st.none() | st.text(max_size=50))
def test_a_state_comes_back_as_it_was_sent(array: Any, seq: int, deadline_us: int | None, kind: str | None) -> None:
    """Every dtype and shape, empty ones too, survives the round trip bit by bit."""
    state = decode_state(encode_state(State(array, seq=seq, deadline_us=deadline_us, kind=kind)))
    assert (state.seq, state.deadline_us, state.kind) == (seq, deadline_us, kind)
    assert state.observation.dtype == array.dtype and state.observation.shape == array.shape
    assert state.observation.tobytes() == array.tobytes()


@given(arrays, st.sampled_from(OUTCOMES), st.none() | st.integers(0, 2**40))
def test_an_action_comes_back_as_it_was_sent(array: Any, outcome: Any, seq: int | None) -> None:
    """All outcomes, tensors and extras survive the round trip."""
    action = Action(outcome, seq, array if outcome == "action" else None, extras={"value": array})
    found = decode_action(encode_action(action))
    assert (found.outcome, found.seq) == (outcome, seq)
    assert found.extras["value"].dtype == array.dtype and found.extras["value"].tobytes() == array.tobytes()  # NaN, too


@settings(max_examples=500)
@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_decode_error(value: bytes) -> None:
    """Whatever bytes arrive, decoding either gives a record or raises DecodeError."""
    for decode in (decode_state, decode_action):
        with suppress(DecodeError):
            decode(value)


@settings(max_examples=500)
@given(st.sampled_from(sorted(STATES | ACTIONS)), st.data())
def test_damaged_records_raise_nothing_but_decode_error(name: str, data: Any) -> None:
    """Real records with bytes changed, cut or repeated are refused cleanly or read as something well-formed."""
    value = bytearray((GOLDEN / f"{name}.msgpack").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    for decode in (decode_state, decode_action):
        for candidate in (bytes(value), cut):
            with suppress(DecodeError):
                decode(candidate)


trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
fields = st.dictionaries(
    st.sampled_from(
        ["observation", "seq", "episode", "kind", "deadline_us", "sent_us", "options"]
        + ["outcome", "action", "timing", "origin", "extras"]
    ),
    trees,
)


@given(fields)
def test_well_formed_maps_with_wrong_fields_raise_nothing_but_decode_error(found: dict[str, Any]) -> None:
    """MessagePack that is fine, fields that are not."""
    value = msgpack.packb({"v": 1, **found})
    for decode in (decode_state, decode_action):
        with suppress(DecodeError):
            decode(value)


CLAIMS = {
    "a string of 100 MiB": b"\xdb\x06\x40\x00\x00",
    "binary of 100 MiB": b"\xc6\x06\x40\x00\x00",
    "a list of 100 Mi entries": b"\xdd\x06\x40\x00\x00",
    "a map of 100 Mi entries": b"\xdf\x06\x40\x00\x00",
    "a tensor of 100 MiB": b"\xc9\x06\x40\x00\x00\x01",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_that_the_bytes_do_not_keep_is_refused(claim: str) -> None:
    """Twenty bytes that claim a hundred MiB are refused before anything is allocated."""
    value = b"\x82\xa1v\x01\xabobservation" + CLAIMS[claim]
    with pytest.raises(DecodeError):
        decode_state(value)


def test_a_tensor_header_that_claims_more_than_it_brings_is_refused() -> None:
    """The header's shape must match the bytes exactly."""
    ext = msgpack.ExtType(1, msgpack.packb(["float32", [2**40, 2**40]]) + bytes(16))
    with pytest.raises(DecodeError, match="takes"):
        decode_state(msgpack.packb({"v": 1, "observation": ext}))


@pytest.mark.parametrize("leaf", [b"\x90", b"\x80", b"\xc0"], ids=["lists", "maps", "nils"])
def test_a_wide_bomb_is_refused(leaf: bytes) -> None:
    """Entries are counted over the whole record: a MiB of empty lists would take 70 MiB and stand the loop still."""
    wide = b"\xdc\x00\x0e" + (b"\xdc\xff\xff" + leaf * 65535) * 14
    with pytest.raises(DecodeError, match="more than 65536 entries in its lists and maps: send arrays as tensors"):
        decode_state(b"\x83\xa1v\x01\xabobservation\x01\xa7options\x81\xa1a" + wide)


def test_a_large_tensor_is_no_bomb() -> None:
    """Its numbers are no entries."""
    image = np.zeros((3, 200, 200), np.float32)
    assert decode_state(encode_state(State({"image": image}))).observation["image"].shape == image.shape


@pytest.mark.parametrize("depth", [17, 400, 100_000])
def test_a_nested_bomb_is_refused(depth: int) -> None:
    """Nesting is bounded, without recursion of our own."""
    bomb = b"\x91" * depth + b"\xc0"
    with pytest.raises(DecodeError):
        decode_state(b"\x82\xa1v\x01\xabobservation" + bomb)


TENSOR = to_ext(np.zeros(2, np.float32))
DEEP = b"\x91" * 1010 + b"\xc0"
"""More levels than Python can show, and fewer than MessagePack refuses."""


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "not MessagePack"),
        (b"\x93\x01\x02\x03", "list"),
        (msgpack.packb({"observation": [1]}), "wire version None"),
        (msgpack.packb({"v": 2, "observation": [1]}), "wire version 2"),
        (msgpack.packb({"v": 1}), "no observation"),
        (msgpack.packb({"v": 1, "observation": [1], "seq": -1}), "seq is -1"),
        (msgpack.packb({"v": 1, "observation": [1], "deadline_us": "soon"}), "deadline_us is 'soon'"),
        (msgpack.packb({"v": 1, "observation": msgpack.ExtType(9, b"x")}), "type 9"),
        (msgpack.packb({"v": TENSOR, "observation": [1]}), "wire version a ndarray"),
        (msgpack.packb({"v": 1, "observation": [1], "options": TENSOR}), "options is a ndarray, expected a map"),
        (b"\x82\xabobservation\x90\xa1v" + DEEP, "wire version a list"),
        (b"\x83\xabobservation\x90\xa1v\x01\xa3seq" + DEEP, "seq is a list, expected a whole number"),
        (bytes(40), "the limit is 32"),
    ],
)
def test_the_error_names_what_is_wrong(value: bytes, says: str) -> None:
    """A person can mend the producer from the line alone."""
    limits = Limits(max_bytes=32) if says.endswith("32") else Limits()
    with pytest.raises(DecodeError, match=says):
        decode_state(value, limits)


@pytest.mark.parametrize("found", [TENSOR, [1], {"a": 1}, 1.5, b"x"])
@pytest.mark.parametrize("field", ["v", "outcome", "seq", "epoch", "reason", "model", "lane", "worker"])
def test_an_answer_whose_fields_have_other_types_is_refused(field: str, found: Any) -> None:
    """Tensors, too, which have no truth value."""
    fields = {"v": 1, "outcome": "action", "seq": 1, "action": 1} | {field: found}
    with pytest.raises(DecodeError, match=field.replace("v", "wire version", field == "v")):
        decode_action(msgpack.packb(fields))


@pytest.mark.parametrize("field", ["timing", "extras", "origin"])
def test_an_answer_with_a_tensor_for_a_map_is_refused(field: str) -> None:
    """The line names the field."""
    with pytest.raises(DecodeError, match=f"{field} is a ndarray"):
        decode_action(msgpack.packb({"v": 1, "outcome": "action", "seq": 1, field: TENSOR}))


def test_unknown_fields_are_ignored() -> None:
    """A newer client's fields do no harm."""
    state = decode_state(msgpack.packb({"v": 1, "observation": [1.0], "seq": 2, "mood": "good"}))
    assert state.seq == 2

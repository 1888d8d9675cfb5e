"""What changes in a replayed record: times, correlation ID, reply headers, the key of a copy; nothing else."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tools.replay.rewrite import copied_key, headers_again, shifted, times_at
from topics.records import State
from topics.wire import decode_state, encode_state

NOW_US = 1_760_000_000_000_000
BIG = st.integers(1 << 32, (1 << 63) - (1 << 56))
DELTAS = st.integers(-(1 << 55), 1 << 55)
NAMES = st.sampled_from(["v", "sent_us", "deadline_us", "seq", "options", "observation", "kind", ""])
PLAIN = st.one_of(st.integers(-(1 << 63), (1 << 64) - 1), st.text(max_size=5), st.binary(max_size=9), st.none())
VALUES = st.recursive(PLAIN, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner)))


@given(BIG | st.none(), BIG | st.none(), st.text(max_size=9), DELTAS, st.integers(0, 1 << 40))
def test_the_times_of_a_state_move_together_and_every_other_byte_stays(
    sent_us: int | None, deadline_us: int | None, kind: str, delta_us: int, seq: int
) -> None:
    """Decoded, only the two times differ; encoded, only their 16 bytes."""
    state = State(np.arange(3, dtype=np.float32), seq=seq, kind=kind, sent_us=sent_us, deadline_us=deadline_us)
    before = encode_state(state)
    after = shifted(before, delta_us)
    found = decode_state(after)
    for old, new in ((sent_us, found.sent_us), (deadline_us, found.deadline_us)):
        assert new == (old if old is None or old + delta_us < 0 else old + delta_us)
    times = {byte for at in times_at(before) for byte in range(at + 1, at + 9)}
    assert len(times) == 8 * sum(time is not None for time in (sent_us, deadline_us))
    assert [b for at, b in enumerate(after) if at not in times] == [b for at, b in enumerate(before) if at not in times]


@given(st.dictionaries(NAMES, VALUES, max_size=6), DELTAS)
@example({"v": 1, "sent_us": NOW_US, "observation": {"deadline_us": NOW_US}}, 7)
@example({"v": 1, "deadline_us": NOW_US, "options": {"sent_us": NOW_US}}, 7)
@example({"observation": [1], "deadline_us": NOW_US, "v": 1}, 7)
def test_only_the_outermost_times_move_whoever_encoded_the_map(fields: dict[str, Any], delta_us: int) -> None:
    """Equal names inside observations and options are data; fields come in any order."""

    def moved(name: str, value: Any) -> Any:
        is_time = name in ("sent_us", "deadline_us") and type(value) is int and not -(1 << 31) <= value < 1 << 32
        low, high = (0, 1 << 64) if is_time and value >= 0 else (-(1 << 63), 1 << 63)
        return value + delta_us if is_time and low <= value + delta_us < high else value

    after = shifted(msgpack.packb(fields), delta_us)
    assert msgpack.unpackb(after, strict_map_key=False) == {name: moved(name, value) for name, value in fields.items()}


@given(st.binary(max_size=60), DELTAS)
def test_bytes_that_are_no_state_are_sent_as_they_are(value: bytes, delta_us: int) -> None:
    """Whatever was recorded can be replayed."""
    assert len(shifted(value, delta_us)) == len(value)
    if b"_us" not in value:
        assert shifted(value, delta_us) == value


@pytest.mark.parametrize("cut", range(12, 60, 6))
def test_a_cut_off_state_moves_its_whole_times_and_raises_nothing(cut: int) -> None:
    """It was rejected when it was recorded, and it will be again."""
    whole = encode_state(State([1.0, 2.0], kind="a", sent_us=NOW_US, deadline_us=NOW_US))
    after = shifted(whole[:cut], 1)
    assert [at for at in range(len(after)) if after[at] != whole[at]] in ([], [20], [20, 41])


@pytest.mark.parametrize(
    "head", [b"\xd9\x07", b"\xda\x00\x07", b"\xdb\x00\x00\x00\x07"], ids=["str8", "str16", "str32"]
)
def test_names_in_long_forms_are_found(head: bytes) -> None:
    """Encoders need not choose the shortest form."""
    number = NOW_US.to_bytes(8, "big")
    assert shifted(b"\x81" + head + b"sent_us\xcf" + number, 5) == b"\x81" + head + b"sent_us\xcf" + (
        NOW_US + 5
    ).to_bytes(8, "big")
    assert shifted(b"\x81\xc4\x07sent_us\xcf" + number, 5) == b"\x81\xc4\x07sent_us\xcf" + number


def test_the_fast_way_and_the_walk_agree() -> None:
    """A time behind the map's end is none, also where the bytes look like ours."""
    ours = encode_state(State([1.0], sent_us=NOW_US, deadline_us=NOW_US))
    assert len(times_at(ours)) == 2
    assert times_at(b"\x81" + ours[1:]) == []
    assert len(times_at(b"\x82" + ours[1:])) == 1


def test_headers_keep_their_order_and_lose_the_reply_address() -> None:
    """A fresh correlation ID stands where the old one stood."""
    headers = (("a", b"1"), ("kafka_replyTopic", b"t"), ("kafka_correlationId", b"old"), ("b", None), ("a", b"2"))
    assert headers_again(headers, b"new") == [("a", b"1"), ("kafka_correlationId", b"new"), ("b", None), ("a", b"2")]
    assert headers_again((("kafka_correlationId", b"old"),), b"new") == [("kafka_correlationId", b"new")]
    assert headers_again((("kafka_replyPartition", b"\0\0\0\1"),), b"new") == [("kafka_correlationId", b"new")]


def test_a_copy_of_an_agent_has_an_id_of_its_own() -> None:
    """The first is the agent itself; a record without an agent stays without."""
    assert [copied_key(b"robot", copy) for copy in range(3)] == [b"robot", b"robot~1", b"robot~2"]
    assert copied_key(None, 2) is None

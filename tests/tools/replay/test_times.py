"""Times in recorded states move in place; every other byte stays, whoever encoded them."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tools.replay.times import shifted, shifted_all, times_at
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


TIMES = st.none() | st.integers(1 << 32, 1 << 53)
KINDS = st.none() | st.sampled_from(["sent_us", "x"])
OURS = st.builds(
    lambda sent_us, deadline_us, kind: encode_state(State([1.5], kind=kind, sent_us=sent_us, deadline_us=deadline_us)),
    TIMES,
    TIMES,
    KINDS,
)
FOREIGN = st.builds(lambda time_us: msgpack.packb({"seq": 1, "sent_us": time_us, "v": 1}), TIMES)
ROWS = st.lists(st.tuples(OURS | st.none() | st.binary(max_size=50), st.integers(-(1 << 54), 1 << 54)), max_size=20)


@given(ROWS, st.none() | FOREIGN, st.integers(0, 45))
@example([(encode_state(State([1.5], sent_us=NOW_US)), -(1 << 54))], None, 45)
@example([(encode_state(State([1.5], sent_us=(1 << 64) - 5)), 10)], None, 45)
def test_many_at_once_move_as_each_on_its_own(
    rows: list[tuple[bytes | None, int]], foreign: bytes | None, cut: int
) -> None:
    """States of ours with and without times, foreign ones, cut off ones, none at all."""
    rows += [(value[:cut], delta_us) for value, delta_us in rows[:1] if value is not None]
    rows += [] if foreign is None else [(foreign, 7)]
    values = [value for value, _ in rows]
    found = shifted_all(values, np.array([delta_us for _, delta_us in rows], np.int64))
    assert found == [None if value is None else shifted(value, delta_us) for value, delta_us in rows]

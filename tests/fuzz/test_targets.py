"""No bytes whatever break a promise of the parsers. `make fuzz` looks further than these examples do."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import TARGET_NAMES
from tests.fuzz.grafts import packed
from tests.fuzz.targets import REPLY_TOPICS, SEEDS, SPEC, TARGETS, outcomes
from topics.errors import DecodeError
from topics.wire import Limits, decode_state
from workers.admit import Admission


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=150, deadline=2_000, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_hostile_bytes_break_no_promise(name: str, data: Any) -> None:
    """Any bytes, and good ones damaged in a few places: overwritten, cut, doubled."""
    TARGETS[name](data.draw(st.binary(max_size=200) | st.sampled_from(SEEDS[name]).flatmap(damaged)))


def damaged(good: bytes) -> st.SearchStrategy[bytes]:
    """`good` with up to four pieces replaced."""
    piece = st.binary(max_size=4) | st.sampled_from([b"9" * 5_000, b"[" * 500, b"\xdf\xff\xff\xff\xff", b"1e999", b'"'])
    edit = st.tuples(st.integers(0, len(good)), st.integers(0, 6), piece)

    def apply(edits: list[tuple[int, int, bytes]]) -> bytes:
        value = good
        for at, cut, put in edits:
            value = value[:at] + put + value[at + cut :]
        return value

    return st.lists(edit, max_size=4).map(apply)


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_good(name: str) -> None:
    """What fuzzing starts from keeps the promises, too."""
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize(
    "claim", [b"\xc6\x06\x40\x00\x00", b"\xdb\x06\x40\x00\x00", b"\xdd\x06\x40\x00\x00", b"\xdf\x06\x40\x00\x00"]
)
def test_a_claim_of_100_mib_allocates_nothing_like_it(claim: bytes) -> None:
    """Bytes, a string, a list and a map that say they are large, in 20 bytes."""
    value = b"\x82\xa1v\x01\xabobservation" + claim
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode_state(value)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


BLANKS = 60_000


@pytest.mark.parametrize("long", ["x" * 4000, b"x" * 900_000])
def test_a_list_of_text_takes_no_more_than_it_brought(long: str | bytes) -> None:
    """numpy gives each of 60,000 empty texts the room of the long one among them: 1 MiB became 50 GiB."""
    value = packed({"v": 1, "observation": [long] + [long[:0]] * BLANKS})
    tracemalloc.start()
    try:
        ((outcome, reason, _),) = outcomes(Admission([SPEC], REPLY_TOPICS, Limits()), [value])
        assert outcome == "rejected" and "something other than numbers" in reason
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_make_fuzz_runs_every_target() -> None:
    """It names them itself, as nothing may be imported before it is instrumented."""
    assert set(TARGET_NAMES) == set(TARGETS)


@pytest.mark.parametrize("name", ["manifest", "settings_file"])
@pytest.mark.parametrize("key", ["k" * 5_000, "\\n" * 2_000])
def test_a_name_without_end_is_one_short_line(name: str, key: str) -> None:
    """Found by `make fuzz`: names stood in the line as long as they were."""
    TARGETS[name]((f'{{"{key}": 1}}' if name == "manifest" else f'"{key}" = 1').encode())

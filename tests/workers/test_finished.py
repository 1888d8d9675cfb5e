"""The finished map: small, bounded, and harmless when damaged."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.finished import MAX_CHARACTERS, decode, encode
from workers.offsets import PartitionOffsets

behind = st.sets(st.integers(1, 5000), max_size=200)


@given(st.integers(0, 2**62), behind)
def test_what_one_owner_finished_the_next_one_knows(committed: int, distances: set[int]) -> None:
    """At any position in the log: the map holds exactly what was received and finished behind the commit."""
    last = committed + max(distances, default=0)
    offsets = PartitionOffsets("t", 0)
    offsets.received(range(committed, last + 1))
    finished = {committed + distance for distance in distances}
    for offset in finished:
        offsets.finished(offset)
    found = offsets.committable()
    assert found is not None and found[0] == committed
    assert len(found[1]) <= MAX_CHARACTERS
    assert decode(committed, found[1]) == finished


def test_nothing_finished_is_no_metadata() -> None:
    """The usual commit carries none."""
    assert encode(7, []) == "" and decode(7, "") == frozenset()


def test_a_map_that_would_be_too_long_is_cut_and_never_wrong() -> None:
    """What is left out runs again; what is in it is right."""
    metadata = encode(0, ((offset, offset + 1) for offset in range(1, 100_000, 2)))
    assert len(metadata) <= MAX_CHARACTERS
    found = decode(0, metadata)
    assert found and all(offset % 2 == 1 for offset in found) and max(found) < 100_000


def test_a_full_lane_of_one_gap_takes_a_few_characters() -> None:
    """A slow state in front of thousands of answered ones."""
    assert len(encode(10, [(11, 4000)])) < 12


@settings(max_examples=500)
@given(
    st.integers(0, 2**40),
    st.one_of(
        st.text(max_size=60), st.binary(max_size=60).map(lambda raw: "F1:" + base64.b64encode(raw).decode().rstrip("="))
    ),
)
def test_damaged_metadata_is_ignored_or_bounded(committed: int, metadata: str) -> None:
    """Another tool's metadata, another version, flipped bits: no exception, no huge set, nothing before the commit."""
    found = decode(committed, metadata)
    assert len(found) <= 1 << 20
    assert all(offset >= committed for offset in found)


@pytest.mark.parametrize("metadata", ["F2:AQE", "F1:!!!", "F1:gICAgICAgIA", "F1:AQ", "x" * 5000])
def test_what_is_not_a_map_of_this_version_says_nothing(metadata: str) -> None:
    """The states run again, as they did before there was a map."""
    assert decode(3, metadata) == frozenset()

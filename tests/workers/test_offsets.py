"""Offsets: a commit never passes a state without an acknowledged answer, nor an assignment that is over."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers import finished
from workers.offsets import LaneOffsets, PartitionOffsets


def position(offsets: PartitionOffsets) -> int | None:
    found = offsets.committable()
    return None if found is None else found[0]


def found_map(offsets: PartitionOffsets) -> str:
    found = offsets.committable()
    return "" if found is None else found[1]


def test_nothing_received_means_nothing_to_commit() -> None:
    """A fresh assignment keeps the group's position."""
    assert PartitionOffsets("t", 0).committable() is None


def test_only_the_finished_prefix_is_committable() -> None:
    """A hole holds the commit back; filling it lets everything behind it through."""
    offsets = PartitionOffsets("t", 0)
    offsets.received([5, 6, 7])
    offsets.finished(6)
    assert position(offsets) == 5
    offsets.finished(5)
    assert position(offsets) == 7
    offsets.finished(7)
    assert position(offsets) == 8
    offsets.committed((8, ""))
    assert offsets.committable() is None


def test_gaps_in_the_log_do_not_block() -> None:
    """Compaction and transactions leave gaps; only received offsets count."""
    offsets = PartitionOffsets("t", 0)
    offsets.received([10, 20])
    offsets.received([35])
    for offset in (10, 20, 35):
        offsets.finished(offset)
    assert position(offsets) == 36


def test_a_revoked_assignment_never_commits() -> None:
    """Work that outlives its assignment moves nothing, also not the next assignment of the same partition."""
    lane = LaneOffsets("t")
    lane.assign([0])
    stale = lane.get(0)
    assert stale is not None
    stale.received([1])
    lane.assign([0])
    stale.finished(1)
    assert stale.committable() is None
    assert lane.committable() == {}


def test_a_failed_commit_is_tried_again() -> None:
    """What the broker did not take is still to commit."""
    lane = LaneOffsets("t")
    lane.assign([3])
    offsets = lane.get(3)
    assert offsets is not None
    offsets.received([0])
    offsets.finished(0)
    assert lane.committable() == {3: (1, "")}
    assert lane.committable() == {3: (1, "")}
    lane.committed({3: (1, "")})
    assert lane.committable() == {}


def test_what_the_last_owner_answered_is_finished_on_arrival() -> None:
    """It is received, needs no second answer, and the commit passes it."""
    before = PartitionOffsets("t", 0)
    before.received(range(10, 20))
    for offset in (11, 12, 15):
        before.finished(offset)
    after = PartitionOffsets("t", 0)
    after.resume(10, found_map(before))
    after.received(range(10, 14))
    assert after.skip_answered(range(10, 14)) == {11, 12}
    after.finished(10)
    assert position(after) == 13
    after.received(range(14, 20))
    assert after.skip_answered(range(14, 20)) == {15}
    assert after.incomplete == 6


@pytest.mark.parametrize("finished", [(), (10, 13)])
def test_what_the_last_owner_answered_outlives_an_owner_that_did_not_come_so_far(finished: tuple[int, ...]) -> None:
    """A long backlog and one rebalance after the other: the map of the first owner still reaches the third."""
    before = PartitionOffsets("t", 0)
    before.received(range(10, 20))
    for offset in (11, 12, 15, 16, 18):
        before.finished(offset)
    between = PartitionOffsets("t", 0)
    between.resume(10, found_map(before))
    between.received(range(10, 14))
    between.skip_answered(range(10, 14))
    for offset in finished:
        between.finished(offset)
    after = PartitionOffsets("t", 0)
    committed = between.committable() or (10, found_map(before))  # None: Kafka holds just that already
    after.resume(*committed)
    left = range(committed[0], 20)
    after.received(left)
    assert after.skip_answered(left) == {15, 16, 18} | (set() if finished else {11, 12})


def test_a_map_that_grew_is_committed_although_the_offset_stands_still() -> None:
    """Behind a slow state more and more is answered; each commit says so."""
    offsets = PartitionOffsets("t", 0)
    offsets.received(range(5))
    first = offsets.committable()
    assert first == (0, "")
    offsets.committed(first)
    assert offsets.committable() is None
    offsets.finished(3)
    second = offsets.committable()
    assert second is not None and second[0] == 0 and second[1] != ""


def test_lag_counts_what_is_not_finished() -> None:
    """End minus the first unfinished offset, over what is owned."""
    lane = LaneOffsets("t")
    lane.assign([0, 1])
    offsets = lane.get(0)
    assert offsets is not None
    offsets.received([4, 5])
    offsets.finished(4)
    lane.measure_lag({0: 10, 1: 7, 2: 99})
    assert lane.lag == 5
    assert lane.unreceived == 4, "offset 5 is received, though not finished"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_any_order_of_answers_commits_exactly_the_prefix(steps: list[int], random: object) -> None:
    """Against a plain model: the smallest unfinished offset, else the one behind the last."""
    received = [sum(steps[: at + 1]) for at in range(len(steps))]
    offsets = PartitionOffsets("t", 0)
    offsets.received(received)
    left = set(received)
    order = received[:]
    random.shuffle(order)  # type: ignore[attr-defined]
    for offset in order:
        offsets.finished(offset)
        left.discard(offset)
        assert position(offsets) == (min(left) if left else received[-1] + 1)


def test_a_partition_waits_for_a_commit_while_its_position_has_moved() -> None:
    """Asked for often, so it costs no finished map: neither before the first record, nor once committed or revoked."""
    lane = LaneOffsets("t")
    lane.assign([3])
    offsets = lane.get(3)
    assert offsets is not None and not lane.waits_for_commit
    offsets.received([0, 1])
    offsets.finished(0)
    assert lane.waits_for_commit
    lane.committed(lane.committable())
    assert not lane.waits_for_commit
    offsets.finished(1)
    assert lane.waits_for_commit
    lane.revoke()
    assert not offsets.waits_for_commit


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
    st.lists(st.integers(1, 9), min_size=60, max_size=60),
    st.integers(5, 40),
    st.randoms(use_true_random=False),
)
def test_what_goes_in_a_transaction_is_always_named_by_its_commit(
    steps: list[int], portions: list[int], characters: int, random: Any
) -> None:
    """However little the map holds: the next owner skips all that went, and in the end everything goes."""
    received = [sum(steps[: at + 1]) for at in range(len(steps))]
    offsets, waiting, gone = PartitionOffsets("t", 0), set[int](), set[int]()
    offsets.received(received)
    order = received[:]
    random.shuffle(order)
    with patch.object(finished, "MAX_CHARACTERS", characters):
        for portion in portions:
            waiting |= {order.pop() for _ in range(min(portion, len(order)))}
            if (covered := offsets.covering(waiting)) is None:
                continue
            found, going = covered
            offsets.committed(found)
            for offset in going:
                offsets.finished(offset)
            gone |= set(going)
            waiting = waiting - gone
            next_owner = PartitionOffsets("t", 0)
            next_owner.resume(*found)
            unread = [offset for offset in received if offset >= found[0]]
            next_owner.received(unread or [found[0]])
            assert next_owner.skip_answered(unread or [found[0]]) == gone.intersection(unread)
            assert not [offset for offset in received if offset < found[0] and offset not in gone]
    assert gone == set(received) and offsets.committable() is None

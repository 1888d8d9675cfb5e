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
    lane.measure_lag({0: 10, 1: 7, 2: 99}, {})
    assert lane.lag == 5
    assert lane.unreceived == 4, "offset 5 is received, though not finished"


def test_what_no_poll_ever_brings_is_no_lag() -> None:
    """Retention deleted what had no answer yet (partition 0); a transaction's marker is the last record (1)."""
    lane = LaneOffsets("t")
    lane.assign([0, 1, 2])
    deleted, marked, silent = lane.get(0), lane.get(1), lane.get(2)
    assert deleted and marked and silent
    deleted.resume(100, "")
    marked.received([0, 1, 2])
    for offset in range(3):
        marked.finished(offset)
    silent.resume(5, "")
    lane.measure_lag({0: 200, 1: 4}, {0: 200, 1: 4})
    assert (lane.lag, lane.unreceived) == (0, 0)
    lane.measure_lag({0: 200, 1: 4, 2: 9}, {0: 200, 1: 4})
    assert (lane.lag, lane.unreceived) == (4, 4), "a consumer that does not even know where it is has a lag"


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


class Transacted:
    """A partition with gaps, answered in any order by owners that come and go; what is answered never is again."""

    def __init__(self, log: list[int]) -> None:
        self.log = log
        self.answered: set[int] = set()
        self.found = (log[0], "")
        self.take_over()

    def take_over(self) -> None:
        """A new owner goes on where the last one has committed."""
        self.offsets = PartitionOffsets("t", 0)
        self.offsets.resume(*self.found)
        self.unread = [offset for offset in self.log if offset >= self.found[0]]
        self.waiting: set[int] = set()
        self.running: list[int] = []

    def receive(self, n: int) -> None:
        polled, self.unread = self.unread[:n], self.unread[n:]
        if polled:
            self.offsets.received(polled)
            skipped = self.offsets.skip_answered(polled)
            assert skipped == self.answered.intersection(polled)
            self.running += [offset for offset in polled if offset not in skipped]

    def transact(self, n: int) -> None:
        self.waiting |= {self.running.pop() for _ in range(min(n, len(self.running)))}
        if (covered := self.offsets.covering(self.waiting)) is not None:
            self.found, going = covered[0], set(covered[1])
            self.offsets.committed(self.found)
            for offset in going:
                self.offsets.finished(offset)
            self.waiting -= going
            self.answered |= going
            assert self.answered.issuperset(offset for offset in self.log if offset < self.found[0])


def test_a_gap_too_wide_for_a_map_waits_for_the_state_before_it() -> None:
    """Compaction and retention leave millions of offsets out. What is committed already still can be told."""
    offsets = PartitionOffsets("t", 0)
    offsets.received(range(20))
    first = offsets.covering(range(1, 20))
    assert first is not None and len(first[1]) == 19
    offsets.committed(first[0])
    for offset in range(1, 20):
        offsets.finished(offset)
    offsets.received([2_000_011])
    assert offsets.covering([2_000_011]) is None
    assert offsets.covering([0, 2_000_011]) == ((2_000_012, ""), [0, 2_000_011])


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=60),
    st.integers(5, 40),
    st.randoms(use_true_random=False),
)
def test_what_goes_in_a_transaction_is_always_named_by_its_commit(
    steps: list[int], turns: list[tuple[int, int, int]], characters: int, random: Any
) -> None:
    """However little the map holds: each owner skips all that went before, and in the end everything goes."""
    partition = Transacted([sum(steps[: at + 1]) for at in range(len(steps))])
    with patch.object(finished, "MAX_CHARACTERS", characters):
        for receive, answer, take_over in turns:
            if take_over == 0:
                partition.take_over()
            partition.receive(receive)
            random.shuffle(partition.running)
            partition.transact(answer)
        partition.receive(len(partition.log))
        partition.transact(len(partition.log))
    assert partition.answered == set(partition.log)
    assert partition.found[0] == partition.log[-1] + 1

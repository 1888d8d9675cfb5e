"""Which offsets of a partition are finished, and how far that allows to commit.

Invariants, each guarded by a test:
- Only offsets that were received are tracked: gaps (compaction, transactions) never block a commit.
- `committable` never passes an offset without a terminal, acknowledged answer.
- One object belongs to one assignment of one partition (an epoch). Once revoked it never allows a commit again, so
  work that outlives its assignment cannot move an offset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, takewhile

from workers.finished import decode, encode, encode_whole, runs


class PartitionOffsets:
    """The received, unfinished offsets of one partition during one assignment."""

    __slots__ = (
        "_answered_before",
        "_committed",
        "_highest",
        "_next",
        "_unfinished",
        "commits",
        "epoch",
        "partition",
        "revoked",
        "topic",
    )

    def __init__(self, topic: str, partition: int, epoch: int = 0) -> None:
        self.topic = topic
        self.epoch = epoch
        self.partition = partition
        self.revoked = False
        self.commits = 0
        """Positions that the broker has taken."""
        self._unfinished: dict[int, None] = {}
        self._next: int | None = None
        self._committed: tuple[int, str] | None = None
        self._answered_before: set[int] = set()
        self._highest = -1

    def resume(self, committed: int, metadata: str) -> None:
        """What the partition's last owner left with its commit: states that need no second answer."""
        self._committed = (committed, metadata)
        self._answered_before = set(decode(committed, metadata))
        self._highest = max(self._answered_before, default=-1)

    def skip_answered(self, offsets: Sequence[int]) -> set[int]:
        """Those of the just received `offsets` that the last owner has answered; they are finished herewith."""
        if not self._answered_before:
            return set()
        skipped = self._answered_before.intersection(offsets)
        self._answered_before = {offset for offset in self._answered_before - skipped if offset > offsets[-1]}
        for offset in skipped:
            self.finished(offset)
        return skipped

    def received(self, offsets: Sequence[int]) -> None:
        """Offsets in ascending order, as one poll returned them."""
        self._unfinished.update(dict.fromkeys(offsets))
        self._next = offsets[-1] + 1

    def finished(self, offset: int) -> None:
        """`offset` has its terminal answer, acknowledged by the broker."""
        self._unfinished.pop(offset, None)

    @property
    def incomplete(self) -> int:
        """Received offsets without an acknowledged answer."""
        return len(self._unfinished)

    @property
    def next_offset(self) -> int | None:
        """Behind the last received offset; None before the first."""
        return self._next

    def committable(self) -> tuple[int, str] | None:
        """The offset to commit (the first one not finished) and the map of what is answered behind it; None while
        there is nothing new to commit."""
        if self.revoked or self._next is None:
            return None
        found = (next(iter(self._unfinished), self._next), self._finished_map())
        return found if found != self._committed else None

    @property
    def waits_for_commit(self) -> bool:
        """Whether the offset to commit has moved since the last commit."""
        committed = self._committed[0] if self._committed else None
        return not self.revoked and self._next is not None and next(iter(self._unfinished), self._next) != committed

    def _finished_map(self) -> str:
        if self._next is None:
            return ""
        waiting = list(self._unfinished)
        return encode(waiting[0] if waiting else self._next, self._finished_runs(waiting, self._next))

    def _finished_runs(self, waiting: Sequence[int], behind: int) -> Iterator[tuple[int, int]]:
        gaps = zip(waiting, [*waiting[1:], behind], strict=False)
        ours = ((at + 1, following) for at, following in gaps if following > at + 1)
        # What the last owner answered and we have not even received must reach the next one, too.
        return chain(ours, runs(self._answered_before))

    def covering(self, answered: Collection[int]) -> tuple[tuple[int, str], Collection[int]] | None:
        """What to commit in one transaction with `answered`, and those of them that go with it; None for nothing new.

        Every finished offset is named, by the position or by the map. Where the map has no room for all of
        `answered`, only those go that move the position, which can but shorten it; the rest waits for them.
        """
        if self.revoked or self._next is None:
            return None
        found = self._position_and_map(self._next, answered)
        if found is None:
            answered = list(takewhile(set(answered).__contains__, self._unfinished))
            found = self._position_and_map(self._next, answered)
            assert found is not None, f"{self!r} has finished more than a commit can tell"
        self._highest = max(self._highest, *answered, -1)
        return (found, answered) if found != self._committed else None

    def _position_and_map(self, behind: int, answered: Collection[int]) -> tuple[int, str] | None:
        gone, highest = set(answered), max(self._highest, *answered, -1)
        waiting = [offset for offset in self._unfinished if offset not in gone]
        position = waiting[0] if waiting else behind
        # Gaps in the log look finished; behind the highest finished offset they need no room, however wide they are.
        needed = takewhile(lambda run: run[0] <= highest, self._finished_runs(waiting, behind))
        found = encode_whole(position, ((first, min(end, highest + 1)) for first, end in needed))
        return None if found is None else (position, found)

    def first_unfinished(self, reached: int) -> int:
        """The first offset that is not finished; where all are, how far we have `reached`."""
        return next(iter(self._unfinished), reached)

    def reached(self, end: int) -> int:
        """How far we have come, for all we know: `end` where neither a record nor a commit tells."""
        if self._next is None:
            return end if self._committed is None else self._committed[0]
        return self._next

    def committed(self, found: tuple[int, str]) -> None:
        """The broker holds what `committable` gave as this group's position."""
        self._committed = found
        self.commits += 1

    def revoke(self) -> None:
        """The partition belongs to somebody else from now on."""
        self.revoked = True

    def __repr__(self) -> str:
        state = "revoked" if self.revoked else f"next {self._next}, {self.incomplete} incomplete"
        return f"<PartitionOffsets {self.topic}[{self.partition}] {state}>"


class LaneOffsets:
    """The partitions that this worker owns in one lane. A new assignment brings new objects, never old ones again."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.epoch = 0
        self.assigned = False
        """Whether an assignment holds, be it of no partitions at all."""
        self._lag = 0
        self._unreceived = 0
        self._owned: dict[int, PartitionOffsets] = {}

    def assign(self, partitions: Iterable[int]) -> None:
        """A rebalance gave us `partitions`, all with clean state."""
        self.revoke()
        self.assigned = True
        self.epoch += 1
        self._owned = {
            partition: PartitionOffsets(self.topic, partition, self.epoch) for partition in sorted(partitions)
        }

    def revoke(self) -> None:
        """A rebalance took everything (the classic protocol is eager: it always takes everything)."""
        for offsets in self._owned.values():
            offsets.revoke()
        self._owned = {}
        self.assigned = False

    def get(self, partition: int) -> PartitionOffsets | None:
        """The state of an owned partition; None if it is not ours (any more)."""
        return self._owned.get(partition)

    def lose(self, partition: int) -> None:
        """This one belongs to somebody else, although the group has not told us yet."""
        if lost := self._owned.pop(partition, None):
            lost.revoke()

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the owned partitions, ascending."""
        return tuple(self._owned)

    @property
    def received(self) -> int:
        """Sum of the positions in the owned partitions: it changes whenever a record is received."""
        return sum(offsets.next_offset or 0 for offsets in self._owned.values())

    @property
    def incomplete(self) -> int:
        """Received offsets without an acknowledged answer, over all owned partitions."""
        return sum(offsets.incomplete for offsets in self._owned.values())

    @property
    def lag(self) -> int:
        """End of the owned partitions minus what is finished, as of the last commit interval."""
        return self._lag

    @property
    def unreceived(self) -> int:
        """Records of the owned partitions that no poll has brought yet, as of the last commit interval."""
        return self._unreceived

    def measure_lag(self, ends: dict[int, int], positions: dict[int, int]) -> None:
        """`ends`: partition → offset behind its last record; `positions`: partition → what its consumer reads next,
        which may be behind what no poll brings (markers, deleted records). Each where known."""
        self._lag = self._unreceived = 0
        for partition, end in ends.items():
            if offsets := self._owned.get(partition):
                reached = positions.get(partition, offsets.reached(end))
                self._lag += max(0, end - offsets.first_unfinished(reached))
                self._unreceived += max(0, end - reached)

    def committable(self) -> dict[int, tuple[int, str]]:
        """partition → offset to commit and what is answered behind it, for the partitions that moved."""
        found = ((partition, offsets.committable()) for partition, offsets in self._owned.items())
        return {partition: at for partition, at in found if at is not None}

    @property
    def waits_for_commit(self) -> bool:
        """Whether any owned partition has moved since its last commit."""
        return any(offsets.waits_for_commit for offsets in self._owned.values())

    @property
    def commits(self) -> int:
        """Positions that the broker has taken in this assignment; where it stands, nothing is committed."""
        return sum(offsets.commits for offsets in self._owned.values())

    def committed(self, offsets: dict[int, tuple[int, str]]) -> None:
        """The broker took these commits."""
        for partition, found in offsets.items():
            if partition in self._owned:
                self._owned[partition].committed(found)

    def __repr__(self) -> str:
        owned = f"partitions {self.partitions} incomplete {self.incomplete}"
        return f"<LaneOffsets {self.topic} epoch {self.epoch} {owned}>"

"""The lanes: bounded queues of requests, earliest deadline first, each agent's states in their order.

A full lane has no room, so its receive step asks Kafka for nothing: the states stay in the topic. Pure state: the
clock is an argument. `in_flight` counts what has left the queue but has no acknowledged answer yet; it counts against
the lane's bound, so a slow broker slows the intake instead of growing memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from topics.names import LANES, Lane
from workers.offsets import PartitionOffsets
from workers.requests import NEVER, Request

TARGET_US: Final[dict[Lane, int]] = {"high": 20_000, "normal": 50_000, "low": 1_000_000}
"""Where a state without a deadline, or with a later one, ranks among the others: the mission's targets per lane, µs."""


@dataclass(slots=True)
class Taken:
    """What left a lane's queue: requests to run, and those whose deadline has passed."""

    requests: list[Request]
    expired: list[Request]


class LaneQueue:
    """One lane. At most `max_depth` requests are queued and in flight together."""

    def __init__(self, lane: Lane, max_depth: int) -> None:
        self.lane: Lane = lane
        self.max_depth = max_depth
        self.in_flight = 0
        self._queue: deque[Request] = deque()
        self._sorted = True
        self._last_rank: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def room(self) -> int:
        """Requests that may still be taken in."""
        return self.max_depth - len(self._queue) - self.in_flight

    def put(self, requests: Sequence[Request]) -> None:
        """Take in what one poll admitted. A request never ranks before an earlier one of the same agent."""
        queue, last_rank, target = self._queue, self._last_rank, TARGET_US[self.lane]
        highest = queue[-1].rank if queue else 0
        for request in requests:
            rank = min(request.deadline_us, request.received_us + target)
            earlier = last_rank.get(request.agent, -1)
            request.rank = last_rank[request.agent] = rank = max(rank, earlier + 1)
            if rank < highest:
                self._sorted = False
            highest = rank
            queue.append(request)
        if len(last_rank) > 2 * self.max_depth:  # forget agents that have nothing queued
            self._last_rank = {request.agent: request.rank for request in sorted(queue, key=_rank)}

    def take(
        self, n: int, now_us: int, busy: Container[bytes] = (), *, surely_us: int = 0, suspects: bool = True
    ) -> Taken:
        """Up to `n` requests by rank, leaving those of `busy` agents where they are; what expired comes out as well.

        `now_us` is the time that deadlines are held against: now, or when an answer could be there. Who has less time
        than until `surely_us` gets only seats that nobody else wants.
        A suspect (`Request.hangs`) comes out alone; without `suspects`, nothing comes out from the first one on.
        Everything that comes out counts as in flight until `answered`.
        """
        self._sort()
        queue, taken, skipped = self._queue, Taken([], []), []
        pressed: list[Request] = []
        requests, expired = taken.requests, taken.expired
        held: set[bytes] = set()
        hurried: set[bytes] = set()
        while queue and len(requests) < n:
            request = queue.popleft()
            if request.deadline_us <= now_us:
                expired.append(request)
            elif busy and (request.agent in busy or request.agent in held):
                held.add(request.agent)
                skipped.append(request)
            elif request.hangs:
                if requests or pressed or not suspects:
                    queue.appendleft(request)
                else:  # alone, so that it takes nobody with it
                    requests.append(request)
                break
            elif request.deadline_us <= surely_us or request.agent in hurried:
                hurried.add(request.agent)
                pressed.append(request)
            else:
                requests.append(request)
        if pressed:
            free = n - len(requests)
            taken.requests = sorted(requests + pressed[:free], key=_rank)
            skipped = sorted(skipped + pressed[free:], key=_rank)
        queue.extendleft(reversed(skipped))
        self.in_flight += len(taken.requests) + len(expired)
        return taken

    def expire(self, now_us: int) -> list[Request]:
        """What expired at the front, although no predictor could take it; in flight until `answered`."""
        expired: list[Request] = []
        while self._queue and self.next_deadline_us() <= now_us:
            expired.append(self._queue.popleft())
        self.in_flight += len(expired)
        return expired

    def _sort(self) -> None:
        if not self._sorted:  # nearly sorted already, and at most once per poll
            self._queue = deque(sorted(self._queue, key=_rank))
            self._sorted = True

    def oldest_us(self) -> int:
        """When the longest-waiting request was received; meant for short queues, as it looks at every request."""
        return min(request.received_us for request in self._queue)

    def front_us(self) -> int:
        """When the request at the front was received."""
        self._sort()
        return self._queue[0].received_us

    def suspect_in_front(self) -> bool:
        """Whether the request at the front has to run alone."""
        self._sort()
        return bool(self._queue) and self._queue[0].hangs > 0

    def next_deadline_us(self) -> int:
        """The deadline of the request at the front; NEVER when there is none."""
        self._sort()
        return self._queue[0].deadline_us if self._queue else NEVER

    def put_back(self, request: Request) -> None:
        """A request that was taken waits again, before all that have not been taken: by now its agent may be forgotten,
        and later states of it may rank before it. Those that are put back keep their order."""
        self.in_flight -= 1
        request.rank -= NEVER
        self._queue.append(request)
        self._sorted = False

    def hold(self, n: int) -> None:
        """`n` requests were answered without ever queueing (rejected at admission): in flight until `answered`."""
        self.in_flight += n

    def answered(self, n: int) -> None:
        """`n` requests got their acknowledged answer, or their assignment is gone."""
        self.in_flight -= n

    def hand_back(self) -> int:
        """Forget everything queued: its offsets stay uncommitted, so the partition's next owner reads it again."""
        n = len(self._queue)
        self._queue.clear()
        self._last_rank.clear()
        self._sorted = True
        return n

    def drop(self, offsets: PartitionOffsets) -> None:
        """Forget what is queued of one partition: another worker has it, and reads it again."""
        self._queue = deque(request for request in self._queue if request.offsets is not offsets)

    def __repr__(self) -> str:
        return f"{self.lane} {len(self)}+{self.in_flight}/{self.max_depth}"


_rank = attrgetter("rank")


class Lanes:
    """The three lanes of a worker."""

    def __init__(self, max_depths: dict[Lane, int]) -> None:
        self.high, self.normal, self.low = (LaneQueue(lane, max_depths[lane]) for lane in LANES)

    def __getitem__(self, lane: Lane) -> LaneQueue:
        found: LaneQueue = getattr(self, lane)
        return found

    def __iter__(self) -> Iterator[LaneQueue]:
        return iter((self.high, self.normal, self.low))

    @property
    def outstanding(self) -> int:
        """Requests queued or in flight."""
        return sum(len(lane) + lane.in_flight for lane in (self.high, self.normal, self.low))

    def __repr__(self) -> str:
        return f"<Lanes {self.high!r} {self.normal!r} {self.low!r}>"

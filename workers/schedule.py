"""Step 4, schedule: which requests run next, and where. A pure state machine: `next(now)` gives a batch or None.

- Every predictor runs one batch and holds one ready, so that it never idles while the event loop turns.
- **high** (Fast Pass) never waits for a window: it goes to an idle predictor, else in front of the ready batch of
  the predictor that would answer first. Seats that cost nothing are filled with normal, then low.
- **normal** leaves at once when a predictor idles (waiting would not help); while all run, a batch is made ready when
  it is full or its oldest has waited `max_wait`, whichever comes first.
- **low** takes idle time, free seats, and seats of normal batches where they cost little. Once its front has waited
  `low_max_age` it gets a share of every batch.
- What cannot be answered in time is expired at once: a flood would else have every predictor work on the states with
  the earliest deadlines, all of which are just about to pass.

How long a batch takes is learned (`costs`); which predictor gets it, and how large it may be, `dispatch` says.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from topics.names import LANES, Lane
from workers.dispatch import Dispatch
from workers.lanes import LaneQueue, Lanes
from workers.requests import NEVER, Batch, Request
from workers.slots import Limits, Slot

LOW_SHARE = 8
"""Overdue low requests get one seat in this many: a bound on starvation, not a priority."""
QUIET_US = 1_000_000
"""Nothing of high and normal for so long: a batch of low that is ready early keeps nobody waiting."""


class Due(NamedTuple):
    """When a batch is back: as expected, and if it is slower than that. Who has less time than the first is expired;
    who has less than the second gets only seats that nobody else wants."""

    at_us: int
    surely_us: int


class Schedule:
    """Forms batches from the lanes for `len(slots)` predictors."""

    def __init__(self, lanes: Lanes, slots: Sequence[Slot], limits: Limits) -> None:
        self._lanes = lanes
        self._slots = tuple(slots)
        self._limits = limits
        for number, slot in enumerate(slots):
            slot.join(number, limits)
        self._dispatch = Dispatch(self._slots, limits)
        # With one predictor batches finish in the order they were formed; with more, an agent's next state has to wait.
        self._busy: dict[Lane, set[bytes]] | None = {lane: set() for lane in LANES} if len(slots) > 1 else None
        self._expired: list[Request] = []
        self._formed = 0
        self._others_us = 0
        """When high or normal last waited."""

    def next(self, now_us: int) -> Batch | None:
        """The next batch to hand to its predictor, None if there is nothing to do before `wake_us`."""
        for lane in self._lanes:
            if lane.next_deadline_us() < NEVER:
                self._expired += lane.expire(self._dispatch.soonest_us(lane, now_us))
        if self._lanes.high or self._lanes.normal:
            self._others_us = now_us
        for slot in self._dispatch.idle():
            if batch := self._fill(slot, now_us):
                slot.running, slot.since_us = batch, now_us
                return batch
        return self._overtake(now_us) or self._make_ready(now_us)

    def finished(self, batch: Batch, started_us: int = 0, ended_us: int = 0, *, learn: bool = True) -> None:
        """A predictor returned `batch`, which ran from `started_us` to `ended_us`; with `learn` others of its size are
        expected to take as long."""
        slot = self._slots[batch.predictor]
        slot.finished(batch)
        slot.since_us = ended_us
        if learn and ended_us:
            slot.costs.learn(len(batch), ended_us - started_us)
            self._dispatch.learned()
        self._release(batch)

    def _release(self, batch: Batch) -> None:
        """Its agents may be served elsewhere again."""
        if self._busy is not None:
            for request in batch.requests:
                self._busy[request.lane].discard(request.agent)

    def holds(self, batch: Batch) -> bool:
        """Whether `batch` is still expected; after a fence it is not."""
        slot = self._slots[batch.predictor]
        return batch in (slot.running, slot.urgent, slot.ready)

    def fence(self, number: int) -> tuple[list[Request], list[Request]]:
        """Predictor `number` hangs: it gets nothing more until `restore`. Gives the requests that ran and those that
        waited there; whoever asked puts them back or answers them."""
        slot = self._slots[number]
        running, waiting = slot.running, [batch for batch in (slot.urgent, slot.ready) if batch is not None]
        slot.available, slot.running, slot.urgent, slot.ready = False, None, None, None
        for batch in [running, *waiting]:
            if batch is not None:
                self._release(batch)
        self._dispatch.refresh()
        return running.requests if running else [], [request for batch in waiting for request in batch.requests]

    def restore(self, number: int, warm_us: Mapping[int, int]) -> None:
        """Predictor `number` serves again, with all its memory, and as fast as its warm-up was."""
        slot = self._slots[number]
        slot.available, slot.warm_us = True, warm_us
        slot.join(number, self._limits)
        self._dispatch.refresh()

    def limit(self, number: int, max_batch: int) -> int:
        """Predictor `number` gets at most `max_batch` requests at once until `restore`; gives its bound so far."""
        slot, before = self._slots[number], self._slots[number].max_batch
        slot.max_batch = min(max_batch, before)
        return before

    @property
    def available(self) -> int:
        """Predictors that serve, standbys included."""
        return sum(slot.available for slot in self._slots)

    def expired(self) -> list[Request]:
        """The requests that cannot be answered in time any more; each is given out once."""
        expired, self._expired = self._expired, []
        return expired

    def wake_us(self, now_us: int) -> int:
        """When `next` may have something to do without anything else happening; NEVER if only an event can tell."""
        lanes, limits = self._lanes, self._limits
        times = [lane.next_deadline_us() for lane in lanes]
        if 0 < len(lanes.normal) < limits.max_batch:
            times.append(lanes.normal.oldest_us() + limits.max_wait_us)
        if lanes.low:
            times.append(lanes.low.front_us() + limits.low_max_age_us)
        if len(self._slots) > 1 and (n := max(len(lanes.normal), len(lanes.high))):
            times.append(self._dispatch.retry_us(n, now_us))
        return min((time for time in times if time > now_us), default=NEVER)

    def _fill(self, slot: Slot, now_us: int) -> Batch | None:
        """A batch for an idle predictor, from whatever waits."""
        high, most = self._lanes.high, slot.max_batch
        share = 0 if slot.reserved_for else self._low_share(most, now_us)
        rows = min(self._dispatch.most(slot, high, now_us, now_us), most - share)
        now = Due(now_us, now_us)
        if urgent := self._take(high, rows, now):
            if not urgent[0].hangs:  # a suspect runs alone
                self._add_passengers(urgent, slot, share, now, ())
            return self._batch(slot, urgent, now_us, urgent=True)
        if slot.reserved_for:
            return None
        normal, low = self._lanes.normal, self._lanes.low
        requests = self._overdue_suspect(now_us)
        if normal and not requests:
            requests = self._normal(slot, self._dispatch.most(slot, normal, now_us, now_us), now_us, now_us)
        if not requests:
            requests = self._take(low, self._dispatch.most(slot, low, now_us, now_us), now)
        return self._batch(slot, requests, now_us)

    def _add_passengers(
        self, requests: list[Request], slot: Slot, share: int, due: Due, held: Container[bytes]
    ) -> None:
        """Fill the seats that cost the high requests nothing, but not with states of `held` agents."""
        seats = min(slot.costs.free_rows(len(requests)), slot.max_batch)
        requests += self._take(self._lanes.low, share, due, held, suspects=False)
        requests += self._take(self._lanes.normal, seats - len(requests), due, held, suspects=False)
        requests += self._take(self._lanes.low, seats - len(requests), due, held, suspects=False)

    def _normal(self, slot: Slot, most: int, start_us: int, now_us: int) -> list[Request]:
        """At most so many normal requests for a batch that begins at `start_us`, with low ones on overdue low's share
        and where they cost little."""
        share, normal = self._low_share(most, now_us), self._lanes.normal
        due = self._due(slot, start_us, min(most, len(normal)), now_us)
        requests = self._take(normal, most - share, due)
        if not (requests and requests[0].hangs):  # a suspect runs alone
            seats = min(self._dispatch.shared_rows(slot, requests, start_us), most) if requests else 0
            rows = max(share, seats - len(requests))
            requests += self._take(self._lanes.low, rows, due, suspects=not requests)
        return requests

    def _low_share(self, most: int, now_us: int) -> int:
        """Of `most` seats, those for overdue low requests; with tiny batches, one seat in every `LOW_SHARE`th."""
        low = self._lanes.low
        if not low or low.suspect_in_front() or now_us - low.front_us() < self._limits.low_max_age_us:
            return 0
        return most // LOW_SHARE or int(self._formed % LOW_SHARE == 0)

    def _overdue_suspect(self, now_us: int) -> list[Request]:
        """The low request at the front where it has waited long enough but may not share a batch: others' free seats
        are of no use to it."""
        low = self._lanes.low
        if not low.suspect_in_front() or now_us - low.front_us() < self._limits.low_max_age_us:
            return []
        return self._take(low, 1, Due(now_us, now_us))

    def _overtake(self, now_us: int) -> Batch | None:
        """High requests behind a running batch, in front of a ready one. With passengers only where none is ready, and
        not of agents in the running batch: the predictor may not have begun it, and so no states change their order."""
        high = self._lanes.high
        if not high or (slot := self._dispatch.for_urgent(len(high), now_us)) is None:
            return None
        start_us = slot.due_us(now_us)
        most = slot.max_batch
        share = 0 if slot.reserved_for or slot.ready else self._low_share(most, now_us)
        rows = min(self._dispatch.most(slot, high, start_us, now_us), max(most - share, 1))
        due = self._due(slot, start_us, min(rows, len(high)), now_us)
        requests = self._take(high, rows, due)
        if requests and not requests[0].hangs and slot.ready is None:
            held = {request.agent for request in slot.running.requests} if slot.running and not self._busy else ()
            self._add_passengers(requests, slot, min(share, most - len(requests)), due, held)
        slot.overtaken = bool(requests) and slot.ready is not None
        slot.urgent = self._batch(slot, requests, now_us, urgent=True)
        return slot.urgent

    def _make_ready(self, now_us: int) -> Batch | None:
        """A full or long-waiting batch behind a running one, or an overdue suspect of low. Of low alone else only a
        full one and while it is quiet, however long it has waited: high would meet one batch more, and low has all
        that idles in any case."""
        normal, low = self._lanes.normal, self._lanes.low
        slots = self._dispatch.for_ready(now_us)
        if slots and (alone := self._overdue_suspect(now_us)):
            return self._put_ready(slots[0], alone, now_us)
        if not normal and now_us - self._others_us < QUIET_US:
            return None
        hurry = bool(normal) and (self._low_share(self._limits.max_batch, now_us) > 0 or self._waited(now_us))
        queue = normal or low
        for slot in slots:
            start_us = slot.due_us(now_us) + (slot.costs.batch_us(len(slot.urgent)) if slot.urgent else 0)
            most = self._dispatch.most(slot, queue, start_us, now_us)
            if most and (hurry or len(queue) >= most):
                if normal:
                    requests = self._normal(slot, most, start_us, now_us)
                else:
                    requests = self._take(low, most, self._due(slot, start_us, most, now_us))
                return self._put_ready(slot, requests, now_us)
        return None

    def _put_ready(self, slot: Slot, requests: list[Request], now_us: int) -> Batch | None:
        slot.ready = self._batch(slot, requests, now_us)
        slot.overtaken = slot.ready is not None and slot.urgent is not None
        return slot.ready

    def _waited(self, now_us: int) -> bool:
        """Whether the oldest normal request has waited long enough for its batch to fill."""
        return now_us - self._lanes.normal.oldest_us() >= self._limits.max_wait_us

    def _due(self, slot: Slot, start_us: int, n: int, now_us: int) -> Due:
        """When `n` requests would be answered, with a quarter for what may be slower. But an idle predictor tries it,
        and an overflow predictor is no reason to give up on anybody."""
        if slot.running is None or self._dispatch.is_overflow(slot):
            return Due(now_us, now_us)
        took_us = slot.costs.batch_us(n)
        return Due(start_us + took_us, start_us + took_us + took_us // 4)

    def _take(
        self, lane: LaneQueue, n: int, due: Due, held: Container[bytes] = (), *, suspects: bool = True
    ) -> list[Request]:
        if n <= 0 or not lane:
            return []
        busy = self._busy[lane.lane] if self._busy else held
        taken = lane.take(n, due.at_us, busy, surely_us=due.surely_us, suspects=suspects)
        self._expired += taken.expired
        return taken.requests

    def _batch(self, slot: Slot, requests: list[Request], now_us: int, *, urgent: bool = False) -> Batch | None:
        if not requests:
            return None
        if self._busy is not None:
            for request in requests:
                self._busy[request.lane].add(request.agent)
        self._formed += 1
        return Batch(slot.number, requests, now_us, urgent)

    def __repr__(self) -> str:
        held = ", ".join(str(slot.batches) for slot in self._slots)
        return f"<Schedule {self._lanes!r} batches held [{held}]>"

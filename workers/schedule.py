"""Step 4, schedule: which requests run next, and where. A pure state machine: `next(now)` gives a batch or None.

- Every predictor runs one batch and holds one ready, so that it never idles while the event loop turns.
- **high** (Fast Pass) never waits for a window: it goes to an idle predictor, else in front of the ready batch of
  the predictor that has been running longest. Seats that padding would waste are filled with normal, then low.
- **normal** leaves at once when a predictor idles (waiting would not help); while all run, a batch is made ready when
  it has `max_batch` requests or its oldest has waited `max_wait`, whichever comes first.
- **low** takes free seats and idle time. Once its front has waited `low_max_age` it gets a share of every batch.
- What cannot be answered in time behind the batch that runs is expired: a flood would else have every predictor work
  on the states with the earliest deadlines, all of which are just about to pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from topics.names import LANES, Lane
from workers.lanes import LaneQueue, Lanes
from workers.requests import NEVER, Batch, Request

LOW_SHARE = 8
"""Overdue low requests get one seat in this many: a bound on starvation, not a priority."""

AVERAGE_OVER = 8
"""Batches that the expected time of a batch averages over, more or less."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The hard bounds of a batch. `buckets`: the batch sizes the model is padded to, ascending."""

    max_batch: int
    max_wait_us: int
    low_max_age_us: int
    buckets: tuple[int, ...]

    def bucket(self, n: int) -> int:
        """The batch size that `n` rows are padded to, at most `max_batch`."""
        at = bisect_left(self.buckets, n)
        return min(self.buckets[at], self.max_batch) if at < len(self.buckets) else self.max_batch


@dataclass(slots=True)
class Slot:
    """What one predictor holds: a running batch, an urgent one that runs next, a ready one behind it."""

    reserved_for: Lane | None = None
    available: bool = True
    max_batch: int = NEVER
    """Requests that its device has memory for, where that is less than a full batch."""
    running: Batch | None = None
    urgent: Batch | None = None
    ready: Batch | None = None
    since_us: int = 0
    """When what runs began, as far as we know."""

    def finished(self, batch: Batch) -> None:
        """`batch` came back, usually `running`. The predictor begins its next batch before we hear of the last, so a
        batch may also come back from a place that we thought was still waiting."""
        if self.urgent is batch:
            self.urgent = None
        elif self.ready is batch:
            self.ready = None
        else:
            self.running = None
        if self.running is None and self.urgent is not None:
            self.running, self.urgent = self.urgent, None
        elif self.running is None:
            self.running, self.ready = self.ready, None

    @property
    def batches(self) -> int:
        """How many batches it holds."""
        return sum(batch is not None for batch in (self.running, self.urgent, self.ready))


class Schedule:
    """Forms batches from the lanes for `len(slots)` predictors."""

    def __init__(self, lanes: Lanes, slots: Sequence[Slot], limits: Limits) -> None:
        self._lanes = lanes
        self._slots = tuple(slots)
        self._limits = limits
        # With one predictor batches finish in the order they were formed; with more, an agent's next state has to wait.
        self._busy: dict[Lane, set[bytes]] | None = {lane: set() for lane in LANES} if len(slots) > 1 else None
        self._expired: list[Request] = []
        self._formed = 0
        self._average_us = 0.0
        self._took_us = 0

    def next(self, now_us: int) -> Batch | None:
        """The next batch to hand to its predictor, None if there is nothing to do before `wake_us`."""
        for lane in self._lanes:
            self._expired += lane.expire(now_us)
        for number, slot in enumerate(self._slots):
            if slot.available and slot.running is None and (batch := self._fill(number, slot, now_us)):
                slot.running, slot.since_us = batch, now_us
                return batch
        return self._overtake(now_us) or self._make_ready(now_us)

    def finished(self, batch: Batch, started_us: int = 0, ended_us: int = 0) -> None:
        """A predictor returned `batch`, which ran from `started_us` to `ended_us`."""
        slot = self._slots[batch.predictor]
        slot.finished(batch)
        slot.since_us = ended_us
        self._learn(ended_us - started_us)
        self._release(batch)

    def _learn(self, took_us: int) -> None:
        """A batch takes the average, or what the last one took if that is less: one slow batch expires nobody."""
        average = self._average_us or took_us
        self._average_us = average + (took_us - average) / AVERAGE_OVER
        self._took_us = min(took_us, round(self._average_us))

    def _answer_us(self, slot: Slot, now_us: int) -> int:
        """When a batch behind the one that runs in `slot` would be answered, with a quarter for what may be slower."""
        took_us = self._took_us
        return max(now_us, slot.since_us + took_us) + took_us + took_us // 4

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
        return running.requests if running else [], [request for batch in waiting for request in batch.requests]

    def restore(self, number: int) -> None:
        """Predictor `number` serves again, with all its memory."""
        self._slots[number].available = True
        self._slots[number].max_batch = NEVER

    def limit(self, number: int, max_batch: int) -> None:
        """Predictor `number` gets at most `max_batch` requests at once until `restore`."""
        self._slots[number].max_batch = max_batch

    @property
    def available(self) -> int:
        """Predictors that serve."""
        return sum(slot.available for slot in self._slots)

    def expired(self) -> list[Request]:
        """The requests whose deadline passed before they could run; each is given out once."""
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
        return min((time for time in times if time > now_us), default=NEVER)

    def _fill(self, number: int, slot: Slot, now_us: int) -> Batch | None:
        """A batch for an idle predictor, from whatever waits."""
        if slot.reserved_for == "high" and not self._lanes.high:
            return None
        most = min(self._limits.max_batch, slot.max_batch)
        share = 0 if slot.reserved_for else self._low_share(now_us, most)
        requests = self._take(self._lanes.high, most - share, now_us)
        urgent = bool(requests)
        if requests and requests[0].hangs:
            pass  # a suspect runs alone
        elif urgent:
            self._add_free_seats(requests, share, most, now_us)
        else:
            requests = self._take(self._lanes.normal, most - share, now_us)
            if requests and requests[0].hangs:
                pass
            elif share or not requests:
                requests += self._take(self._lanes.low, most - len(requests), now_us)
            else:
                requests += self._take(self._lanes.low, self._free_seats(requests, most), now_us)
        return self._batch(number, requests, now_us, urgent=urgent)

    def _add_free_seats(self, requests: list[Request], share: int, most: int, now_us: int) -> None:
        """Fill what padding would waste: it costs the high requests nothing."""
        requests += self._take(self._lanes.low, share, now_us)
        requests += self._take(self._lanes.normal, self._free_seats(requests, most), now_us)
        requests += self._take(self._lanes.low, self._free_seats(requests, most), now_us)

    def _free_seats(self, requests: list[Request], most: int) -> int:
        return min(self._limits.bucket(len(requests)), most) - len(requests)

    def _low_share(self, now_us: int, max_batch: int) -> int:
        """Seats that overdue low requests get in the next batch; with tiny batches, one seat in every `LOW_SHARE`th."""
        low = self._lanes.low
        if not low or now_us - low.front_us() < self._limits.low_max_age_us:
            return 0
        return max_batch // LOW_SHARE or int(self._formed % LOW_SHARE == 0)

    def _overtake(self, now_us: int) -> Batch | None:
        """High requests in front of a ready batch; no free seats, so that no agent's states change their order."""
        if not self._lanes.high:
            return None
        running = [
            (slot.running.formed_us, number)
            for number, slot in enumerate(self._slots)
            if slot.available and slot.running is not None and slot.urgent is None
        ]
        if not running:
            return None
        number = min(running)[1]
        slot = self._slots[number]
        most = min(self._limits.max_batch, slot.max_batch)
        requests = self._take(self._lanes.high, most, self._answer_us(slot, now_us))
        batch = slot.urgent = self._batch(number, requests, now_us, urgent=True)
        return batch

    def _make_ready(self, now_us: int) -> Batch | None:
        """A full or long-waiting batch behind a running one."""
        if not self._worth_readying(now_us):
            return None
        for number, slot in enumerate(self._slots):
            if slot.available and slot.running is not None and slot.ready is None and slot.reserved_for is None:
                most = min(self._limits.max_batch, slot.max_batch)
                share, answer_us = self._low_share(now_us, most), self._answer_us(slot, now_us)
                requests = self._take(self._lanes.normal, most - share, answer_us)
                if not (requests and requests[0].hangs):
                    requests += self._take(self._lanes.low, share or self._free_seats(requests, most), answer_us)
                slot.ready = self._batch(number, requests, now_us)
                return slot.ready
        return None

    def _worth_readying(self, now_us: int) -> bool:
        normal, limits = self._lanes.normal, self._limits
        if len(normal) >= limits.max_batch or self._low_share(now_us, limits.max_batch):
            return True
        return bool(normal) and now_us - normal.oldest_us() >= limits.max_wait_us

    def _take(self, lane: LaneQueue, n: int, now_us: int) -> list[Request]:
        if n <= 0 or not lane:
            return []
        taken = lane.take(n, now_us, self._busy[lane.lane] if self._busy else ())
        self._expired += taken.expired
        return taken.requests

    def _batch(self, number: int, requests: list[Request], now_us: int, *, urgent: bool = False) -> Batch | None:
        if not requests:
            return None
        if self._busy is not None:
            for request in requests:
                self._busy[request.lane].add(request.agent)
        self._formed += 1
        return Batch(number, requests, now_us, urgent)

    def __repr__(self) -> str:
        held = ", ".join(str(slot.batches) for slot in self._slots)
        return f"<Schedule {self._lanes!r} batches held [{held}]>"

"""A worker's lanes and schedule with made-up devices and agents, event by event on a clock of its own.

No thread, no Kafka, no waiting: ten seconds of a busy fleet take about one. Times are µs.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from tests.workers.build import request
from topics.names import LANES, Lane
from workers.lanes import Lanes
from workers.requests import NEVER, Batch, Request
from workers.schedule import Schedule
from workers.slots import Limits, Slot

SECOND = 1_000_000
BUCKETS = (1, 8, 16, 32, 64)
MADE = request()
REPORT_US = 150
"""From the end of a batch until the event loop hears of it."""


@dataclass
class Device:
    """A predictor: µs per batch and per padded row, ± a share; `hangs_at_us`: from then on nothing comes back."""

    alpha_us: float = 2000
    beta_us: float = 20
    jitter: float = 0.05
    reserved_for: Lane | None = None
    standby: bool = False
    hangs_at_us: int = NEVER
    inbox: list[Batch] = field(default_factory=list)
    running: Batch | None = None
    begun_us: int = 0
    busy_us: int = 0
    batches: int = 0
    rows: int = 0

    def batch_us(self, n: int) -> float:
        return self.alpha_us + self.beta_us * next(bucket for bucket in BUCKETS if bucket >= n)

    @property
    def slot(self) -> Slot:
        warm_us = {n: round(self.batch_us(n)) for n in BUCKETS}
        return Slot(reserved_for=self.reserved_for, standby=self.standby, warm_us=warm_us)

    @property
    def capacity(self) -> float:
        """Decisions a second with full batches."""
        return 64 * SECOND / self.batch_us(64)


class Simulation:
    """Run `until` a time; then look at `waits` (arrival to answer, by lane), `late`, `expired` and the devices."""

    def __init__(self, devices: Iterable[Device], *, seed: int = 1, depth: int = 4096, **limits: int) -> None:
        self.devices = list(devices)
        self.now = 0
        self.lanes = Lanes(dict.fromkeys(LANES, depth))
        bounds = {"max_batch": 64, "max_wait_us": 20_000, "low_max_age_us": 1_000_000} | limits
        self.schedule = Schedule(
            self.lanes, [device.slot for device in self.devices], Limits(buckets=BUCKETS, **bounds)
        )
        self.chance = random.Random(seed)
        self.waits: dict[Lane, list[tuple[int, int]]] = {lane: [] for lane in LANES}
        self.put = self.late = self.expired = self.turned_away = 0
        self.answered: list[Request] = []
        self._on_answer: dict[Request, Callable[[], None]] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._timer_us = NEVER

    def at(self, time_us: float, do: Callable[[], None]) -> None:
        """`do` then."""
        self._number += 1
        heapq.heappush(self._events, (round(time_us), self._number, do))

    def until(self, end_us: int) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= end_us:
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = end_us

    def open_loop(
        self, lane: Lane, per_s: float, until_us: int, *, start_us: int = 0, poisson: bool = True,
        within_us: int = NEVER, agents: int = 512,
    ) -> None:  # fmt: skip
        """States of random agents, at a rate, whatever becomes of them; dropped where the lane is full, as those wait
        in Kafka."""

        def times() -> Iterator[float]:
            now, gap = float(start_us), SECOND / per_s
            while (now := now + (self.chance.expovariate(1 / gap) if poisson else gap)) < until_us:
                yield now

        def arrive(rest: Iterator[float]) -> None:
            if self.lanes[lane].room > 0:
                self._put(lane, f"{lane}{self.chance.randrange(agents)}", within_us)
            else:
                self.turned_away += 1
            if (then := next(rest, None)) is not None:
                self.at(then, lambda: arrive(rest))

        if per_s:
            rest = times()
            self.at(next(rest), lambda: arrive(rest))

    def closed_loop(self, lane: Lane, agents: int, until_us: int, think_us: tuple[int, int] = (1500, 3000)) -> None:
        """Agents that send their next state some time after their answer."""

        def step(agent: str) -> None:
            if self.now < until_us:
                then = lambda: self.at(self.now + self.chance.uniform(*think_us), lambda: step(agent))  # noqa: E731
                self._on_answer[self._put(lane, agent, NEVER)] = then

        for n in range(agents):
            self.at(self.chance.uniform(0, think_us[1]), lambda agent=f"{lane}{n}": step(agent))  # type: ignore[misc]

    def _put(self, lane: Lane, agent: str, within_us: int) -> Request:
        deadline_us = self.now + within_us if within_us < NEVER else NEVER
        made = replace(
            MADE, lane=lane, agent=agent.encode(), received_us=self.now, deadline_us=deadline_us, seq=self.put
        )
        self.put += 1
        self.lanes[lane].put([made])
        self.pump()
        return made

    def pump(self) -> None:
        """As `Worker.pump`."""
        while batch := self.schedule.next(self.now):
            self.devices[batch.predictor].inbox.append(batch)
            self._begin(batch.predictor)
        for expired in self.schedule.expired():
            self.lanes[expired.lane].answered(1)
            self.expired += 1
        wake_us = self.schedule.wake_us(self.now)
        if wake_us < self._timer_us or self._timer_us <= self.now:
            self._timer_us = wake_us
            if wake_us < NEVER // 2:
                self.at(wake_us, self.pump)

    def _begin(self, number: int) -> None:
        device = self.devices[number]
        if device.running is not None or not device.inbox:
            return
        batch = next((batch for batch in device.inbox if batch.urgent), device.inbox[0])
        device.inbox.remove(batch)
        device.running, device.begun_us = batch, self.now
        took_us = device.batch_us(len(batch)) * (1 + device.jitter * self.chance.uniform(-1, 1))
        if self.now + took_us < device.hangs_at_us:
            self.at(self.now + took_us, lambda: self._end(number, batch))

    def _end(self, number: int, batch: Batch) -> None:
        device, ended_us = self.devices[number], self.now
        if device.running is not batch:  # it was fenced
            return
        begun_us, device.running = device.begun_us, None
        device.busy_us += ended_us - begun_us
        device.batches += 1
        device.rows += len(batch)
        self._begin(number)
        self.at(self.now + REPORT_US, lambda: self._report(batch, begun_us, ended_us))

    def _report(self, batch: Batch, begun_us: int, ended_us: int) -> None:
        if not self.schedule.holds(batch):
            return
        self.schedule.finished(batch, begun_us, ended_us)
        for found in batch.requests:
            self.waits[found.lane].append((found.received_us, self.now - found.received_us))
            self.late += self.now > found.deadline_us
            self.lanes[found.lane].answered(1)
            self.answered.append(found)
            self._on_answer.pop(found, _nothing)()
        self.pump()

    def fence(self, number: int) -> None:
        """As `Worker.fence` of a predictor that hangs."""
        running, waiting = self.schedule.fence(number)
        for found in running:
            found.hangs += 1
        device = self.devices[number]
        device.inbox, device.running = [], None
        for found in [*running, *waiting]:
            self.lanes[found.lane].put_back(found)
        self.pump()

    def quantile(self, lane: Lane, q: float, *, start_us: int = 0, end_us: int = NEVER) -> float:
        """Of arrival to answer, ms, of those that arrived between."""
        return float(np.quantile([us for at, us in self.waits[lane] if start_us <= at < end_us], q)) / 1000

    @property
    def fill(self) -> float:
        """Rows in batches, of `max_batch`."""
        return sum(device.rows for device in self.devices) / sum(device.batches for device in self.devices) / 64

    @property
    def busy(self) -> float:
        """Of the time so far, the share that the devices ran, on average."""
        return sum(device.busy_us for device in self.devices) / self.now / len(self.devices)


def _nothing() -> None: ...

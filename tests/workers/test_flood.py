"""Lanes and schedule under three times what the model can do, on a clock moved by hand."""

from __future__ import annotations

import random

from tests.workers.build import request
from workers.lanes import Lanes
from workers.requests import NEVER, Batch
from workers.schedule import Schedule
from workers.slots import Limits, Slot

BATCH_US, MAX_BATCH, TICK_US = 100_000, 64, 5_000
PER_TICK = 10  # 2,000 states a second where 640 fit
DEADLINE_US = 1_000_000


class Flood:
    """One predictor that takes `BATCH_US` for every batch, more or less."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._lanes = Lanes({"high": 2048, "normal": 4096, "low": 4096})
        self._schedule = Schedule(self._lanes, [Slot()], Limits(MAX_BATCH, 20_000, 1_000_000, (1, 8, 64)))
        self._chance = random.Random(5)
        self._running: list[Batch] = []
        self._began_us = self._ends_us = 0
        self.in_time = self.late = self.expired = 0

    def run(self, until_us: int) -> None:
        for now_us in range(0, until_us, TICK_US):
            self._arrive(now_us)
            if self._running and now_us >= self._ends_us:
                self._finish(now_us)
            while batch := self._schedule.next(now_us):
                self._running.append(batch)
                if len(self._running) == 1:
                    self._begin(now_us)
            expired = self._schedule.expired()
            self._lanes.normal.answered(len(expired))
            self.expired += len(expired)

    def _arrive(self, now_us: int) -> None:
        n = min(PER_TICK, self._lanes.normal.room)
        deadlines = [now_us + DEADLINE_US if i % self._every == 0 else NEVER for i in range(n)]
        made = [request(f"a{self._chance.randrange(512)}", received_us=now_us, deadline_us=at) for at in deadlines]
        self._lanes.normal.put(made)

    def _begin(self, now_us: int) -> None:
        self._began_us, self._ends_us = now_us, now_us + round(BATCH_US * self._chance.uniform(0.9, 1.1))

    def _finish(self, now_us: int) -> None:
        batch = self._running.pop(0)
        self._schedule.finished(batch, self._began_us, now_us)
        self._lanes.normal.answered(len(batch))
        late = sum(request.deadline_us < now_us for request in batch.requests)
        self.late += late
        self.in_time += len(batch) - late
        if self._running:
            self._begin(now_us)

    def goodput(self, seconds: int) -> float:
        """Answers in time, as a share of what the model can do."""
        return self.in_time / (seconds * MAX_BATCH * 1_000_000 / BATCH_US)


def test_a_flood_of_deadlines_is_answered_in_time_as_fast_as_the_model_can() -> None:
    """Not: everything that runs is answered just after its deadline, and nobody is served."""
    flood = Flood(every=1)
    flood.run(10_000_000)
    assert flood.goodput(10) > 0.85, vars(flood)
    assert flood.expired > 0


def test_states_without_a_deadline_do_not_spoil_it() -> None:
    """Half of the flood is patient; what leaves the model is still in time."""
    flood = Flood(every=2)
    flood.run(10_000_000)
    assert flood.goodput(10) > 0.85, vars(flood)

"""What each predictor holds, and when it would be free for more. State of step 4; `schedule` fills the slots."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from topics.names import Lane
from workers.costs import Costs
from workers.requests import NEVER, Batch


@dataclass(frozen=True, slots=True)
class Limits:
    """The hard bounds of a batch. `buckets`: the batch sizes the model is padded to, ascending."""

    max_batch: int
    max_wait_us: int
    low_max_age_us: int
    buckets: tuple[int, ...]
    fast_pass_wait_us: int = NEVER
    """Batches of normal and low are cut so that they take no longer, where that pays."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The batch sizes worth running: full buckets, and the largest batch."""
        return (*self.buckets[: bisect_left(self.buckets, self.max_batch)], self.max_batch)


@dataclass(slots=True)
class Slot:
    """What one predictor holds: a running batch, an urgent one that runs next, a ready one behind it.

    `warm_us`: what a batch of so many rows took in its warm-up.
    """

    reserved_for: Lane | None = None
    standby: bool = False
    available: bool = True
    max_batch: int = NEVER
    """Its largest batch: the limits', or less where its device has no memory for that."""
    running: Batch | None = None
    urgent: Batch | None = None
    ready: Batch | None = None
    overtaken: bool = False
    """Whether an urgent batch went before the ready one; a second one may not, or high could starve the others."""
    since_us: int = 0
    """When what runs began, as far as we know; when nothing runs, when the last batch ended."""
    warm_us: Mapping[int, int] = field(default_factory=dict)
    number: int = field(init=False)
    costs: Costs = field(init=False)

    def join(self, number: int, limits: Limits) -> None:
        """The slot belongs to predictor `number` of a schedule with these limits."""
        self.number, self.costs = number, Costs(limits.sizes, self.warm_us)
        self.max_batch = limits.max_batch

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
        self.overtaken = self.overtaken and self.ready is not None

    @property
    def takes_urgent(self) -> bool:
        """Whether an urgent batch may go behind the running one."""
        return self.running is not None and self.urgent is None and not self.overtaken

    @property
    def batches(self) -> int:
        """How many batches it holds."""
        return sum(batch is not None for batch in (self.running, self.urgent, self.ready))

    def due_us(self, now_us: int) -> int:
        """When what runs is back if all goes well: at once if it is late already."""
        if self.running is None:
            return now_us
        return max(now_us, self.since_us + self.costs.batch_us(len(self.running)))

    def free_us(self, now_us: int, *, urgent: bool = False) -> int:
        """When a batch behind all that waits here (an urgent one: before what is ready) would begin. What is late is
        expected to be late as long again, so that a predictor that hangs soon looks slow."""
        if self.running is None:
            return now_us
        due_us = self.since_us + self.costs.batch_us(len(self.running))
        waiting = (self.urgent,) if urgent else (self.urgent, self.ready)
        waiting_us = sum([self.costs.batch_us(len(batch)) for batch in waiting if batch is not None])
        return max(due_us, 2 * now_us - due_us) + waiting_us

"""Which predictor gets the next batch, and how large it may be. Part of step 4; pure, decides on the slots it is given.

A batch goes where it is expected back first. Predictors of about the same speed all work while anything waits. One
that is clearly slower (a CPU beside a GPU) is overflow: it gets a batch only if that is back in time, and before the
quicker ones would have worked off all that waits, so that nobody's answer comes later for it.

A standby gets nothing while the predictors before it serve, and takes the place of one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from workers.lanes import LaneQueue
from workers.requests import NEVER, Request
from workers.slots import Limits, Slot

SLOWER: Final = 1.25
"""Whose full batch takes this many times as long as the quickest one's is overflow. Below, the two share the work."""
WITH_LOW: Final = 2
"""Low requests may make a batch of normal take this many times as long. On their own they would take a pass more, and
whoever of normal comes next would wait for that."""
BELIEVED_US: Final = 1_000_000
"""An idle predictor's costs count this long after its last batch; then it tries what seems hopeless, or it could
refuse all for ever on the word of one bad spell."""


class Dispatch:
    """Looks at `slots`; `refresh` after one of them came or went."""

    def __init__(self, slots: Sequence[Slot], limits: Limits) -> None:
        self._slots, self._limits = slots, limits
        self.serving: list[Slot] = []
        self.cut_us = NEVER
        """How long a batch without high may take."""
        self._slowest_us: float = NEVER
        """Whose full batch takes longer is overflow."""
        self.refresh()

    def refresh(self) -> None:
        """Who serves: the hot ones that are available, and a standby for each that is not."""
        hot = [slot for slot in self._slots if not slot.standby]
        serving = [slot for slot in hot if slot.available]
        standbys = [slot for slot in self._slots if slot.standby and slot.available]
        self.serving = serving + standbys[: len(hot) - len(serving)]
        reserved = any(slot.reserved_for for slot in self.serving)
        self.cut_us = NEVER if reserved else self._limits.fast_pass_wait_us
        self.learned()

    def learned(self) -> None:
        """A predictor's costs have changed: who is the quickest that any lane may use?"""
        shared = [slot for slot in self.serving if slot.reserved_for is None]
        known_us = [slot.costs.full_us for slot in shared if slot.costs.full_us]
        self._slowest_us = SLOWER * min(known_us) if len(known_us) > 1 else NEVER

    def idle(self) -> list[Slot]:
        """Predictors with nothing to run, the quickest first."""
        idle = [slot for slot in self.serving if slot.running is None]
        return sorted(idle, key=_full_us) if len(idle) > 1 else idle

    def for_urgent(self, n: int, now_us: int) -> Slot | None:
        """The running predictor that would bring back `n` urgent requests first; None if none takes any more."""
        free = [slot for slot in self.serving if slot.takes_urgent]
        if len(free) < 2:
            return free[0] if free else None
        return min(free, key=lambda slot: slot.free_us(now_us, urgent=True) + slot.costs.batch_us(n))

    def for_ready(self, now_us: int) -> list[Slot]:
        """Running predictors with room for a ready batch, the one that would bring it back first in front."""
        free = [slot for slot in self.serving if slot.running and slot.ready is None and slot.reserved_for is None]
        if len(free) < 2:
            return free
        return sorted(free, key=lambda slot: slot.free_us(now_us) + slot.costs.full_us)

    def most(self, slot: Slot, queue: LaneQueue, start_us: int, now_us: int) -> int:
        """How many rows a batch from `queue` that begins at `start_us` may have there; 0 if it should go elsewhere.

        The tightest deadline counts with a quarter for what may be slower.
        """
        n = min(len(queue), slot.max_batch)
        if n == 0:
            return slot.max_batch
        must_us = (queue.next_deadline_us() - start_us) * 4 // 5
        if self.is_overflow(slot):
            if queue.lane != "low":  # low has time, and takes whatever idles
                must_us = min(must_us, self._worked_off_us(slot, queue, now_us) - start_us)
            if slot.costs.batch_us(rows := slot.costs.rows_within(n, must_us)) > must_us:
                return 0
            n = rows
        within_us = must_us if queue.lane == "high" else min(must_us, self.cut_us)
        rows = slot.costs.rows_within(n, within_us)
        return rows if rows < len(queue) else slot.max_batch

    def shared_rows(self, slot: Slot, requests: Sequence[Request], start_us: int) -> int:
        """To how many rows low may fill up a batch of these normal requests that begins at `start_us`."""
        n = len(requests)
        must_us = (requests[0].deadline_us - start_us) * 4 // 5
        within_us = min(WITH_LOW * slot.costs.batch_us(n), self.cut_us, must_us)
        return min(max(slot.costs.free_rows(n), slot.costs.grown(n, within_us)), slot.max_batch)

    def is_overflow(self, slot: Slot) -> bool:
        """Whether it is clearly slower than the quickest that serves."""
        return slot.costs.full_us > self._slowest_us

    def _quicker(self, slot: Slot, queue: LaneQueue) -> Iterator[Slot]:
        for other in self.serving:
            if other.costs.full_us < slot.costs.full_us and (other.reserved_for is None or queue.lane == "high"):
                yield other

    def _worked_off_us(self, slot: Slot, queue: LaneQueue, now_us: int) -> int:
        """When the quicker predictors would have brought back all of `queue`, each according to its speed."""
        waiting, urgent = len(queue), queue.lane == "high"
        first_us, speed, busy_rows = NEVER, 0.0, 0.0
        for other in self._quicker(slot, queue):
            wait_us = other.free_us(now_us, urgent=urgent) - now_us
            first_us = min(first_us, wait_us + other.costs.batch_us(min(waiting, other.max_batch)))
            rows_per_us = other.max_batch / max(other.costs.batch_us(other.max_batch), 1)
            speed += rows_per_us
            busy_rows += rows_per_us * wait_us
        if first_us == NEVER:
            return NEVER
        return now_us + max(first_us, round((waiting + busy_rows) / speed))

    def soonest_us(self, queue: LaneQueue, now_us: int) -> int:
        """Before this no answer to a request of `queue` can come, whoever runs it."""
        soonest_us = NEVER
        for slot in self.serving:
            if slot.reserved_for is None or queue.lane == "high":
                believed = slot.running is not None or now_us - slot.since_us < BELIEVED_US
                soonest_us = min(soonest_us, slot.due_us(now_us) + (slot.costs.least_us if believed else 0))
        return soonest_us if soonest_us < NEVER else now_us

    def retry_us(self, n: int, now_us: int) -> int:
        """When an idle overflow predictor that did not take `n` waiting requests should look again: by then those who
        should have taken them are late."""
        running = [slot.due_us(now_us) for slot in self.serving if slot.running is not None]
        idle = [slot.costs.batch_us(n) for slot in self.idle()] if running else []
        return min(running) + min(idle) if idle else NEVER


def _full_us(slot: Slot) -> int:
    return slot.costs.full_us

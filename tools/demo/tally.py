"""What the agents counted: latencies by lane, outcomes, and what had to be asked again.

Filled once per `decide_many` by the agents' process, read twice a second for the live view and once for the result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from topics.names import LANES, Lane
from topics.tensors import Array

PERCENTILES = (50, 95, 99)


@dataclass(slots=True)
class LaneTally:
    """One lane's answers. `latencies_s`: blocks [n] of seconds from the call to each answer's arrival."""

    latencies_s: list[Array] = field(default_factory=list)
    shown: int = 0
    """Blocks that an earlier window has shown."""

    def numbers(self, blocks: list[Array]) -> dict[str, Any]:
        """How many answers, and their percentiles; None where there is none."""
        together = np.concatenate(blocks) if blocks else np.empty(0)
        values = np.percentile(together, PERCENTILES) * 1e3 if len(together) else [None] * len(PERCENTILES)
        found = {
            f"p{percent}_ms": None if value is None else round(float(value), 3)
            for percent, value in zip(PERCENTILES, values, strict=True)
        }
        return {"answered": len(together), **found}


class Tally:
    """Counts of one play. Latencies take 8 bytes an answer: 10 MB after a million."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, LaneTally] = {lane: LaneTally() for lane in LANES}
        self._workers: dict[str, list[int]] = {}
        self.outcomes: Counter[str] = Counter()
        self.asked_again = 0
        """States that had no action and were asked once more; one state may count several times."""
        self.unanswered = 0
        """States that never got an action, however often they were asked."""

    def answered(self, lane: Lane, latencies_s: Array) -> None:
        """Answers in `lane` arrived after `latencies_s` [n]; NaN where none came."""
        came = latencies_s[~np.isnan(latencies_s)]
        if len(came):
            self._lanes[lane].latencies_s.append(came)

    def sampled(self, worker: str, batch_size: int) -> None:
        """One answer of a call, taken apart: who gave it, and in how large a batch it ran."""
        self._workers.setdefault(worker, []).append(batch_size)

    def window(self) -> dict[str, Any]:
        """Every lane's numbers since the last call of this."""
        lanes: dict[str, Any] = {}
        for lane, tally in self._lanes.items():
            lanes[lane] = tally.numbers(tally.latencies_s[tally.shown :])
            tally.shown = len(tally.latencies_s)
        return lanes

    def lanes(self) -> dict[str, Any]:
        """Every lane's numbers of the whole play."""
        return {lane: tally.numbers(tally.latencies_s) for lane, tally in self._lanes.items()}

    def workers(self) -> dict[str, float]:
        """Workers that answered, with the mean size of their batches.

        Large batches have more answers, so more samples: the harmonic mean of the samples is the batches' mean.
        """
        return {
            worker: round(len(sizes) / float(np.sum(1 / np.maximum(sizes, 1))), 1)
            for worker, sizes in sorted(self._workers.items())
        }

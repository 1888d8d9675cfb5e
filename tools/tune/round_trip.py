"""What client, broker and a worker without a model add to every answer. Measured by `live`, or given by the user."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from topics.names import LANES, Lane

SATURATED_US: Final = 15.0
"""CPU of a worker for each decision at the rates of `fleet bench drain`, which finds 8–15 (docs/performance.md). At low
rates it is many times as much, as fewer states share a poll and a flush; so a low rate says nothing of a high one."""
LOOP_FULL: Final = 0.8
"""Of a core: a worker's event loop that is busier answers late."""
MOST_PER_S: Final = LOOP_FULL / SATURATED_US * 1e6
"""What one worker's event loop is taken to carry."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """ms of round trips by lane, and the worker's CPU per decision, at `rate_per_s` through one worker."""

    ms: Mapping[Lane, npt.NDArray[np.float64]]
    cpu_us: float
    rate_per_s: float
    measured: bool

    def added(self, lane: Lane, waits_ms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Each wait with a round trip drawn from those of its lane; the two are taken as independent."""
        total_ms: npt.NDArray[np.float64] = waits_ms + np.random.default_rng(1).choice(self.ms[lane], len(waits_ms))
        return total_ms

    def p99_ms(self, lane: Lane) -> float:
        """Of round trips without a model."""
        return float(np.percentile(self.ms[lane], 99))

    def p50_ms(self, lane: Lane) -> float:
        """Of round trips without a model."""
        return float(np.percentile(self.ms[lane], 50))


def given(ms: float) -> RoundTrip:
    """The same for every state, at any rate."""
    return RoundTrip({lane: np.array([ms]) for lane in LANES}, 0.0, math.inf, measured=False)

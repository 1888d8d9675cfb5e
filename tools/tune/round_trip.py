"""What client, broker and a worker without a model add to every answer. Measured by `live`, or given by the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from topics.names import LANES, Lane

CPU_US: Final = 15.0
"""Of a worker for each decision, at saturation: `fleet bench drain` finds 8–15 (docs/performance.md). Counts where
nothing was measured."""
LOOP_FULL: Final = 0.8
"""Of a core: a worker's event loop that is busier answers late."""


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

    def carries(self, per_s: float) -> bool:
        """Whether one worker's event loop takes `per_s`: it was seen to, or its CPU suffices. The more states a second,
        the less CPU each takes, as they share polls and answers; so the second is a careful guess."""
        return per_s <= self.rate_per_s or per_s * self.cpu_us / 1e6 <= LOOP_FULL


def given(ms: float) -> RoundTrip:
    """The same for every state."""
    return RoundTrip({lane: np.array([ms]) for lane in LANES}, CPU_US, 0.0, measured=False)

"""The simulated devices that scheduling and scaling are measured on, as settings of their workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Modest:
    """A device slow enough that two shared cores are not the limit: a full batch takes `full_us`."""

    max_batch: int
    batch_us: float
    row_us: float
    fast_pass_wait_ms: float = 10.0

    @property
    def full_us(self) -> float:
        """`max_batch` must be a bucket of the model package, else padding comes on top."""
        return self.batch_us + self.row_us * self.max_batch

    @property
    def capacity_per_s(self) -> float:
        """Rows per second in full batches, back to back."""
        return self.max_batch / self.full_us * 1e6

    def settings(self, *, reserved: bool = False) -> Mapping[str, Any]:
        """A worker with one such predictor; `reserved`: and another one for the high lane alone."""
        simulated = {"batch_us": self.batch_us, "row_us": self.row_us}
        predictors: list[dict[str, Any]] = [{"device": "simulated", "simulated": {**simulated, "seed": 1}}]
        if reserved:
            predictors.append({"device": "simulated", "simulated": {**simulated, "seed": 2}, "reserved_for": "high"})
        batch = {"max_batch": self.max_batch, "fast_pass_wait_ms": self.fast_pass_wait_ms}
        return {"predictors": predictors, "batch": batch}


QUICK = Modest(max_batch=8, batch_us=2000, row_us=500)
"""6 ms a full batch, 1,333 rows/s, 2.5 ms a single row: below 10 ms (`fast_pass_wait_ms`), so no batch is cut."""
FULL = Modest(max_batch=64, batch_us=7200, row_us=200, fast_pass_wait_ms=50)
"""20 ms a batch, 3,200 rows/s: longer than a round trip, so that whatever is outstanding can be there in time."""
SLOW = Modest(max_batch=8, batch_us=20_000, row_us=2500, fast_pass_wait_ms=100)
"""40 ms a batch, 200 rows/s: eight of them stay below what two cores carry."""

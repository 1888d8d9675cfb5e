"""What a batch takes on the predictor that is to be tuned: measured here, or said by a simulated device.

The first thing that `fleet tune` does. Gives µs by bucket, as the worker's cost model learns them, and how far batches
of one size lie apart.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from topics.observations import Row
from workers.assembly import make_predictor, start_predictors
from workers.metrics import Metrics
from workers.models.model import Model
from workers.models.package import Manifest, read_manifest
from workers.models.samples import sample_inputs
from workers.predictors.forward import Forward
from workers.settings import Settings

RUNS: Final = 31
"""Passes per bucket; of so many, one in three may be disturbed and the median does not move."""
AT_MOST_S: Final = 1.0
"""Per bucket: a model of 100 ms a batch is timed 10 times."""


@dataclass(frozen=True, slots=True)
class Curve:
    """µs of a batch by bucket, ascending, and the share that it may take more or less."""

    batch_us: dict[int, float]
    jitter: float

    def us(self, rows: int) -> float:
        """What a batch of `rows` takes, padded to its bucket."""
        buckets = list(self.batch_us)
        return self.batch_us[buckets[bisect_left(buckets, rows)]]

    def rows_per_s(self, rows: int) -> float:
        """What one predictor answers in batches of `rows`, back to back."""
        return rows / max(self.us(rows), 1.0) * 1e6

    @property
    def capacity_per_s(self) -> float:
        """What one predictor answers with the batch size that suits it best."""
        return max(self.rows_per_s(rows) for rows in self.batch_us)

    @property
    def least_ms(self) -> float:
        """What the smallest batch takes: no answer comes in less."""
        return min(self.batch_us.values()) / 1000


def simulated_curve(settings: Settings) -> Curve:
    """What the simulated device of the first predictor says that it takes."""
    device = settings.predictors[0].simulated
    buckets = read_manifest(settings.model.path).buckets
    return Curve({rows: device.batch_us + device.row_us * rows for rows in buckets}, device.jitter)


def measured_curve(settings: Settings, on_bucket: Callable[[float], None]) -> Curve:
    """What batches take on the first predictor's device; `on_bucket(n)` after the n-th bucket.

    Raises:
        ModelError: the package cannot be loaded.
    """
    return asyncio.run(_measured(settings, on_bucket))


async def _measured(settings: Settings, on_bucket: Callable[[float], None]) -> Curve:
    """Loaded as the worker loads it, then timed with what a batch does around its forward pass."""
    predictor = make_predictor(settings, 0, Metrics(max_batch=settings.batch.max_batch))
    model = await start_predictors([predictor])
    try:
        return _timed(model, on_bucket)
    finally:
        await predictor.stop(1.0)


def _timed(model: Model, on_bucket: Callable[[float], None]) -> Curve:
    model.warm_up()  # for this thread, which times it
    forward, times, spreads = Forward(model), {}, []
    for number, rows in enumerate(model.manifest.buckets):
        took_us = _pass_us(forward, _rows(model.manifest, rows))
        times[rows] = median(took_us)
        spreads.append((np.percentile(took_us, 90) - np.percentile(took_us, 10)) / 2 / times[rows])
        on_bucket(number + 1)
    return Curve(_rising(times), min(float(median(spreads)), 0.9))


def _rising(times: dict[int, float]) -> dict[int, float]:
    """A larger bucket never looks quicker than a smaller one: that would be noise."""
    return dict(zip(times, np.maximum.accumulate(list(times.values())).tolist(), strict=True))


def _pass_us(forward: Forward, rows: list[tuple[Row, ...]]) -> list[float]:
    took_us: list[float] = []
    end_s = time.monotonic() + AT_MOST_S
    while len(took_us) < RUNS and (len(took_us) < 3 or time.monotonic() < end_s):
        begun_s = time.perf_counter()
        forward(rows)
        took_us.append((time.perf_counter() - begun_s) * 1e6)
    return took_us


def _rows(manifest: Manifest, count: int) -> list[tuple[Row, ...]]:
    """`count` states as admission leaves them: bytes for each input."""
    inputs = sample_inputs(manifest, count, seed=1)
    return [tuple(inputs[spec.name][row].tobytes() for spec in manifest.inputs) for row in range(count)]

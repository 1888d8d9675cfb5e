"""Fleets for these tests: a device said in numbers, traffic of a few seconds, nothing loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.tune.curve import Curve
from tools.tune.fleet import Fleet
from tools.tune.round_trip import RoundTrip, given
from tools.tune.target import make_target
from tools.tune.traffic import Traffic, poisson
from topics.names import Lane
from workers.settings import BatchSettings, ModelSettings, PredictorSettings, Settings, SimulatedSettings

BUCKETS = (1, 8, 64)
STATES = 1500


def settings(batch_us: float = 2000, row_us: float = 500, *, max_batch: int = 64, max_wait_ms: float = 20) -> Settings:
    """A worker of one simulated device."""
    return Settings(
        model=ModelSettings(path=Path("tools/demo/models/cartpole")),
        predictors=(
            PredictorSettings(device="simulated", simulated=SimulatedSettings(batch_us=batch_us, row_us=row_us)),
        ),
        batch=BatchSettings(max_batch=max_batch, max_wait_ms=max_wait_ms),
    )


def curve(batch_us: float = 2000, row_us: float = 500, jitter: float = 0.0) -> Curve:
    """A line."""
    return Curve({rows: batch_us + row_us * rows for rows in BUCKETS}, jitter)


def fleet(
    p99_ms: Mapping[Lane, float],
    rate_per_s: Mapping[Lane, float],
    *,
    like: Curve | None = None,
    trip: RoundTrip | None = None,
    ours: Settings | None = None,
    traffic: Traffic | None = None,
) -> Fleet:
    """Ready to try candidates."""
    return Fleet(
        ours or settings(),
        like or curve(),
        traffic or poisson(rate_per_s, agents=64),
        trip or given(3.0),
        make_target(p99_ms, rate_per_s),
        STATES,
    )


@contextmanager
def no_bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """Nobody looks."""
    yield lambda done: None

"""`fleet worker --explain`: what would be chosen here and why, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.explain import explain
from workers.settings import BatchSettings, ModelSettings, PredictorSettings, Settings, SimulatedSettings


def settings(*predictors: PredictorSettings, fast_pass_wait_ms: float = 10) -> Settings:
    return Settings(
        model=ModelSettings(path=Path("tools/demo/models/cartpole")),
        predictors=predictors,
        batch=BatchSettings(fast_pass_wait_ms=fast_pass_wait_ms),
    )


def simulated(batch_us: float, row_us: float, *, standby: bool = False) -> PredictorSettings:
    device = SimulatedSettings(batch_us=batch_us, row_us=row_us, jitter=0)
    return PredictorSettings(device="simulated", simulated=device, standby=standby)


def test_it_tells_what_was_measured_and_how_large_batches_get(capsys: pytest.CaptureFixture[str]) -> None:
    """Batches are cut where that keeps high's wait short; who stands by says so."""
    explain(settings(simulated(0, 100), simulated(0, 100, standby=True), fast_pass_wait_ms=3.5), as_json=True)
    found = json.loads(capsys.readouterr().out)
    hot, standby = found["predictors"]
    assert (hot["role"], standby["role"]) == ("hot", "standby")
    assert hot["rows_without_high"] == 32 and "cut to batch.fast_pass_wait_ms=3.5" in hot["why_rows"]
    assert 60 < hot["row_us"] < 140
    assert found["cpus"]["usable"] >= 1 and found["batch"]["sizes"] == [1, 2, 4, 8, 16, 32, 64]


def test_it_says_when_high_would_wait_longer_than_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a pass takes long whatever its size, only a predictor of its own helps."""
    explain(settings(simulated(12_000, 0)), as_json=False)
    shown = capsys.readouterr().out
    assert "reserve a predictor for high" in shown and "simulated" in shown

"""Assembly: a predictor that does not load leaves the others serving; only if none loads is it the package's fault."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workers.predictors.test_forward import Doubling
from tests.workers.predictors.test_predictor import small
from workers.assembly import start_predictors
from workers.metrics import Metrics
from workers.models.errors import ModelError
from workers.models.model import Model
from workers.predictors.predictor import Predictor


def predictor(name: str, fault: str | None = None) -> Predictor:
    def load() -> Model:
        if fault is not None:
            raise ModelError(fault)
        return small(Doubling())

    return Predictor(name, load, Metrics(max_batch=8))


async def test_one_that_does_not_load_leaves_the_others_serving() -> None:
    """The worker starts with what it has; the supervisor goes on trying."""
    lost, well = predictor("cuda:0", "no such device"), predictor("cpu")
    model: Any = await start_predictors([lost, well])
    assert model.device == "cpu"
    assert lost.broken == "no such device" and well.broken is None
    assert await well.stop(5)


async def test_a_package_that_no_predictor_loads_ends_the_start_with_its_line() -> None:
    """Exit code 4: a restart would not help, and nobody waits for one."""
    with pytest.raises(ModelError, match=r"weights\.safetensors is not the file") as raised:
        await start_predictors([predictor("cuda:0", "weights.safetensors is not the file"), predictor("cpu", "same")])
    assert raised.value.exit_code == 4

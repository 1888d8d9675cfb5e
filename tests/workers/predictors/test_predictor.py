"""Predictor: batches come back in the order in which they must run, from a thread that reports its own end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.workers.build import request
from tests.workers.predictors.test_forward import Doubling
from topics.errors import FleetError
from topics.tensors import Array, TensorSpec
from workers.metrics import Metrics
from workers.predictors.predictor import Predictor
from workers.requests import Batch, Predicted


class Gated(Doubling):
    """A model that waits at a gate before each batch, and warms up without work."""

    def __init__(self) -> None:
        super().__init__()
        self.manifest.inputs = (TensorSpec("observation", "float32", (4,)),)
        self.entered = threading.Event()
        self.gate = threading.Event()

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.entered.set()
        assert self.gate.wait(5)
        return {"action": np.zeros(len(inputs["observation"]), np.float32)}

    def warm_up(self, on_bucket: Any = None) -> None:
        pass


def batch(agent: str, *, urgent: bool = False) -> Batch:
    return Batch(0, [request(agent)], 0, urgent)


async def test_urgent_batches_overtake_ready_ones_and_never_each_other() -> None:
    """Two urgent batches handed over while one runs keep their order, both before what was ready."""
    model, ran = Gated(), []
    predictor = Predictor("cpu", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    done = asyncio.Event()

    def on_predicted(predicted: Predicted) -> None:
        ran.append(predicted.batch.requests[0].agent.decode())
        if len(ran) == 5:
            done.set()

    predictor.deliver(on_predicted, lambda error: pytest.fail(str(error)))
    predictor.submit(batch("running"))
    await asyncio.to_thread(model.entered.wait, 5)
    for agent, urgent in (("ready-1", False), ("urgent-1", True), ("ready-2", False), ("urgent-2", True)):
        predictor.submit(batch(agent, urgent=urgent))
    model.gate.set()
    await asyncio.wait_for(done.wait(), 5)
    assert ran == ["running", "urgent-1", "urgent-2", "ready-1", "ready-2"]
    assert await predictor.stop(5)


async def test_a_quick_model_runs_on_the_event_loop_and_keeps_the_order() -> None:
    """No thread is left, and urgent batches still overtake ready ones."""
    model = Doubling()
    model.manifest.inputs = (TensorSpec("observation", "float32", (4,)),)
    model.manifest.backend = SimpleNamespace(factory="mlp")
    model.warm_up = lambda on_bucket=None: None  # type: ignore[method-assign]
    ran: list[str] = []
    predictor = Predictor("cpu", lambda: model, Metrics(max_batch=8), quick_rows=8)
    await predictor.start()
    assert predictor.runs_on_loop
    predictor.deliver(lambda predicted: ran.append(predicted.batch.requests[0].agent.decode()), lambda _: None)
    for agent, urgent in (("ready-1", False), ("urgent-1", True), ("ready-2", False), ("urgent-2", True)):
        predictor.submit(batch(agent, urgent=urgent))
    assert ran == [], "never inside submit: the schedule is not done yet"
    await asyncio.sleep(0.01)
    assert ran == ["urgent-1", "urgent-2", "ready-1", "ready-2"]
    assert await predictor.stop(5)


@pytest.mark.parametrize(("factory", "seconds"), [("mine.models:make", 0.0), ("mlp", 0.002)])
async def test_foreign_code_and_slow_models_keep_their_thread(factory: str, seconds: float) -> None:
    """Foreign code may hang, slow models would hold up the intake."""
    model = Doubling()
    model.manifest.inputs = (TensorSpec("observation", "float32", (4,)),)
    model.manifest.backend = SimpleNamespace(factory=factory)
    model.warm_up = lambda on_bucket=None: None  # type: ignore[method-assign]
    model.predict = lambda inputs: time.sleep(seconds) or {}  # type: ignore[method-assign,func-returns-value,return-value]
    predictor = Predictor("cpu", lambda: model, Metrics(max_batch=8), quick_rows=8)
    await predictor.start()
    assert not predictor.runs_on_loop
    assert await predictor.stop(5)


async def test_a_model_that_does_not_load_is_told_at_start() -> None:
    """In one line that names the predictor."""

    def load() -> Any:
        raise MemoryError("no room")

    with pytest.raises(FleetError, match="predictor cuda:1 did not start: MemoryError: no room"):
        await Predictor("cuda:1", load, Metrics(max_batch=8)).start()


async def test_a_batch_that_raised_is_counted() -> None:
    """Halving answers its good rows, but whoever watches the model must see that it raises."""
    model = Doubling(raises_on=0.0)
    model.manifest.inputs = (TensorSpec("observation", "float32", (4,)),)
    model.warm_up = lambda on_bucket=None: None  # type: ignore[method-assign]
    metrics = Metrics(max_batch=8)
    predictor = Predictor("cpu", lambda: model, metrics)
    await predictor.start()
    ran: asyncio.Future[Predicted] = asyncio.get_running_loop().create_future()
    predictor.deliver(ran.set_result, lambda error: pytest.fail(str(error)))
    predictor.submit(batch("zeros"))
    assert list((await asyncio.wait_for(ran, 5)).faults) == [0]
    assert metrics.registry.get_sample_value("fleet_batch_failures_total", {"predictor": "cpu"}) == 1
    assert await predictor.stop(5)


async def test_a_predictor_that_hangs_does_not_hold_up_the_end() -> None:
    """`stop` is bounded and says so."""
    model = Gated()
    predictor = Predictor("cpu", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    predictor.deliver(lambda _: None, lambda _: None)
    predictor.submit(batch("stuck"))
    assert not await predictor.stop(0.1)
    model.gate.set()
    assert await predictor.stop(5)

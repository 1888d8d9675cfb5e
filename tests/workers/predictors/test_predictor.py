"""Predictor: batches come back in the order in which they must run, from a thread that reports its own end."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
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


async def test_threads_change_between_batches_in_the_predictors_own_thread() -> None:
    """Their number belongs to the thread that makes the passes; what runs is not disturbed."""
    model, told, ran = Gated(), [], asyncio.Queue[Predicted]()
    model.use_threads = lambda threads: told.append((threads, threading.current_thread().name))  # type: ignore[attr-defined]
    predictor = Predictor("cpu", lambda: model, Metrics(max_batch=8), threads=2)
    await predictor.start()
    predictor.deliver(ran.put_nowait, lambda error: pytest.fail(str(error)))
    predictor.submit(batch("a"))
    await asyncio.to_thread(model.entered.wait, 5)
    predictor.threads = 1
    assert told == []
    model.gate.set()
    for agent in ("b", "c"):
        predictor.submit(batch(agent))
    for _ in range(3):
        await asyncio.wait_for(ran.get(), 5)
    assert told == [(1, "predictor-cpu")]
    assert await predictor.stop(5)


async def test_a_model_that_does_not_load_is_told_at_start() -> None:
    """In one line that names the predictor."""

    def load() -> Any:
        raise MemoryError("no room")

    with pytest.raises(FleetError, match="predictor cuda:1 did not start: MemoryError: no room"):
        await Predictor("cuda:1", load, Metrics(max_batch=8)).start()


async def test_a_batch_that_raised_is_counted() -> None:
    """Halving answers its good rows, but whoever watches the model must see that it raises."""
    model = Doubling(raises_on=7.0)
    model.manifest.inputs = (TensorSpec("observation", "float32", (4,)),)
    model.warm_up = lambda on_bucket=None: None  # type: ignore[method-assign]
    metrics = Metrics(max_batch=8)
    predictor = Predictor("cpu", lambda: model, metrics)
    await predictor.start()
    ran: asyncio.Future[Predicted] = asyncio.get_running_loop().create_future()
    predictor.deliver(ran.set_result, lambda error: pytest.fail(str(error)))
    predictor.submit(poison())
    assert predictor.broken is None
    assert list((await asyncio.wait_for(ran, 5)).faults) == [0]
    assert metrics.registry.get_sample_value("fleet_batch_failures_total", {"predictor": "cpu"}) == 1
    assert await predictor.stop(5)


async def test_rows_that_all_raise_do_not_break_a_model_that_takes_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of nothing but bad states is answered at once: no back-off, no new model."""
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waited"))
    model = small(Doubling(raises_on=7.0))
    predictor = Predictor("cpu", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    ran = first(predictor)
    predictor.submit(poison(5))
    assert sorted((await asyncio.wait_for(ran, 5)).faults) == [0, 1, 2, 3, 4]
    assert predictor.broken is None and predictor.has_served
    assert await predictor.stop(5)


async def test_a_model_that_takes_nothing_is_tried_again_and_then_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are not blamed: the batch does not come back, and the predictor says why."""
    monkeypatch.setattr("workers.predictors.predictor.BACK_OFF_S", (0.001, 0.001))
    model = small(Doubling(raises_on=0.0))  # zeros too
    predictor = Predictor("cuda:0", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    predictor.deliver(lambda _: pytest.fail("came back"), lambda error: pytest.fail(str(error)))
    predictor.submit(batch("innocent"))
    async with asyncio.timeout(5):
        while predictor.broken is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert "an illegal instruction" in predictor.broken
    assert model.passes == 3 * 2, "three tries, each with a probe"
    assert not predictor.has_served
    assert await predictor.stop(5)


class Lost(Doubling):
    """Its device is lost in the middle of a batch."""

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self.passes != 1:  # the whole batch fails, its first half comes through
            self.passes += 1
            raise RuntimeError("CUDA error: the device fell off the bus")
        return super().predict(inputs)


async def test_a_device_that_is_lost_in_the_middle_of_a_batch_fails_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that came through before do not make those behind them bad ones."""
    monkeypatch.setattr("workers.predictors.predictor.BACK_OFF_S", ())
    model = small(Lost())
    predictor = Predictor("cuda:0", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    told: list[object] = []
    predictor.deliver(told.append, told.append)
    predictor.submit(poison(8))
    assert predictor._thread is not None
    await asyncio.to_thread(predictor._thread.join, 5)
    await asyncio.sleep(0)
    assert told == [] and "fell off the bus" in (predictor.broken or "")


async def test_a_model_that_recovers_in_time_answers_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that needed a moment: nobody hears of it."""
    model = small(Doubling(raises_on=0.0))
    monkeypatch.setattr("time.sleep", lambda _: setattr(model, "_raises_on", None))
    predictor = Predictor("cuda:0", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    ran = first(predictor)
    predictor.submit(batch("innocent"))
    assert (await asyncio.wait_for(ran, 5)).faults == {}
    assert predictor.broken is None
    assert await predictor.stop(5)


def small(model: Doubling) -> Doubling:
    """The model takes what `request` gives."""
    model.manifest.inputs = (TensorSpec("observation", "float32", (4,)),)
    model.warm_up = lambda on_bucket=None: None  # type: ignore[method-assign]
    return model


def poison(n: int = 1) -> Batch:
    """Rows of sevens."""
    requests = [request(f"a{number}") for number in range(n)]
    for one in requests:
        one.rows = (np.full(4, 7, np.float32).tobytes(),)
    return Batch(0, requests, 0)


def first(predictor: Predictor) -> asyncio.Future[Predicted]:
    """The first batch that comes back."""
    ran: asyncio.Future[Predicted] = asyncio.get_running_loop().create_future()
    predictor.deliver(ran.set_result, lambda error: pytest.fail(str(error)))
    return ran


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


async def test_a_fenced_predictor_lets_go_of_its_model_and_runs_nothing_more() -> None:
    """Its batches run elsewhere by then, and the model that is loaded anew may need the device's memory."""
    seen: list[weakref.ref[Gated]] = []
    gate = threading.Event()

    def load() -> Gated:
        model = Gated()
        model.gate = gate
        seen.append(weakref.ref(model))
        return model

    metrics = Metrics(max_batch=8)
    predictor = Predictor("cuda:0", load, metrics)
    await predictor.start()
    told: list[object] = []
    predictor.deliver(told.append, told.append)
    predictor.submit(batch("hangs"))
    predictor.submit(batch("ready"))
    model = seen[0]()
    assert model is not None and await asyncio.to_thread(model.entered.wait, 5)
    del model
    predictor.fence()
    gate.set()
    assert await predictor.stop(5)
    await asyncio.sleep(0)
    assert told == []
    assert seen[0]() is None
    assert metrics.registry.get_sample_value("fleet_batch_failures_total", {"predictor": "cuda:0"}) == 1
    assert predictor.largest_batch is None


async def test_a_broken_predictor_lets_go_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread has ended by itself."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    seen: list[weakref.ref[Doubling]] = []

    def load() -> Doubling:
        model = small(Doubling(raises_on=0.0))
        seen.append(weakref.ref(model))
        return model

    predictor = Predictor("cuda:0", load, Metrics(max_batch=8))
    await predictor.start()
    told: list[object] = []
    predictor.deliver(told.append, told.append)
    predictor.submit(batch("innocent"))
    assert predictor._thread is not None
    await asyncio.to_thread(predictor._thread.join, 5)
    assert predictor.broken and told == []
    predictor.fence()
    assert seen[0]() is None


@pytest.mark.parametrize("quick_rows", [None, 8])
async def test_what_taking_a_batch_back_raises_is_told(quick_rows: int | None) -> None:
    """Nobody awaits that call: the event loop would log it and leave the batch's states in limbo."""
    model = small(Doubling())
    model.manifest.backend = SimpleNamespace(factory="mlp")
    predictor = Predictor("cpu", lambda: model, Metrics(max_batch=8), quick_rows=quick_rows)
    await predictor.start()
    assert predictor.runs_on_loop == (quick_rows is not None)
    told: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    fault = ValueError("not to be encoded")

    def take_back(_: Predicted) -> None:
        raise fault

    predictor.deliver(take_back, told.set_result)
    predictor.submit(batch("limbo"))
    assert await asyncio.wait_for(told, 5) is fault
    assert await predictor.stop(5)


class Clocked(Doubling):
    """Each pass takes as long as it is told, on a clock moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.now_us = 1
        self.pass_us = 0
        monkeypatch.setattr("workers.predictors.predictor.now_us", lambda: self.now_us)
        monkeypatch.setattr("time.sleep", self._sleep)

    def _sleep(self, wait_s: float) -> None:
        self._raises_on = None  # it has recovered by then
        self.now_us += round(wait_s * 1e6)

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.now_us += self.pass_us
        return super().predict(inputs)


async def bring_back(predictor: Predictor) -> None:
    ran = first(predictor)
    predictor.submit(batch("a"))
    await asyncio.wait_for(ran, 5)


async def test_a_batch_that_was_slow_long_ago_makes_no_hang_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 10 s would let every later hang last for 200 s, until the end of the process."""
    monkeypatch.setattr("workers.predictors.predictor.LAST_BATCHES", 2)
    model = Clocked(monkeypatch)
    small(model)
    predictor = Predictor("cuda:0", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    for pass_us, hangs in ((10_000_000, False), (1000, False), (1000, False), (1000, False), (1000, True)):
        model.pass_us = pass_us
        await bring_back(predictor)
        predictor._running_since_us = 1
        assert predictor.hangs(1 + 11_000_000, 10_000_000) is hangs, pass_us
    assert predictor.has_served and await predictor.stop(5)


async def test_waits_between_tries_make_no_hang_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model does not run meanwhile."""
    monkeypatch.setattr("workers.predictors.predictor.BACK_OFF_S", (5.0,))
    model = Clocked(monkeypatch, raises_on=0.0)
    small(model)
    predictor = Predictor("cuda:0", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    model.pass_us = 1000
    await bring_back(predictor)
    predictor._running_since_us = 1
    assert model.now_us > 5_000_000 and predictor.hangs(1 + 11_000_000, 10_000_000)
    assert await predictor.stop(5)


async def test_a_fenced_predictor_begins_no_pass() -> None:
    """Its thread may be between two batches: it has nothing to hang in then, and ends."""
    model = small(Doubling())
    predictor = Predictor("cuda:0", lambda: model, Metrics(max_batch=8))
    await predictor.start()
    forward = predictor._forward
    assert forward is not None
    predictor.fence()
    assert predictor._predict(forward, batch("next")) is None
    assert model.passes == 0 and predictor.running is None
    assert await predictor.stop(5)


async def test_a_batch_that_ends_while_its_predictor_is_fenced_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a failed one: what it brings back is not expected any more."""
    metrics = Metrics(max_batch=8)
    model = small(Doubling())
    predictor = Predictor("cuda:0", lambda: model, metrics)
    await predictor.start()
    forward, told = predictor._forward, iter([1])

    def now_us() -> int:
        if model.passes and next(told, None):  # the pass is over, and its end is not told yet
            predictor.fence()
        return 1000

    monkeypatch.setattr("workers.predictors.predictor.now_us", now_us)
    assert forward is not None and predictor._predict(forward, batch("a")) is None
    value = metrics.registry.get_sample_value
    assert value("fleet_batch_failures_total", {"predictor": "cuda:0"}) == 1
    assert value("fleet_batch_size_count", {"predictor": "cuda:0"}) is None
    assert await predictor.stop(5)

"""The event loop turns while a model runs in its thread: polls go on, and the beat says that nothing was late."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from tests.workers.build import TOPIC, record
from tests.workers.test_worker import Replies
from topics.tensors import Array
from workers.admit import ReplyTopics
from workers.assembly import make_worker
from workers.health import Health, keep_beating
from workers.metrics import Metrics
from workers.models.simulated import Device, SimulatedModel, load_simulated
from workers.predictors.predictor import Predictor
from workers.receive import Receive
from workers.settings import Settings

CARTPOLE = Path("tools/demo/models/cartpole")
DEVICE = Device(batch_us=100, row_us=0, outputs="echo")
POLLS = 5
WITHIN_S = 10.0


class Held(SimulatedModel):
    """Runs its first batch until it is let go: waiting as for a device, or computing in Python all the while."""

    def __init__(self, in_python: bool) -> None:
        super().__init__(load_simulated(CARTPOLE, DEVICE).manifest, DEVICE)
        self.runs, self.go = threading.Event(), threading.Event()
        self._in_python, self._warm = in_python, False

    def warm_up(self, *arguments: Any) -> None:
        super().warm_up(*arguments)
        self._warm = True

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self._warm:
            self.runs.set()
            give_up_s = time.monotonic() + WITHIN_S
            while self._in_python and not self.go.is_set() and time.monotonic() < give_up_s:
                sum(range(100))
            assert self.go.wait(0 if self._in_python else WITHIN_S), "nobody polled meanwhile"
        return super().predict(inputs)


class Consumer:
    """One record per poll, the first at once, the others when the model runs; calls `done` when all were asked for."""

    def __init__(self, model: Held, done: Callable[[], None]) -> None:
        self._model = model
        self._done = done
        self._offset = 0
        self._client = SimpleNamespace(cluster=SimpleNamespace(unauthorized_topics=set()))

    async def getmany(self, *_: Any, timeout_ms: int, max_records: int | None = None) -> Any:
        if self._offset == 1:
            await asyncio.to_thread(self._model.runs.wait, WITHIN_S)
        if self._offset > POLLS:
            self._done()
            await asyncio.sleep(timeout_ms / 1000)
            return {}
        self._offset += 1
        return {TopicPartition(TOPIC, 0): [record(self._offset - 1, f"agent-{self._offset}")]}


@pytest.mark.parametrize("in_python", [False, True], ids=["on a device", "in Python"])
async def test_polls_and_beats_go_on_while_a_model_runs(in_python: bool) -> None:
    """A model lets go only when five more polls and a beat have come through; on the loop it would hold them back."""
    model, metrics, stopping, beaten = Held(in_python), Metrics(max_batch=64), asyncio.Event(), asyncio.Event()
    predictor = Predictor("held", lambda: model, metrics)
    metrics.add_predictor("held")
    await predictor.start()
    worker = make_worker(Settings(name="f"), model.manifest, [predictor], ReplyTopics({"f.actions": 1}), metrics)
    replies = Replies(worker, POLLS + 1)
    worker.reply_through(replies)  # type: ignore[arg-type]
    predictor.deliver(worker.predicted, lambda error: pytest.fail(repr(error)))
    worker.offsets["normal"].assign([0])
    polled = asyncio.Event()
    consumer: Any = Consumer(model, polled.set)
    receive = Receive(
        consumer,
        worker.lanes.normal,
        worker.offsets["normal"],
        1024,
        worker.polled,
        no_revoke,
        worker.progress,
        metrics,
    )
    health = Health()
    health.loop_beat = lambda _: beaten.set()  # type: ignore[method-assign]
    async with asyncio.timeout(2 * WITHIN_S), asyncio.TaskGroup() as group:
        receiving = group.create_task(receive.run(stopping))
        await asyncio.to_thread(model.runs.wait, WITHIN_S)
        beating = group.create_task(keep_beating(health, metrics, every_s=0.01))
        await polled.wait()
        await beaten.wait()
        assert not replies.answers, "the model still runs"
        model.go.set()
        await replies.done.wait()
        stopping.set()
        beating.cancel()
        await receiving
    worker.stop_timer()
    assert await predictor.stop(WITHIN_S)
    count = partial(metrics.registry.get_sample_value, "fleet_event_loop_lag_seconds_count")
    assert count() and metrics.registry.get_sample_value("fleet_polls_total", {"lane": "normal"}) == POLLS + 1


async def no_revoke(_: object) -> None: ...

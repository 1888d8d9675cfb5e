"""Hot and standby with real threads and simulated devices: nothing is lost, nothing is answered twice."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.workers.build import request
from topics.tensors import Array
from workers.admit import ReplyTopics
from workers.assembly import make_worker
from workers.metrics import Metrics
from workers.models.simulated import Device, SimulatedModel, load_simulated
from workers.predictors.predictor import Predictor
from workers.requests import Predicted, Refusal, Request
from workers.settings import PredictorSettings, Settings
from workers.worker import Worker

CARTPOLE = Path("tools/demo/models/cartpole")
N = 600


class Hanging(SimulatedModel):
    """Never returns from its fourth batch."""

    served = 0
    hung = threading.Event()
    released = threading.Event()

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.served += len(inputs["observation"]) < 256  # six in the warm-up
        if self.served > 9:
            self.hung.set()
            self.released.wait(30)
        return super().predict(inputs)


class Replies:
    """Takes answers as the reply step does."""

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        self.done = asyncio.Event()

    def predicted(self, ran: Predicted) -> None:
        for row, found in enumerate(ran.batch.requests):
            assert ran.outputs["action"][row] == found.seq
            self.answers[found.seq or 0] += 1
        if len(self.answers) == N:
            self.done.set()

    def refused(self, refusals: Sequence[Refusal]) -> None:
        assert not refusals


def state(number: int) -> Request:
    made = request(f"a{number}", seq=number)
    made.rows = (np.full(4, number, np.float32).tobytes(),)
    return made


async def started(device: Device, kind: type[SimulatedModel], name: str) -> Predictor:
    manifest = load_simulated(CARTPOLE, device).manifest
    predictor = Predictor(name, lambda: kind(manifest, device), Metrics(max_batch=64))
    await predictor.start()
    return predictor


async def test_a_standby_answers_what_the_hung_predictor_held_and_all_that_follows() -> None:
    """Each state once, with its own action; the standby has run nothing before."""
    device = Device(batch_us=500, row_us=0, outputs="echo")
    predictors = [await started(device, kind, kind.__name__) for kind in (Hanging, SimulatedModel)]
    settings = Settings(predictors=(PredictorSettings(), PredictorSettings(standby=True)))
    manifest = load_simulated(CARTPOLE, device).manifest
    worker: Worker = make_worker(settings, manifest, predictors, ReplyTopics({"f.actions": 1}), Metrics(max_batch=64))
    replies: Any = Replies()
    worker.reply_through(replies)
    for predictor in predictors:
        predictor.deliver(worker.predicted, lambda error: None)
    worker.lanes.normal.put([state(number) for number in range(N)])
    worker.pump()
    await asyncio.to_thread(Hanging.hung.wait, 10)
    assert not predictors[1].has_served and len(replies.answers) < N
    worker.fence(0, predictors[0].running, "model_hangs", 2)
    await asyncio.wait_for(replies.done.wait(), 10)
    assert set(replies.answers.values()) == {1}
    Hanging.released.set()
    for predictor in predictors:
        assert await predictor.stop(5)

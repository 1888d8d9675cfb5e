"""Worker: what a fence does to the states that a predictor held."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from tests.workers.build import TOPIC, request
from topics.tensors import Array
from workers.admit import PollTime, ReplyTopics
from workers.assembly import make_worker
from workers.errors import PredictorBroken, PredictorsHang
from workers.health import Health
from workers.metrics import Metrics
from workers.models.errors import ModelError, OutOfMemory
from workers.models.simulated import Device, SimulatedModel, load_simulated
from workers.offsets import PartitionOffsets
from workers.predictors.predictor import Predictor
from workers.requests import Batch, Predicted, Refusal, Request
from workers.resources import Share
from workers.settings import HangSettings, Settings
from workers.supervise import Supervisor
from workers.worker import Worker

CARTPOLE = Path("tools/demo/models/cartpole")
DEVICE = Device(batch_us=100, row_us=0, outputs="echo")
POISON = 66.0


class Breaking(SimulatedModel):
    """After it ran poison it takes nothing more, until it is loaded anew."""

    loads = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        Breaking.loads += 1
        self._is_broken = False

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        first = inputs["observation"][:, 0]
        self._is_broken |= bool((first == POISON).any())
        if self._is_broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return super().predict(inputs)


class Sick(SimulatedModel):
    """It loads and warms up, and takes nothing then."""

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if len(inputs["observation"]) and not self.warming:
            raise RuntimeError("CUDA error: uncorrectable ECC error")
        return super().predict(inputs)

    warming = True

    def warm_up(self, *arguments: Any) -> None:
        super().warm_up(*arguments)
        self.warming = False


class Cramped(SimulatedModel):
    """There is memory for its warm-up, and later for 8 rows."""

    room = 1 << 16

    def predict(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if len(inputs["observation"]) > self.room:
            raise OutOfMemory("CUDA out of memory")
        return super().predict(inputs)

    def warm_up(self, *arguments: Any) -> None:
        super().warm_up(*arguments)
        self.room = 8


class Replies:
    """Takes answers, and finishes them at once."""

    waiting, flushes = False, 0

    def __init__(self, worker: Worker, n: int) -> None:
        self.worker = worker
        self.n = n
        self.answers: dict[str, str] = {}
        self.done = asyncio.Event()

    def predicted(self, ran: Predicted) -> None:
        assert not ran.faults
        self.worker.answered([ran], [])
        self._add({found.agent.decode(): "action" for found in ran.batch.requests})

    def refused(self, refusals: Sequence[Refusal]) -> None:
        self.worker.answered([], refusals)
        self._add({refusal.request.agent.decode(): refusal.dead or refusal.outcome for refusal in refusals})

    def _add(self, answers: dict[str, str]) -> None:
        assert not self.answers.keys() & answers.keys(), "nobody is answered twice"
        self.answers |= answers
        if len(self.answers) == self.n:
            self.done.set()


class Bench:
    """A worker with one predictor, watched by a supervisor."""

    def __init__(self, kind: type[SimulatedModel], n: int, hang: HangSettings | None = None) -> None:
        self.kind = kind
        self.settings = Settings(hang=hang or HangSettings())
        self.n = n

    async def start(self) -> None:
        predictor = self.predictor()
        await predictor.start()
        manifest = load_simulated(CARTPOLE, DEVICE).manifest
        topics = ReplyTopics({"f.actions": 1})
        self.worker = make_worker(self.settings, manifest, [predictor], topics, Metrics(max_batch=64))
        self.replies = Replies(self.worker, self.n)
        self.worker.reply_through(self.replies)  # type: ignore[arg-type]
        self.supervisor = Supervisor(
            self.settings, self.worker, [predictor], {}, lambda _: self.predictor(), lambda: [ONE], Health()
        )

    def predictor(self) -> Predictor:
        return Predictor("sim", lambda: self.kind(load_simulated(CARTPOLE, DEVICE).manifest, DEVICE), METRICS)

    def put(self, requests: Sequence[Request]) -> None:
        self.worker.lanes.normal.put(requests)
        self.worker.pump()


METRICS = Metrics(max_batch=64)
ONE = Share((), 1, "no CPU")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousandths instead of seconds."""
    monkeypatch.setattr("workers.predictors.predictor.BACK_OFF_S", (0.001,))
    monkeypatch.setattr("workers.supervise.EVERY_S", 0.005)
    monkeypatch.setattr("workers.supervise.RELOAD_AFTER_S", 0.001)
    monkeypatch.setattr("workers.supervise.RELOAD_AFTER_MAX_S", 0.01)


def state(agent: str, value: float = 0.0, offsets: PartitionOffsets | None = None) -> Request:
    made = request(agent, offsets=offsets)
    made.rows = (np.full(4, value, np.float32).tobytes(),)
    return made


async def test_a_state_that_breaks_the_model_again_and_again_fails_alone() -> None:
    """Its neighbours run on a model that was loaded anew; a poison batch does not loop for ever."""
    Breaking.loads = 0
    bench = Bench(Breaking, 20)
    await bench.start()
    watching = asyncio.ensure_future(bench.supervisor.run())
    bench.put([state(f"a{n}") for n in range(10)] + [state("bad", POISON)] + [state(f"b{n}") for n in range(9)])
    await asyncio.wait_for(bench.replies.done.wait(), 20)
    assert bench.replies.answers.pop("bad") == "model_breaks"
    assert set(bench.replies.answers.values()) == {"action"}
    assert Breaking.loads <= 1 + 2
    watching.cancel()


async def test_a_package_that_cannot_be_read_for_a_while_does_not_end_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The manifest is read for every new predictor; whoever updates the package may be in the middle of it."""
    bench = Bench(Breaking, 2)
    await bench.start()
    make, faults = bench.supervisor._make_predictor, [ModelError("manifest.json is not there")] * 2

    def unreadable(number: int) -> Predictor:
        if faults:
            raise faults.pop()
        return make(number)

    monkeypatch.setattr(bench.supervisor, "_make_predictor", unreadable)
    watching = asyncio.ensure_future(bench.supervisor.run())
    bench.put([state("bad", POISON), state("good")])
    await asyncio.wait_for(bench.replies.done.wait(), 20)
    assert bench.replies.answers == {"bad": "model_breaks", "good": "action"} and not faults
    watching.cancel()


async def test_a_model_that_loads_and_never_serves_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload counts for nothing until a batch came back; most states are left for whoever comes next."""
    monkeypatch.setattr("workers.predictors.predictor.BACK_OFF_S", (0.03,))  # the supervisor sees it serve meanwhile
    bench = Bench(Sick, 99, HangSettings(exit_after_s=0.2))
    await bench.start()
    bench.put([state(f"a{n}") for n in range(60)])
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(bench.supervisor.run(), 20)
    assert raised.group_contains(PredictorsHang)
    assert len(bench.replies.answers) < 60


async def test_out_of_memory_makes_the_batches_smaller_that_are_formed() -> None:
    """Also where it happens before the supervisor's first look; nobody fails, and the log tells it once."""
    bench = Bench(Cramped, 128)
    await bench.start()
    bench.put([state(f"a{n}") for n in range(64)])
    assert await bench.worker.settled(["normal"], 10, queued=True)
    with capture_logs() as log:
        watching = asyncio.ensure_future(bench.supervisor.run())
        await asyncio.sleep(0)
        bench.put([state(f"b{n}") for n in range(64)])
        sizes = [len(slot.running or ()) for slot in bench.worker._schedule._slots]
        await asyncio.wait_for(bench.replies.done.wait(), 20)
    assert set(bench.replies.answers.values()) == {"action"} and sizes == [8]
    assert [found["rows"] for found in log if found["event"] == "largest_batch_lowered"] == [8]
    watching.cancel()


async def test_what_a_lost_assignment_had_on_a_fenced_predictor_is_let_go() -> None:
    """Neither run again nor answered: the new owner has it. Nothing stays in flight."""
    bench = Bench(Breaking, 1)
    await bench.start()
    offsets = PartitionOffsets(TOPIC, 0)
    bench.put([state("bad", POISON, offsets)])
    assert bench.worker.lanes.normal.in_flight == 1
    offsets.revoke()
    watching = asyncio.ensure_future(bench.supervisor.run())
    assert await bench.worker.settled(["normal"], 10, queued=True)
    assert bench.replies.answers == {}
    watching.cancel()


async def test_suspects_are_those_that_the_predictor_was_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have begun its ready batch before an urgent one was put in front: the schedule would blame that one."""
    bench = Bench(SimulatedModel, 2)
    await bench.start()
    worker, submitted = bench.worker, list[Batch]()
    monkeypatch.setattr(worker._predictors[0], "submit", submitted.append)
    bench.put([request("first")])
    urgent = request("urgent", lane="high")
    worker.lanes.high.put([urgent])
    worker.pump()
    first = submitted[0].requests[0]
    worker.fence(0, submitted[1], "model_hangs", 2)
    assert (first.hangs, urgent.hangs) == (0, 1)
    assert (len(worker.lanes.normal), len(worker.lanes.high)) == (1, 1)


async def test_a_state_that_is_read_again_after_a_rebalance_is_no_suspect() -> None:
    """Attempts belong to the request, and that belongs to its assignment."""
    bench = Bench(SimulatedModel, 1)
    await bench.start()
    worker = bench.worker
    offsets = worker.offsets["normal"]
    offsets.assign([0])
    suspect = request(offsets=offsets.get(0))
    suspect.hangs = 1
    worker.lanes.normal.put([suspect])
    worker.lanes.normal.hand_back()
    offsets.revoke()
    offsets.assign([0])
    owned = offsets.get(0)
    assert owned is not None and owned.epoch == 2
    admitted = worker._admission.admit("normal", [(owned, [suspect.record])], PollTime(0, 0))
    assert [found.hangs for found in admitted.requests] == [0]


@pytest.mark.parametrize("where", ["taking a batch back", "the timer"])
async def test_a_fault_where_nobody_awaits_ends_the_process(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its states would never be answered nor committed, behind green probes."""
    bench = Bench(SimulatedModel, 1)
    await bench.start()

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    if where == "the timer":
        monkeypatch.setattr(bench.worker, "pump", fail)
        bench.worker._set_timer(1)
    else:
        monkeypatch.setattr(bench.replies, "predicted", fail)
        bench.put([state("a")])
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(bench.supervisor.run(), 5)
    assert raised.group_contains(PredictorBroken, match=r"a fault of ours: ValueError\('a bug'\)")


async def test_what_expires_while_a_batch_comes_back_is_answered_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a later state of an agent whose answer the batch has."""
    bench = Bench(SimulatedModel, 2)
    await bench.start()
    monkeypatch.setattr(bench.worker._schedule, "expired", list)
    bench.put([state("earlier")])
    monkeypatch.setattr(bench.worker._schedule, "expired", [[], [], [state("later")]].pop)
    await asyncio.wait_for(bench.replies.done.wait(), 5)
    assert list(bench.replies.answers) == ["earlier", "later"]

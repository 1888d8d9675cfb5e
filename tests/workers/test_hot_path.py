"""The hot path pays per poll and per batch: no task, future, timer, lock, log line or metric call per record."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import ConsumerRecord, TopicPartition

from topics.columns import encode_states
from topics.records import State
from workers import assembly
from workers.admit import ReplyTopics
from workers.metrics import Metrics
from workers.settings import ModelSettings, PredictorSettings, Settings

CARTPOLE = Path("tools/demo/models/cartpole")
PARTITIONS = 4
POLLS = 10
SIZES = (32, 64)
"""Records of a poll. Either is one batch (`max_batch` is 64), so only the records become more."""
COUNTED = (
    *("/asyncio/", "/threading.py", "/logging/", "/structlog/", "/workers/logs.py", "/workers/library_logs.py"),
    *("/workers/metrics.py", "/workers/series.py", "/workers/busy.py", "/workers/worst.py", "/prometheus_client/"),
)
"""Tasks, futures, callbacks and timers of the loop; threads and locks; log lines; metrics."""


class CountedLock:
    """A lock whose uses are Python calls, which a profile function sees."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._lock = make()

    def acquire(self, *arguments: Any, **named: Any) -> bool:
        return bool(self._lock.acquire(*arguments, **named))

    __enter__ = acquire

    def release(self) -> None:
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


@contextmanager
def counting(counts: Counter[str]) -> Iterator[None]:
    """Calls of what must not be called for each record, in this thread and in those that start meanwhile."""

    def called(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name[0] == "<":  # an expression's own frame is no call
            return
        if code is CountedLock.acquire.__code__ or any(part in code.co_filename for part in COUNTED):
            counts[code.co_qualname] += 1

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class Producer:
    """Makes aiokafka's batches and acknowledges each in the next turn of the loop."""

    def __init__(self, real: AIOKafkaProducer) -> None:
        self.create_batch = real.create_batch

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> asyncio.Future[None]:
        batch.close()
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[None] = loop.create_future()
        loop.call_soon(acknowledged.set_result, None)
        return acknowledged


class Offline:
    """A worker's whole path between made-up polls and a producer that acknowledges at once."""

    def __init__(self, own_thread: bool) -> None:
        predictor = PredictorSettings(device="cpu", own_thread=own_thread)
        self.settings = Settings(model=ModelSettings(path=CARTPOLE), predictors=(predictor,))
        self._offsets = [0] * PARTITIONS

    async def start(self) -> None:
        """Load the model and put the steps together."""
        metrics = Metrics(max_batch=self.settings.batch.max_batch)
        (predictor,) = assembly.make_predictors(self.settings, metrics)
        manifest = (await predictor.start()).manifest
        topics = ReplyTopics({self.settings.names.actions: PARTITIONS})
        self.worker = assembly.make_worker(self.settings, manifest, [predictor], topics, metrics)
        real = AIOKafkaProducer(bootstrap_servers="localhost:1")  # never started
        await real.stop()
        producer: Any = Producer(real)
        self.replies = assembly.make_replies(self.settings, manifest, self.worker, producer, producer, 1)
        self.worker.reply_through(self.replies)
        self.predictor = predictor
        predictor.deliver(self.worker.predicted, lambda error: pytest.fail(repr(error)))
        self.worker.offsets["normal"].assign(range(PARTITIONS))

    async def answer(self, polls: int, size: int) -> None:
        """So many polls of `size` records, each when the last one is answered."""
        for _ in range(polls):
            self.worker.polled("normal", self._poll(size))
            assert await self.worker.settled(["normal"], 10, queued=True)

    def _poll(self, size: int) -> dict[TopicPartition, list[Any]]:
        topic, share = self.settings.names.states("normal"), size // PARTITIONS
        sent = State(None, sent_us=time.time_ns() // 1000)
        values = encode_states(np.zeros((size, 4), np.float32), range(size), sent)
        polled: dict[TopicPartition, list[Any]] = {}
        for partition in range(PARTITIONS):
            first = self._offsets[partition]
            self._offsets[partition] += share
            polled[TopicPartition(topic, partition)] = [
                record(topic, partition, first + row, values[partition * share + row]) for row in range(share)
            ]
        return polled


def record(topic: str, partition: int, offset: int, value: bytes) -> Any:
    """As an AgentClient sends it: a correlation ID, an agent of its own."""
    key, headers = b"agent-%d-%d" % (partition, offset), (("kafka_correlationId", b"%016d" % offset),)
    return ConsumerRecord(topic, partition, offset, 1_000, 0, key, value, None, len(key), len(value), headers)


@pytest.mark.parametrize("own_thread", [False, True], ids=["on the loop", "own thread"])
async def test_records_cost_plain_calls_only(own_thread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the records in as many polls and batches make no more tasks, timers, lock uses, log lines or metrics."""
    locks_are_counted(monkeypatch)
    monkeypatch.setattr("workers.predictors.predictor.is_quick", lambda *_: True)  # a busy machine might not be
    import torch  # noqa: F401  # takes ten times as long where every call is seen

    path, found = Offline(own_thread), {size: Counter[str]() for size in SIZES}
    counts: Counter[str] = Counter()
    with counting(counts):  # the predictor's thread begins in here
        await path.start()
        async with asyncio.TaskGroup() as group:
            replying = group.create_task(path.replies.run())
            for size in SIZES:
                await path.answer(3, size)
                counts.clear()
                await path.answer(POLLS, size)
                found[size].update(counts)
            replying.cancel()
    assert path.predictor.runs_on_loop is not own_thread
    await path.predictor.stop(5)
    few, many = (found[size] for size in SIZES)
    assert few["Metrics.admitted"] == POLLS, "or nothing is counted"
    assert few["Metrics.batch_finished"] == many["Metrics.batch_finished"] == POLLS
    more_records = POLLS * (SIZES[1] - SIZES[0])
    assert {name: n - few[name] for name, n in many.items() if n - few[name] > more_records // 10} == {}


def locks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are made from now on, also by modules that have imported the name."""
    makers = {threading.Lock: "Lock", threading.RLock: "RLock"}
    ours = ("workers", "topics", "prometheus_client", "aiokafka")
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] in ours]
    for module in (threading, *modules):
        for name, value in list(vars(module).items()):
            if isinstance(value, Callable) and value in makers:  # type: ignore[arg-type]
                monkeypatch.setattr(module, name, lambda make=value: CountedLock(make))

"""Step 5, predict. A predictor: one model instance, one thread, bound to a device or a set of cores.

The event loop hands it batches (`submit`) and gets each back through a callback on the loop, in the order they ran.
The inbox is bounded by the schedule: one batch running, one urgent, one ready.
A model that is quick enough (`quick`) runs on the event loop itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from topics.errors import FleetError
from workers.clock import now_us
from workers.metrics import Metrics
from workers.models.model import Model
from workers.predictors.forward import MODEL_ERROR, Forward
from workers.predictors.quick import is_quick
from workers.requests import Batch, Predicted

LoadModel = Callable[[], Model]
OnPredicted = Callable[[Predicted], None]
OnBroken = Callable[[BaseException], None]

TURN_US: Final = 1000
"""How long one turn of the event loop runs batches, if there are more. Back to back they find their code in the
processor's caches: a batch of 64 takes 60 µs instead of 100. Polls and acknowledgements wait no longer than this."""

HANG_FACTOR: Final = 20
"""Times the longest of the last batches: a device that others use too may be slow, but not by this much."""

LAST_BATCHES: Final = 1000
"""Between them, rarer large ones are not forgotten; one that took long when others used the device is, in time."""

BACK_OFF_S: Final = (0.05, 0.2, 0.8)
"""Waits before a batch is tried again with a model that takes nothing at all, or a row for which there was no memory: a
device may need a moment."""

_STOP: Final = 0
_BATCH: Final = 1


class Predictor:
    """Runs batches on a thread of its own; `name` is the device's, with a number where several share it.

    With `quick_rows`, a built-in model whose forward pass over so many rows is quick runs on the event loop instead.
    """

    def __init__(
        self,
        name: str,
        load: LoadModel,
        metrics: Metrics,
        cores: tuple[int, ...] = (),
        quick_rows: int | None = None,
        threads: int = 1,
    ) -> None:
        self.name = name
        self.threads = threads
        """Of a forward pass; whoever changes it changes it from the next batch on."""
        self.broken: str | None = None
        """Why the model takes nothing any more, or did not load; the predictor has then stopped by itself."""
        self.running: Batch | None = None
        """The batch that the model is in, or broke at."""
        self._load = load
        self._metrics = metrics
        self._cores = cores
        self._quick_rows = quick_rows
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forward: Forward | None = None
        self._on_predicted: OnPredicted | None = None
        self._on_broken: OnBroken | None = None
        self._urgent: deque[Batch] = deque()
        self._ready: deque[Batch] = deque()
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running_since_us = 0
        self._longest_us = self._longest_before_us = 0
        """Of this window of `LAST_BATCHES`, and of the one before."""
        self._batches = 0
        self.warm_us: dict[int, int] = {}
        """What a batch of so many rows took when the model was warmed up, µs."""
        self._is_quick = False
        self._is_fenced = False
        self._told = threading.Lock()
        """Around `_is_fenced` and `_running_since_us`: the thread tells of a batch or the fence does, not both."""
        self._has_turn = False
        """On the event loop: a turn is due or running, and takes what is submitted."""

    async def start(self) -> Model:
        """Load and warm up in the thread; returns when the first batch would meet no cold start.

        Raises `ModelError` when the package cannot be loaded.
        """
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Model] = loop.create_future()
        # A daemon: a model that never returns must not keep the process alive past its drain.
        self._thread = threading.Thread(
            target=self._run, args=(loop, ready), name=f"predictor-{self.name}", daemon=True
        )
        self._thread.start()
        model = await ready
        if self._is_quick:
            self._move_to_loop(loop, model)
        return model

    def _move_to_loop(self, loop: asyncio.AbstractEventLoop, model: Model) -> None:
        """The thread that loaded the model ends; this one, the event loop's, warms it up for itself and runs it."""
        self._signals.put(_STOP)
        model.warm_up(self.warm_us.__setitem__)
        self._forward, self._loop = Forward(model), loop  # which must not wait

    @property
    def largest_batch(self) -> int | None:
        """Rows that the device has memory for, as far as batches have shown; None before the model is loaded."""
        return self._forward.largest_batch if self._forward else None

    @property
    def has_served(self) -> bool:
        """Whether it has brought back a batch."""
        return self._batches > 0

    @property
    def runs_on_loop(self) -> bool:
        """Whether the model runs on the event loop, without a thread."""
        return self._loop is not None

    def deliver(self, on_predicted: OnPredicted, on_broken: OnBroken) -> None:
        """Where batches go when they ran, and who hears of what that raises or what ends the thread: nobody awaits
        either. Before the first `submit`."""
        self._on_predicted, self._on_broken = on_predicted, on_broken

    def submit(self, batch: Batch) -> None:
        """Queue a batch; an urgent one runs before what is ready, but never before an earlier urgent one."""
        (self._urgent if batch.urgent else self._ready).append(batch)
        if self._loop is None:
            self._signals.put(_BATCH)
        elif not self._has_turn:
            self._take_turn(self._loop)

    def _take_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._has_turn = True
        loop.call_soon(self._run_on_loop, loop)

    def _run_on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._turn(loop)
        except Exception as error:
            self._broke(error)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """What is there, and what is submitted meanwhile, for `TURN_US`; the rest has the next turn."""
        assert self._forward is not None and self._on_predicted is not None, "deliver comes before the first submit"
        end_us = now_us() + TURN_US
        while self._urgent or self._ready:
            if (ran := self._predict(self._forward, self._next())) is None:
                return
            self._on_predicted(ran)
            if now_us() >= end_us:
                break
        self._has_turn = False
        if self._urgent or self._ready:
            self._take_turn(loop)

    def _bring_back(self, ran: Predicted) -> None:
        """On the event loop, which would only log what this raises."""
        assert self._on_predicted is not None
        try:
            self._on_predicted(ran)
        except Exception as error:
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """A bug of ours, not of a row: the process cannot go on with this predictor."""
        assert self._on_broken is not None, "deliver comes before the first submit"
        self._on_broken(error)

    def _next(self) -> Batch:
        return self._urgent.popleft() if self._urgent else self._ready.popleft()

    def hangs(self, now_us: int, at_least_us: int) -> bool:
        """Whether its batch runs longer than `at_least_us` and than `HANG_FACTOR` times the longest of the last."""
        since_us, longest_us = self._running_since_us, max(self._longest_us, self._longest_before_us)
        return since_us > 0 and now_us - since_us > max(at_least_us, HANG_FACTOR * longest_us)

    def fence(self) -> None:
        """It gets nothing more, and runs nothing of what it has: that runs elsewhere. Its model is let go of, at once
        or when it returns, as the one that is loaded anew may need the device's memory."""
        with self._told:
            self._is_fenced = True
            since_us, self._running_since_us = self._running_since_us, 0
        self._forward = None
        if since_us:
            self._metrics.batch_failed(self.name, (now_us() - since_us) / 1e6)
        self._signals.put(_STOP)  # in case it waits

    async def stop(self, within_s: float) -> bool:
        """Ask the thread to end and wait; False if it is still in its model after `within_s`."""
        if self._thread is None:
            return True
        self._signals.put(_STOP)
        await asyncio.to_thread(self._thread.join, within_s)
        return not self._thread.is_alive()

    def _run(self, loop: asyncio.AbstractEventLoop, ready: asyncio.Future[Model]) -> None:
        threads = self.threads
        try:
            if self._cores:
                os.sched_setaffinity(0, self._cores)  # 0: this thread
            model = self._load()
            model.warm_up(self.warm_us.__setitem__)
            # In this thread: before `warm_up` runs in the event loop's, a pass there uses all cores and may take 40 ms.
            self._is_quick = self._quick_rows is not None and is_quick(model, self._quick_rows)
            forward = self._forward = Forward(model, BACK_OFF_S)
        except Exception as error:  # reported to whoever awaits the start
            found = error if isinstance(error, FleetError) else _translated(self.name, error)
            loop.call_soon_threadsafe(ready.set_exception, found)
            return
        loop.call_soon_threadsafe(ready.set_result, model)
        try:
            while self._signals.get() == _BATCH:
                if threads != self.threads:
                    threads = self.threads
                    model.use_threads(threads)
                if (ran := self._predict(forward, self._next())) is None:
                    return
                loop.call_soon_threadsafe(self._bring_back, ran)
        except BaseException as error:
            loop.call_soon_threadsafe(self._broke, error)

    def _predict(self, forward: Forward, batch: Batch) -> Predicted | None:
        """None: the predictor is broken or fenced, and nothing is known of the rows."""
        with self._told:
            if self._is_fenced:
                return None
            self.running = batch
            started_us = self._running_since_us = now_us()
        self._metrics.batch_started(self.name, started_us / 1e6)
        waits_s = BACK_OFF_S if self._loop is None else ()  # the event loop must not wait
        found = forward.attempt([request.rows for request in batch.requests], waits_s)
        ended_us = now_us()
        with self._told:
            if self._running_since_us == 0:  # fenced meanwhile
                return None
            self._running_since_us = 0
        seconds = (ended_us - started_us) / 1e6
        if isinstance(found, str):
            self.broken = found
            self._metrics.batch_failed(self.name, seconds)
            return None
        self.running = None
        self._took(ended_us - started_us - round(forward.waited_s * 1e6))
        outputs, faults = found
        if any(fault.label == MODEL_ERROR for fault in faults.values()):
            self._metrics.batch_failed(self.name, seconds)
        else:
            self._metrics.batch_finished(self.name, len(batch), forward.bucket(len(batch)), seconds)
        self._metrics.stage("predict", seconds, len(batch))
        return Predicted(batch, outputs, started_us, ended_us, faults)

    def _took(self, us: int) -> None:
        if self._batches % LAST_BATCHES == 0:
            self._longest_before_us, self._longest_us = self._longest_us, 0
        self._batches += 1
        self._longest_us = max(self._longest_us, us)

    def __repr__(self) -> str:
        return f"<Predictor {self.name} {len(self._urgent)}+{len(self._ready)} waiting>"


def _translated(name: str, error: Exception) -> FleetError:
    return FleetError(f"predictor {name} did not start: {type(error).__name__}: {error}; try `fleet model check`")

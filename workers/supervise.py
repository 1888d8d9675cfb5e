"""Beside the path: watches the predictors and the layers of Kafka, fences what hangs, says what is stuck.

Runs a few times a second on the event loop and waits for nothing but its clock and, in tasks of their own, for new
predictors to load. Decisions are in `workers.stalls` and `Predictor.hangs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from topics.errors import FleetError
from topics.names import Lane
from workers.assembly import Intake
from workers.clock import now_us
from workers.errors import PredictorBroken, PredictorsHang
from workers.health import Health
from workers.logs import get_logger
from workers.predictors.predictor import Predictor
from workers.settings import Settings
from workers.stalls import Look, Stalls
from workers.worker import Worker

log = get_logger(__name__)

EVERY_S = 0.25
RELOAD_AFTER_S = 0.25
RELOAD_AFTER_MAX_S = 15.0
"""A model that does not load, or breaks again at once, is loaded anew after twice as long each time, up to this."""
LAYER_BOUND_S = 30.0
"""A layer of Kafka with work that stands still this long is stuck: three session time-outs."""

MakePredictor = Callable[[int], Predictor]


class Supervisor:
    """Watches one worker until cancelled."""

    def __init__(
        self,
        settings: Settings,
        worker: Worker,
        predictors: Sequence[Predictor],
        intakes: Mapping[Lane, Intake],
        make_predictor: MakePredictor,
        health: Health,
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._predictors = list(predictors)
        self._serving = [True] * len(predictors)
        self._largest: dict[Predictor, int] = {}
        self._tries = [0] * len(predictors)
        self._intakes = intakes
        self._make_predictor = make_predictor
        self._health = health
        self._stalls = Stalls()
        self._broken: BaseException | None = None
        for predictor in predictors:
            predictor.deliver(worker.predicted, self._on_broken)

    def _on_broken(self, error: BaseException) -> None:
        self._broken = error

    async def run(self) -> None:
        """Raises `PredictorBroken` when a predictor's thread ends by our fault, `PredictorsHang` when none serves."""
        none_since_s: float | None = None
        async with asyncio.TaskGroup() as replacing:
            while True:
                now_s = asyncio.get_running_loop().time()
                if self._broken is not None:
                    raise PredictorBroken(f"a predictor's thread ended: {self._broken!r}") from self._broken
                self._look_at_predictors(replacing)
                self._look_at_layers(now_s)
                none_since_s = None if self._worker.available else none_since_s or now_s
                if none_since_s and now_s - none_since_s > self._settings.hang.exit_after_s:
                    raise PredictorsHang(f"no predictor has served for {now_s - none_since_s:.0f} s")
                await asyncio.sleep(EVERY_S)

    def _look_at_predictors(self, replacing: asyncio.TaskGroup) -> None:
        after_us = round(self._settings.hang.after_s * 1e6)
        for number, predictor in enumerate(self._predictors):
            if not self._serving[number]:
                continue
            hangs = predictor.hangs(now_us(), after_us)
            if hangs or predictor.broken is not None:
                self._fence(number, "hangs" if hangs else f"is broken: {predictor.broken}", hangs=hangs)
                replacing.create_task(self._replace(number))
            else:
                self._limit(number, predictor)

    def _fence(self, number: int, why: str, *, hangs: bool) -> None:
        name = self._predictors[number].name
        self._serving[number] = False
        log.error("predictor_fenced", predictor=name, reason=why)
        self._worker.fence(number, self._settings.hang.max_hangs, hangs=hangs)
        if not self._worker.available:
            self._health.trouble("predictors", f"none serves; {name} {why}")

    def _limit(self, number: int, predictor: Predictor) -> None:
        """What runs out of memory gets smaller batches from now on."""
        largest, known = predictor.largest_batch, self._largest.get(predictor)
        if largest is None or largest == known:
            return
        self._largest[predictor] = largest
        if known is not None:
            self._worker.limit(number, largest)
            log.warning("largest_batch_lowered", predictor=predictor.name, rows=largest, before=known)

    async def _replace(self, number: int) -> None:
        """Load the model anew on a thread of its own, until that succeeds; a hung thread is left alone, as nothing can
        end it. Where no batch came back since the last time, it waits twice as long."""
        failed = self._predictors[number]
        tries = 0 if failed.has_served else self._tries[number] + 1
        while True:
            self._tries[number] = tries
            await asyncio.sleep(min(RELOAD_AFTER_S * 2**tries, RELOAD_AFTER_MAX_S) if tries else 0)
            predictor = self._make_predictor(number)
            try:
                await predictor.start()
                break
            except FleetError as error:
                log.error("predictor_not_loaded", predictor=predictor.name, reason=str(error))
                tries += 1
        self._take_in(number, predictor)

    def _take_in(self, number: int, predictor: Predictor) -> None:
        predictor.deliver(self._worker.predicted, self._on_broken)
        self._largest.pop(self._predictors[number], None)
        self._predictors[number] = predictor
        self._serving[number] = True
        self._worker.restore(number, predictor)
        self._health.recovered("predictors")
        log.warning("predictor_replaced", predictor=predictor.name)

    def _look_at_layers(self, now_s: float) -> None:
        stuck = self._stalls.look(now_s, self._looks())
        for layer in stuck.keys() - self._health.stalls.keys():
            log.error("stalled", layer=layer, reason=stuck[layer])
        self._health.stalled(stuck)

    def _looks(self) -> Iterator[Look]:
        replies, reply_bound_s = self._worker.replies, min(LAYER_BOUND_S, self._settings.reply.timeout_s / 2)
        yield Look("reply", replies.waiting, replies.flushes, reply_bound_s)
        join_bound_s = self._settings.kafka.rebalance_timeout_ms / 1000 + LAYER_BOUND_S
        for lane, intake in self._intakes.items():
            offsets, queue = self._worker.offsets[lane], self._worker.lanes[lane]
            waits = offsets.unreceived > 0 and queue.room > 0
            yield Look(f"receive {lane}", waits, (offsets.epoch, offsets.received), LAYER_BOUND_S)
            yield Look(f"join {lane}", not intake.receive.joined.is_set(), offsets.epoch, join_bound_s)
            yield Look(f"commit {lane}", offsets.waits_for_commit, intake.commit.commits, LAYER_BOUND_S)

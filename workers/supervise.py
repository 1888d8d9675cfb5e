"""Beside the path: watches the predictors and the layers of Kafka, fences what hangs, says what is stuck.

Runs a few times a second on the event loop and waits for nothing but its clock and, in tasks of their own, for new
predictors to load. Decisions are in `workers.stalls` and `Predictor.hangs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from topics.errors import FleetError
from topics.names import Lane
from workers.clock import now_us
from workers.errors import PredictorBroken, PredictorsHang
from workers.health import Health
from workers.logs import get_logger
from workers.predictors.predictor import Predictor
from workers.requests import Batch
from workers.resources import LookAtCpus
from workers.settings import Settings
from workers.stalls import Look, Stalls
from workers.worker import Down, Worker

log = get_logger(__name__)

EVERY_S = 0.25
RELOAD_AFTER_S = 0.25
RELOAD_AFTER_MAX_S = 15.0
"""A model that does not load, or breaks again at once, is loaded anew after twice as long each time, up to this."""
LAYER_BOUND_S = 30.0
"""A layer of Kafka with work that stands still this long is stuck: three session time-outs."""

LOOK_AT_CPUS_S = 5.0
"""A quota changes when somebody changes it; each look reads a few small files in half a ms."""

SUSPECTS_TOLD = 5
"""Of a batch, in the log: who has to skip a state that ends every worker finds it by these."""

MakePredictor = Callable[[int], Predictor]


class Supervisor:
    """Watches one worker until cancelled. Predictors that it replaces, it replaces in the list that it was given, whose
    owner stops them."""

    def __init__(
        self,
        settings: Settings,
        worker: Worker,
        predictors: list[Predictor],
        lanes: Sequence[Lane],
        make_predictor: MakePredictor,
        look_at_cpus: LookAtCpus,
        health: Health,
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._predictors = predictors
        self._serving = [True] * len(predictors)
        self._tries = [0] * len(predictors)
        self._lanes = lanes
        self._make_predictor = make_predictor
        self._look_at_cpus = look_at_cpus
        self._looked_at_cpus_s = 0.0
        self._health = health
        self._stalls = Stalls()
        worker.metrics.watch_each("fleet_standstill_seconds", lambda: self._stalls.still_s)
        self._down_since_s: float | None = None
        for predictor in predictors:
            predictor.deliver(worker.predicted, worker.broke)

    async def run(self) -> None:
        """Raises `PredictorBroken` when a step fails by our fault, `PredictorsHang` when none serves."""
        async with asyncio.TaskGroup() as replacing:
            while True:
                now_s = asyncio.get_running_loop().time()
                if (broken := self._worker.broken) is not None:
                    text = (
                        f"a batch was not formed, run or answered, a fault of ours: {broken!r}; start the worker again"
                    )
                    raise PredictorBroken(text) from broken
                self._look_at_predictors(replacing)
                self._look_at_layers(now_s)
                self._follow_cpus(now_s)
                self._give_up(now_s)
                await asyncio.sleep(EVERY_S)

    def _give_up(self, now_s: float) -> None:
        """A model that loads, and breaks at its first batch again and again, does not serve either."""
        if self._worker.available:
            served = any(ok and one.has_served for ok, one in zip(self._serving, self._predictors, strict=True))
            if served or not self._worker.lanes.outstanding:
                self._down_since_s = None
            return
        if self._down_since_s is None:
            self._down_since_s = now_s
        if now_s - self._down_since_s > self._settings.hang.exit_after_s:
            raise PredictorsHang(
                f"no predictor has served for {now_s - self._down_since_s:.0f} s, hang.exit_after_s is "
                f"{self._settings.hang.exit_after_s:g}: start it again; predictor_fenced in the log has the reason"
            )

    def _look_at_predictors(self, replacing: asyncio.TaskGroup) -> None:
        after_us = round(self._settings.hang.after_s * 1e6)
        for number, predictor in enumerate(self._predictors):
            if not self._serving[number]:
                continue
            hangs = predictor.hangs(now_us(), after_us)
            if hangs or predictor.broken is not None:
                self._fence(number, "model_hangs" if hangs else "model_breaks")
                replacing.create_task(self._replace(number))
            else:
                self._limit(number, predictor)

    def _fence(self, number: int, down: Down) -> None:
        predictor = self._predictors[number]
        self._serving[number] = False
        predictor.fence()
        ran = predictor.running  # from now on it begins nothing else
        why = "hangs" if down == "model_hangs" else f"is broken: {predictor.broken}"
        log.error("predictor_fenced", predictor=predictor.name, reason=why, suspects=_origins(ran))
        self._worker.fence(number, ran, down, self._settings.hang.max_hangs)
        if not self._worker.available:
            self._health.trouble("predictors", f"none serves; {predictor.name} {why}")

    def _limit(self, number: int, predictor: Predictor) -> None:
        """What runs out of memory gets smaller batches from now on."""
        largest = predictor.largest_batch
        if largest is not None and (before := self._worker.limit(number, largest)) > largest:
            log.warning("largest_batch_lowered", predictor=predictor.name, rows=largest, before=before)

    async def _replace(self, number: int) -> None:
        """Load the model anew on a thread of its own, until that succeeds; a hung thread is left alone, as nothing can
        end it. Where no batch came back since the last time, it waits twice as long."""
        failed = self._predictors[number]
        tries = 0 if failed.has_served else self._tries[number] + 1
        while True:
            self._tries[number] = tries
            await asyncio.sleep(min(RELOAD_AFTER_S * 2**tries, RELOAD_AFTER_MAX_S) if tries else 0)
            try:
                predictor = self._make_predictor(number)  # which reads the manifest
                await predictor.start()
                break
            except FleetError as error:
                log.error("predictor_not_loaded", predictor=failed.name, reason=str(error))
                tries += 1
        self._take_in(number, predictor)

    def _take_in(self, number: int, predictor: Predictor) -> None:
        predictor.deliver(self._worker.predicted, self._worker.broke)
        self._predictors[number] = predictor
        self._serving[number] = True
        self._worker.restore(number, predictor)
        self._health.recovered("predictors")
        log.warning("predictor_replaced", predictor=predictor.name)

    def _follow_cpus(self, now_s: float) -> None:
        """More threads than the quota allows cost several times the time of a batch (docs/performance.md)."""
        if now_s - self._looked_at_cpus_s < LOOK_AT_CPUS_S:
            return
        self._looked_at_cpus_s = now_s
        try:
            parts = self._look_at_cpus()
        except FleetError:  # cores that the settings name are gone: the kernel has put their threads elsewhere
            return
        for predictor, part in zip(self._predictors, parts, strict=True):
            if part.threads != predictor.threads:
                log.info("threads", predictor=predictor.name, before=predictor.threads, now=part.threads, why=part.why)
                predictor.threads = part.threads

    def _look_at_layers(self, now_s: float) -> None:
        stuck = self._stalls.look(now_s, self._looks())
        for layer in stuck.keys() - self._health.stalls.keys():
            log.error("stalled", layer=layer, reason=stuck[layer])
        self._health.stalled(stuck)

    def _looks(self) -> Iterator[Look]:
        replies, reply_bound_s = self._worker.replies, min(LAYER_BOUND_S, self._settings.reply.timeout_s / 2)
        yield Look("reply", replies.waiting, replies.flushes, reply_bound_s)
        join_bound_s = self._settings.kafka.rebalance_timeout_ms / 1000 + LAYER_BOUND_S
        for lane in self._lanes:
            offsets, queue = self._worker.offsets[lane], self._worker.lanes[lane]
            waits = offsets.unreceived > 0 and queue.room > 0
            yield Look(f"receive {lane}", waits, (offsets.epoch, offsets.received), LAYER_BOUND_S)
            yield Look(f"join {lane}", not offsets.assigned, offsets.epoch, join_bound_s)
            yield Look(f"commit {lane}", offsets.waits_for_commit, (offsets.epoch, offsets.commits), LAYER_BOUND_S)


def _origins(ran: Batch | None) -> list[str]:
    """The first states of a batch as topic[partition]@offset."""
    records = [request.record for request in ran.requests[:SUSPECTS_TOLD]] if ran else []
    return [f"{record.topic}[{record.partition}]@{record.offset}" for record in records]

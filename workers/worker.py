"""The path of a record through a worker, top to bottom. Start reading here.

    receive ──▶ admit ──▶ lanes ──▶ schedule ──▶ predict ──▶ reply ──▶ commit
    (Receive)   polled()           pump()        (thread)   predicted()  answered()

Each method below is called once per poll or per batch, on the event loop, and never waits. The waiting is done by
`Receive` (one per lane), the predictors' threads, `Replies` and `Commit`; `lifecycle` starts and drains them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from aiokafka.structs import TopicPartition

from topics.names import Lane
from workers.admit import Admission, PollTime, Record
from workers.answers import count_answers
from workers.clock import from_unix_us, now_us
from workers.lanes import Lanes
from workers.metrics import Metrics
from workers.models.package import ACTION
from workers.offsets import LaneOffsets, PartitionOffsets
from workers.predictors.predictor import Predictor
from workers.reply import WayOut
from workers.requests import NEVER, Batch, Predicted, Refusal, Request
from workers.schedule import Schedule
from workers.tracing import Tracing

Down = Literal["model_hangs", "model_breaks"]
"""What a predictor did; the reason of its suspects' dead letters."""
DOWN: Final[Mapping[Down, str]] = {
    "model_hangs": "the model did not return when it ran this state",
    "model_breaks": "the model took nothing more, and had to be loaded anew, when it ran this state",
}
OVERDUE = "deadline passes before a predictor could answer"


class Worker:
    """The steps of one worker, put together in the order of the path."""

    def __init__(
        self,
        lanes: Lanes,
        offsets: Mapping[Lane, LaneOffsets],
        admission: Admission,
        schedule: Schedule,
        predictors: Sequence[Predictor],
        metrics: Metrics,
    ) -> None:
        self.lanes = lanes
        self.offsets = offsets
        self.progress = asyncio.Event()
        """Set whenever something was answered; whoever waits for room or for the end clears it."""
        self._admission = admission
        self._schedule = schedule
        self._predictors = list(predictors)
        self.metrics = metrics
        self.tracing: Tracing | None = None
        """None: nobody traces."""
        self._replies: WayOut | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.broken: BaseException | None = None
        """What a call raised that nobody awaits; the supervisor ends the process for it."""

    def reply_through(self, replies: WayOut) -> None:
        """Where answers go; given after construction, since replies in turn report to `answered`."""
        self._replies = replies

    @property
    def replies(self) -> WayOut:
        """The reply step."""
        assert self._replies is not None, "reply_through comes before the first poll"
        return self._replies

    def polled(self, lane: Lane, polled: Mapping[TopicPartition, list[Record]]) -> None:
        """Steps 1–3: records of owned partitions are admitted and queued in their lane; refusals go to reply."""
        time = PollTime(now_us(), from_unix_us())
        queue, size_bytes, n, oldest_ms = self.lanes[lane], 0, 0, NEVER
        unanswered: list[tuple[PartitionOffsets, Sequence[Record]]] = []
        for source, records in polled.items():
            offsets = self.offsets[lane].get(source.partition)
            if offsets is None:  # taken away while the poll was on its way: its new owner reads it
                continue
            numbers = [record.offset for record in records]
            offsets.received(numbers)
            size_bytes += sum([record.serialized_value_size for record in records])
            n += len(records)
            oldest_ms = min(oldest_ms, records[0].timestamp)
            if answered := offsets.skip_answered(numbers):
                records = [record for record in records if record.offset not in answered]
                self.metrics.skipped(lane, len(answered))
            unanswered.append((offsets, records))
        admitted = self._admission.admit(lane, unanswered, time)
        queue.put(admitted.requests)
        queue.hold(len(admitted.refusals))
        self.replies.refused(admitted.refusals)
        self.metrics.admitted(lane, len(admitted.requests))
        age_us = time.now_us - (oldest_ms * 1000 + time.from_unix_us) if n else 0
        self.metrics.polled(lane, n, size_bytes, max(0, age_us) / 1e6)
        self.metrics.stage("admit", (now_us() - time.now_us) / 1e6, n)
        self.pump()

    def pump(self) -> None:
        """Step 4: hand out every batch that should run now, answer what expired, and set the clock for the rest."""
        now = now_us()
        self._hand_out(now)
        self._settle(now)

    def _hand_out(self, now: int) -> None:
        while batch := self._schedule.next(now):
            self._predictors[batch.predictor].submit(batch)

    def _settle(self, now: int) -> None:
        if expired := self._schedule.expired():
            self.replies.refused([Refusal(request, "expired", OVERDUE) for request in expired])
        self._set_timer(self._schedule.wake_us(now) - now)

    def _set_timer(self, wait_us: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_us < NEVER // 2:
            self._timer = asyncio.get_running_loop().call_later(wait_us / 1e6, self._pump_in_time)

    def _pump_in_time(self) -> None:
        try:
            self.pump()
        except Exception as error:
            self.broke(error)

    def broke(self, error: BaseException) -> None:
        """A step failed where the event loop would only log it: states are in limbo, and the process must end."""
        self.broken = self.broken or error

    def predicted(self, ran: Predicted) -> None:
        """Step 5 ended for one batch: its predictor is free for the next, its answers leave."""
        if not self._schedule.holds(ran.batch):  # its predictor was fenced meanwhile, and its requests ran elsewhere
            return
        learn = not ran.faults  # rows at fault cost passes of their own
        self._schedule.finished(ran.batch, ran.started_us, ran.ended_us, learn=learn)
        now = now_us()
        self._hand_out(now)
        if self.tracing is not None:
            self.tracing.ran(ran)
        self.replies.predicted(ran)
        self.metrics.decided(ran.outputs[ACTION])
        self._settle(now)  # behind the batch: what expired may be a later state of one of its agents

    def fence(self, number: int, ran: Batch | None, down: Down, max_hangs: int) -> None:
        """Predictor `number` is out of service while it `ran` a batch, whose requests are suspected: those in too many
        such batches have failed. All else that it held waits again."""
        running, waiting = self._schedule.fence(number)
        for request in ran.requests if ran else ():
            request.hangs += 1
        held = [*running, *waiting]
        failed = [request for request in held if request.hangs >= max_hangs]
        self.replies.refused([Refusal(request, "failed", DOWN[down], dead=down) for request in failed])
        for request in held:
            if request.hangs < max_hangs:
                self._put_back(request)
        self.pump()

    def _put_back(self, request: Request) -> None:
        """Where its partition was taken away meanwhile, its new owner has read it by now."""
        if request.offsets.revoked:
            self.lanes[request.lane].answered(1)
            self.progress.set()
        else:
            self.lanes[request.lane].put_back(request)

    def restore(self, number: int, predictor: Predictor) -> None:
        """`predictor` takes the place of one that was fenced."""
        self._predictors[number] = predictor
        self._schedule.restore(number, predictor.warm_us)
        self.pump()

    def limit(self, number: int, max_batch: int) -> int:
        """Predictor `number` has no memory for more than `max_batch` rows; gives its largest batch so far."""
        return self._schedule.limit(number, max_batch)

    @property
    def available(self) -> int:
        """Predictors that serve."""
        return self._schedule.available

    def answered(self, predicted: Sequence[Predicted], refusals: Sequence[Refusal]) -> None:
        """Steps 6–7: the broker has acknowledged these answers, so their offsets are finished."""
        now = now_us()
        counted = count_answers(predicted, refusals, now, self.metrics)
        if self.tracing is not None:
            self.tracing.answered(predicted, refusals, now)
        for lane, n in counted.items():
            self.lanes[lane].answered(n)
        self.progress.set()

    async def settled(self, lanes: Sequence[Lane], within_s: float, *, queued: bool) -> bool:
        """Wait until nothing of `lanes` is in flight (with `queued`: nor queued); False if that took too long."""
        try:
            async with asyncio.timeout(within_s):
                while any(self.lanes[lane].in_flight or (queued and len(self.lanes[lane])) for lane in lanes):
                    self.progress.clear()
                    await self.progress.wait()
        except TimeoutError:
            return False
        return True

    def stop_timer(self) -> None:
        """Nothing more will be scheduled."""
        self._set_timer(NEVER)

    def __repr__(self) -> str:
        return f"<Worker {self._schedule!r}>"

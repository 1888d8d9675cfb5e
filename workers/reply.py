"""Step 6, reply: what ended becomes records, and an offset is finished only when the broker has acknowledged them.

Predicted batches and refusals are collected while the previous flush is on its way, so under load one flush carries
many batches. Order is kept: an agent's replies leave in the order in which its states ended. A dead letter is
acknowledged before the reply that tells of it is sent, so neither exists without a way to find the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from topics.columns import ActionColumns
from topics.outbox import Outbox, Oversized, RecordsTooLarge
from topics.records import Action, Origin, Timing
from topics.tensors import Array
from topics.wire import encode_action
from workers.clock import now_us
from workers.dead_letters import DeadLetters
from workers.metrics import Metrics
from workers.requests import Fault, Predicted, Refusal, Request

OnAnswered = Callable[[Sequence[Predicted], Sequence[Refusal]], None]
MAX_REASON_CHARACTERS: Final = 500
REPLY_TOO_LARGE: Final = "reply_too_large"
MAX_ECHO_BYTES: Final = 1024
"""Of key and headers in an answer that takes the place of one that was too large."""


class WayOut(Protocol):
    """What the path sees of the reply step: `Replies`, or `workers.transactions` for exactly-once."""

    flushes: int
    """Acknowledged flushes, or transactions."""

    @property
    def waiting(self) -> bool:
        """Whether answers wait to be sent or to be acknowledged."""

    def predicted(self, predicted: Predicted) -> None:
        """A batch ran; its rows at fault become refusals."""

    def refused(self, refusals: Sequence[Refusal]) -> None:
        """Requests ended without a model."""

    async def run(self) -> None:
        """Send until cancelled, or finished."""

    async def finish(self, within_s: float) -> None:
        """Once this returns no answer leaves that the commit after it would not know of."""


class Replies:
    """Encodes and sends answers. Bounded by the lanes: what is pending here still counts as in flight there."""

    def __init__(
        self,
        outbox: Outbox,
        dead_letters: DeadLetters,
        encoder: Encoder,
        on_answered: OnAnswered,
        within_s: float,
        metrics: Metrics,
    ) -> None:
        self._outbox = outbox
        self._dead_letters = dead_letters
        self._encoder = encoder
        self._on_answered = on_answered
        self._within_s = within_s
        self._metrics = metrics
        self._ended: list[Predicted | Refusal] = []
        self._wake = asyncio.Event()
        self._sending = False
        self._finishing = False
        self._finished = asyncio.Event()
        self.flushes = 0
        """Acknowledged flushes."""

    @property
    def waiting(self) -> bool:
        """Whether answers wait to be sent or to be acknowledged."""
        return self._sending or bool(self._ended)

    def predicted(self, predicted: Predicted) -> None:
        """A batch ran; its rows at fault become refusals."""
        self._ended.append(predicted)
        self._wake.set()

    def refused(self, refusals: Sequence[Refusal]) -> None:
        """Requests ended without a model."""
        if refusals:
            self._ended += refusals
            self._wake.set()

    async def run(self) -> None:
        """Send until cancelled or finished. Raises `SendFailed` when the broker refuses: nothing of it then counts."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._finishing:
                self._finished.set()
                return
            ended, self._ended = self._ended, []
            started_us, self._sending = now_us(), True
            predicted = [end for end in ended if isinstance(end, Predicted)]
            refusals = [refusal for end in ended for refusal in _refusals(end)]
            await self._dead_letters.write([refusal for refusal in refusals if not refusal.request.offsets.revoked])
            refusals += await self._send(ended, refusals)
            self._on_answered(predicted, refusals)
            self._sending = False
            self.flushes += 1
            answered = sum(len(ran.batch) - len(ran.faults) for ran in predicted) + len(refusals)
            self._metrics.stage("reply", (now_us() - started_us) / 1e6, answered)

    async def finish(self, within_s: float) -> None:
        """Begin no more flushes, and wait for the one on its way. Takes `within_s` at most."""
        self._finishing = True
        self._wake.set()
        try:
            async with asyncio.timeout(within_s):
                await self._finished.wait()
        except TimeoutError:
            pass  # its acknowledgement may never come; its states are not committed

    async def _send(self, ended: Sequence[Predicted | Refusal], refusals: Sequence[Refusal]) -> list[Refusal]:
        """Send what `ended`, with its `refusals`; gives those whose action is too large for its topic: they failed."""
        for end in ended:
            self._add(self._answers(end))
        try:
            await self._outbox.flush(self._within_s)
        except RecordsTooLarge as error:
            sizes = {_identity(record): record.size_bytes for record in error.records}
            failed = [refusal for end in ended for refusal in self._failed(end, sizes)]
            await self._dead_letters.write(failed)
            again = [refusal for refusal in refusals if self._identity(refusal) in sizes] + failed
            for refusal in again:
                refusal.fallback = False
                _shorten(refusal.request)
            self._add([(refusal.request, self._encoder.refusal(refusal)) for refusal in again])
            await self._outbox.flush(self._within_s)  # a topic that takes not even these ends the process
            return failed
        return []

    def _failed(self, ran: Predicted | Refusal, sizes: Mapping[object, int]) -> Iterator[Refusal]:
        """The rows of a batch whose actions are too large become faults."""
        if isinstance(ran, Refusal):
            return
        rows = {request: row for row, request in enumerate(ran.batch.requests)}
        for request, value in self._encoder.actions(ran):
            place = request.reply_topic
            if size := sizes.get((place, request.agent, value, tuple(request.headers))):
                reason = f"the answer is a record of {size} bytes, more than {place} takes"
                ran.faults[rows[request]] = Fault("failed", REPLY_TOO_LARGE, reason)
                yield Refusal(request, "failed", reason, dead=REPLY_TOO_LARGE)

    def _identity(self, refusal: Refusal) -> object:
        request = refusal.request
        return (request.reply_topic, request.agent, self._encoder.refusal(refusal), tuple(request.headers))

    def _answers(self, end: Predicted | Refusal) -> Sequence[tuple[Request, bytes]]:
        """In the order of a batch's rows, at fault or not: an agent may have several."""
        ours = [refusal for refusal in _refusals(end) if not refusal.request.offsets.revoked]
        refused = [(refusal.request, self._encoder.refusal(refusal)) for refusal in ours]
        if isinstance(end, Refusal):
            return refused
        actions = self._encoder.actions(end)
        if not refused:
            return actions
        rows = {request: row for row, request in enumerate(end.batch.requests)}
        return sorted([*actions, *refused], key=lambda answer: rows[answer[0]])

    def _add(self, answers: Sequence[tuple[Request, bytes]]) -> None:
        add = self._outbox.add
        for request, value in answers:
            add(request.reply_topic, request.reply_partition, request.agent, value, request.headers)


def _refusals(end: Predicted | Refusal) -> list[Refusal]:
    """What ended without an action."""
    if isinstance(end, Refusal):
        return [end]
    requests = end.batch.requests
    return [Refusal(requests[row], at.outcome, at.reason, dead=at.label) for row, at in end.faults.items()]


def _identity(record: Oversized) -> object:
    return (record.topic, record.key, record.value, record.headers)


def _shorten(request: Request) -> None:
    """Where the agent's own key and headers are what is long, the answer names the state's origin instead."""
    if len(request.agent) + sum(len(name) + len(value) for name, value in request.headers) > MAX_ECHO_BYTES:
        request.agent, request.headers, request.correlated = b"", [], False


class Encoder:
    """Answers → bytes, for one model on one worker; `fallback` is the action of states that expired, if any."""

    def __init__(
        self, columns: ActionColumns, outputs: Sequence[str], model: str, worker: str, fallback: Array | None = None
    ) -> None:
        self._columns = columns
        self._outputs = tuple(outputs)
        self._model = model
        self._worker = worker
        self._fallback = fallback

    def actions(self, ran: Predicted) -> list[tuple[Request, bytes]]:
        """The rows of a batch that have an action and still are ours to answer, with their bytes."""
        requests = ran.batch.requests
        waits_us = [ran.started_us - request.received_us for request in requests]
        values = self._columns.encode(
            [request.lane for request in requests],
            waits_us,
            [request.offsets.epoch for request in requests],
            [request.seq for request in requests],
            ran.ended_us - ran.started_us,
            ran.outputs,
        )
        for row, request in enumerate(requests):
            if request.plain or not request.correlated:
                values[row] = self._single(ran, row, waits_us[row])
        return [
            (request, value)
            for row, (request, value) in enumerate(zip(requests, values, strict=True))
            if not request.offsets.revoked and row not in ran.faults
        ]

    def _single(self, ran: Predicted, row: int, wait_us: int) -> bytes:
        """For agents that speak plain numbers, or that sent no correlation ID and need the state's origin."""
        request = ran.batch.requests[row]
        first, *others = self._outputs
        value = _plain if request.plain else _tensor
        return encode_action(
            Action(
                outcome="action",
                seq=request.seq,
                action=value(ran.outputs[first][row]),
                model=self._model,
                lane=request.lane,
                worker=self._worker,
                timing=Timing(wait_us, ran.ended_us - ran.started_us, len(ran.batch)),
                extras={name: value(ran.outputs[name][row]) for name in others},
                origin=_origin(request),
                epoch=request.offsets.epoch,
            )
        )

    def refusal(self, refusal: Refusal) -> bytes:
        """The bytes of an answer without a model's action."""
        request, action = refusal.request, None
        if self._fallback is not None and refusal.outcome == "expired" and refusal.fallback:
            action = _plain(self._fallback) if request.plain else self._fallback
        return encode_action(
            Action(
                outcome=refusal.outcome,
                seq=request.seq,
                action=action,
                reason=refusal.reason[:MAX_REASON_CHARACTERS],
                model=self._model,
                lane=request.lane,
                worker=self._worker,
                origin=_origin(request),
                epoch=request.offsets.epoch,
            )
        )


def _plain(value: Array) -> object:
    return value.tolist()


def _tensor(value: Array) -> object:
    return value


def _origin(request: Request) -> Origin | None:
    """Where the state was read, for agents that sent no correlation ID."""
    record = request.record
    return None if request.correlated else Origin(record.topic, record.partition, record.offset)

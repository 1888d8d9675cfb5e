"""Single `decide` calls, gathered: all that are made in one turn of the event loop travel as one call.

They share the encoding, the call's number, one timer and, per partition, one record batch; each has a future of its
own only because each has a coroutine that waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from topics import trace
from topics.client.agents import Agent
from topics.client.calls import Call, PendingCalls
from topics.client.decode import ActionReader
from topics.client.encode import TurnEncoder
from topics.client.exchange import Exchange
from topics.client.replies import Reply
from topics.errors import FleetError, RecordError
from topics.names import Lane
from topics.records import State
from topics.trace import TraceHeaders


@dataclass(slots=True, eq=False)
class Ask:
    """One state of a turn, and who waits for its answer."""

    agent: Agent
    lane: Lane
    state: State
    deadline_ms: float | None
    timeout_s: float
    reply: asyncio.Future[Reply]
    trace: TraceHeaders


class Turns:
    """Collects asks; those of one turn of the loop leave together, when the sender that was woken calls `leave`."""

    def __init__(self, exchange: Exchange, pending: PendingCalls, actions: ActionReader) -> None:
        self._exchange = exchange
        self._pending = pending
        self._actions = actions
        self._asks: list[Ask] = []
        self._loop = asyncio.get_running_loop()

    def ask(
        self, agent: Agent, lane: Lane, state: State, deadline_ms: float | None, timeout_s: float
    ) -> asyncio.Future[Reply]:
        """The answer to `state`, which leaves at the end of this turn."""
        if not self._asks:
            self._exchange.wake_sender()
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._asks.append(Ask(agent, lane, state, deadline_ms, timeout_s, reply, trace.current()))
        return reply

    def abort(self, error: FleetError) -> None:
        """Who asked in this turn gets `error`; nothing leaves."""
        asks, self._asks = self._asks, []
        for ask in asks:
            if not ask.reply.done():
                ask.reply.set_exception(copy(error))

    def leave(self) -> None:
        """Launch what was asked for since the last time."""
        if not self._asks:
            return
        asks, self._asks = self._asks, []
        by_call: dict[tuple[float, TraceHeaders], list[Ask]] = {}
        for ask in asks:
            if not ask.reply.done():  # whoever asked may have been cancelled in the same turn
                by_call.setdefault((ask.timeout_s, ask.trace), []).append(ask)
        now_us = time.time_ns() // 1000
        for (timeout_s, _), together in by_call.items():
            values = self._encoded(together, now_us)
            together = [ask for ask, value in zip(together, values, strict=True) if value is not None]
            if together:
                self._launch(together, [value for value in values if value is not None], timeout_s)

    def _launch(self, asks: list[Ask], values: list[bytes], timeout_s: float) -> None:
        turn = Turn(asks, self._actions, self._exchange, self._pending)
        call = turn.call = self._pending.open(len(asks), self._loop.time(), turn.settled)
        turn.timer = self._loop.call_later(timeout_s, turn.expire)
        try:
            self._exchange.launch(call, [ask.agent for ask in asks], [ask.lane for ask in asks], values, asks[0].trace)
        except FleetError as error:
            call.lose(call.unanswered(), error)

    def _encoded(self, asks: Sequence[Ask], now_us: int) -> list[bytes | None]:
        """The bytes of each state; None where it cannot be encoded, which its asker is told."""
        encoder = TurnEncoder()
        values: list[bytes | None] = []
        for ask in asks:
            state = ask.state
            state.sent_us = now_us
            if ask.deadline_ms is not None:
                state.deadline_us = now_us + round(ask.deadline_ms * 1000)
            try:
                value = encoder.value(state)
                self._exchange.check_size([value])
            except (RecordError, TypeError, ValueError, OverflowError) as error:
                ask.reply.set_exception(error)
                values.append(None)
            else:
                values.append(value)
        return values


class Turn:
    """The asks of one turn that have the same time-out, from the moment they leave until the last is settled."""

    def __init__(self, asks: Sequence[Ask], actions: ActionReader, exchange: Exchange, pending: PendingCalls) -> None:
        self._asks = asks
        self._actions = actions
        self._exchange = exchange
        self._pending = pending
        self.call: Call
        self.timer: asyncio.TimerHandle

    def settled(self, rows: Sequence[int]) -> None:
        """These rows are answered or lost: wake those who wait for them."""
        answered = [row for row in rows if self.call.values[row] is not None]
        if answered:
            self._answer(answered)
        if self.call.error is not None:
            self._fail([row for row in rows if row in self.call.lost], self.call.error)
        if not self.call.left:
            self._end()

    def _answer(self, rows: Sequence[int]) -> None:
        call = self.call
        decoded = self._actions.read([call.values[row] for row in rows])
        for at, row in enumerate(rows):
            ask, outcome = self._asks[row], str(decoded.outcomes[at])
            ask.agent.ended(outcome)
            if not ask.reply.done():
                latency_s = call.arrived_s[row] - call.sent_s
                value, record = call.values[row] or b"", decoded.records.get(at)
                ask.reply.set_result(Reply(ask.agent.id, outcome, decoded.action(at), latency_s, value, record))

    def _fail(self, rows: Sequence[int], error: FleetError) -> None:
        for row in rows:
            if not self._asks[row].reply.done():  # each its own copy: whoever waits adds to the traceback
                self._asks[row].reply.set_exception(copy(error))

    def expire(self) -> None:
        """Time is up: whoever still waits gets the error."""
        for row in self.call.unanswered():
            ask = self._asks[row]
            if row in self.call.lost:
                continue
            ask.agent.ended("")
            if not ask.reply.done():
                ask.reply.set_exception(self._exchange.why_unanswered(self.call, ask.agent.id, ask.lane, ask.timeout_s))
        self._end()

    def _end(self) -> None:
        self.timer.cancel()
        self._pending.close(self.call)

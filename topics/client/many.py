"""`decide_many`: one call, one future and one timer, however many agents it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from topics import trace
from topics.client.agents import Agent
from topics.client.calls import Call, PendingCalls
from topics.client.decode import ActionReader
from topics.client.errors import ClientClosed
from topics.client.exchange import Exchange
from topics.client.replies import Replies
from topics.errors import FleetError
from topics.names import Lane


class Many:
    """Sends the states of many agents and waits for all of their answers."""

    def __init__(self, exchange: Exchange, pending: PendingCalls, actions: ActionReader, look_back: bool) -> None:
        self._exchange = exchange
        self._pending = pending
        self._actions = actions
        self._look_back = look_back
        self._loop = asyncio.get_running_loop()

    async def ask(
        self,
        ids: Sequence[str],
        agents: Sequence[Agent],
        lanes: Lane | Sequence[Lane],
        values: Sequence[bytes],
        wait_s: float,
    ) -> Replies:
        """The answers to `values[i]` of `agents[i]`; after `wait_s`, those that came.

        Raises:
            ClientClosed: the client was closed meanwhile.
            TooLarge, NotSent: nothing, or not everything, could be sent.
        """
        self._exchange.check_size(values)
        settled: asyncio.Future[None] = self._loop.create_future()
        call = self._pending.open(len(values), self._loop.time(), lambda _rows: _wake(settled, call))
        timer = self._loop.call_later(wait_s, _end, settled)
        try:
            self._exchange.launch(call, agents, lanes, values, trace.current())
            await settled
        finally:
            timer.cancel()
            self._pending.close(call)
        if isinstance(call.error, ClientClosed):
            raise call.error
        return self._replies(ids, agents, lanes, call, wait_s)

    def _replies(
        self, ids: Sequence[str], agents: Sequence[Agent], lanes: Lane | Sequence[Lane], call: Call, wait_s: float
    ) -> Replies:
        decoded = self._actions.read(call.values)
        latency_s = np.array(call.arrived_s) - call.sent_s
        error = self._error(ids, lanes, call, wait_s)
        if error is not None:
            latency_s[call.unanswered()] = np.nan
        if self._look_back:
            for agent, outcome in zip(agents, decoded.outcomes.tolist(), strict=True):
                agent.ended(outcome)
        return Replies(ids, call.values, decoded, latency_s, error)

    def _error(self, ids: Sequence[str], lanes: Lane | Sequence[Lane], call: Call, wait_s: float) -> FleetError | None:
        """Why rows have no answer."""
        if not call.left:
            return call.error
        missing = [row for row in call.unanswered() if row not in call.lost]
        lane = lanes if isinstance(lanes, str) else lanes[missing[0]]
        more = f" and {len(missing) - 1} other agents" if len(missing) > 1 else ""
        return self._exchange.why_unanswered(call, f"{ids[missing[0]]}{more}", lane, wait_s)


def _wake(settled: asyncio.Future[None], call: Call) -> None:
    if not call.left:
        _end(settled)


def _end(settled: asyncio.Future[None]) -> None:
    if not settled.done():
        settled.set_result(None)

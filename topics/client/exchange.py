"""Calls on their way: puts a call's states on their routes and says why one has no answer in time.

Between `AgentClient`, which knows agents, and the connection, which knows partitions.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from topics.client import correlation
from topics.client.agents import Agent
from topics.client.calls import Call, PendingCalls
from topics.client.connection import Connection
from topics.client.errors import ReplyTimeout
from topics.client.sending import Columns
from topics.errors import TooLarge
from topics.headers import REPLY_PARTITION, REPLY_TOPIC
from topics.names import LANES, Lane
from topics.settings import FleetSettings
from topics.trace import TraceHeaders

SILENT_S = 2.0
"""A broker answers polls every few tens of ms; one that does not for this long is in trouble."""


class Exchange:
    """The open connection of one client, seen from its calls."""

    def __init__(
        self,
        settings: FleetSettings,
        connection: Connection,
        pending: PendingCalls,
        reply_topic: str | None,
        reply_partition: int | None,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._pending = pending
        self._reply_topic = reply_topic
        self._headers: list[tuple[str, bytes]] = []
        if reply_topic is not None:
            self._headers.append((REPLY_TOPIC, reply_topic.encode()))
        if reply_partition is not None:
            self._headers.append((REPLY_PARTITION, reply_partition.to_bytes(4, "big")))
        self._topics = {lane: settings.names.states(lane) for lane in LANES}

    def launch(
        self,
        call: Call,
        agents: Sequence[Agent],
        lanes: Lane | Sequence[Lane],
        values: Sequence[bytes],
        trace: TraceHeaders,
    ) -> None:
        """Put every state of `call` on its way; row i is `values[i]` of `agents[i]`. `trace`: the span that asks.

        Raises:
            NotSent: too much waits for the broker; some may have left.
        """
        columns = Columns(
            [agent.key for agent in agents],
            values,
            correlation.headers(call.head, len(values), [*self._headers, *trace]),
        )
        for (lane, partition), rows in self._routes(agents, lanes):
            self._connection.sender.put(self._topics[lane], partition, call, rows, columns)

    def wake_sender(self) -> None:
        """Single states have been asked for; `before_departure` of the sender will launch them."""
        self._connection.sender.wake()

    def check_size(self, values: Sequence[bytes]) -> None:
        """`TooLarge` if one of these states is larger than the fleet takes."""
        largest, limit = max(map(len, values)), self._settings.topics.max_record_bytes
        if largest > limit:
            raise TooLarge(f"state has {largest} bytes, topics.max_record_bytes is {limit}")

    @staticmethod
    def _routes(agents: Sequence[Agent], lanes: Lane | Sequence[Lane]) -> Iterable[tuple[tuple[Lane, int], list[int]]]:
        """Rows by lane and partition."""
        if isinstance(lanes, str):
            partitions: dict[int, list[int]] = defaultdict(list)
            for row, agent in enumerate(agents):
                partitions[agent.partition].append(row)
            return [((lanes, partition), rows) for partition, rows in partitions.items()]
        routes: dict[tuple[Any, int], list[int]] = defaultdict(list)
        for row, (agent, lane) in enumerate(zip(agents, lanes, strict=True)):
            routes[lane, agent.partition].append(row)
        return routes.items()

    def why_unanswered(self, call: Call, who: str, lane: str, waited_s: float) -> ReplyTimeout:
        """The time-out of `who`, with what this client knows of the reasons."""
        return ReplyTimeout(f"no answer for {who} (lane {lane}) within {waited_s:.3g} s: {self._likely_reason(call)}")

    def _likely_reason(self, call: Call) -> str:
        servers = self._settings.kafka.bootstrap_servers
        if topics := self._connection.sender.unacknowledged(call):
            return f"the broker at {servers} has not acknowledged the state to {topics[0]}: is it gone?"
        if (silence_s := self._connection.reader.silence_s(time.time())) > SILENT_S:
            return f"the broker at {servers} has not answered for {silence_s:.0f} s: is it gone?"
        if (error := self._connection.reader.last_error) is not None:
            return f"reading replies from {servers} fails: {error!r}"
        if self._reply_topic is not None:
            return (
                "the broker took the state; no worker runs (`fleet worker`), it is behind, "
                f"or the fleet does not allow replies to {self._reply_topic}"
            )
        return (
            "the broker took the state; no worker of this fleet runs (`fleet worker`), or it is that far behind "
            f"(`fleet topics check` and the lag of {self._settings.name} tell)"
        )

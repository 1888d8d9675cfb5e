"""The agents' side of the wire: states go out with `decide` or `decide_many`, actions come back.

Takes observations, gives replies. Decided here is only who asks (agent, step, lane) and when a call is over;
encoding, sending, reading, matching and decoding have a module each. No state has a task, a timer or a lock of its
own; only a single `decide` has a future.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import TracebackType
from typing import Any, Self

import numpy as np

from topics.client import correlation
from topics.client.agents import Agent, Agents
from topics.client.arguments import per_row, seqs_for
from topics.client.calls import PendingCalls
from topics.client.connection import Connection, connect, disconnect
from topics.client.decode import ActionReader
from topics.client.encode import Asked, encode_call
from topics.client.errors import CLOSED, ClientClosed
from topics.client.exchange import Exchange
from topics.client.lanes import Attributes, LaneRules, checked
from topics.client.many import Many
from topics.client.replies import Replies, Reply
from topics.client.stats import ClientStats
from topics.client.turn import Turns
from topics.errors import FleetError, SettingsError
from topics.names import FleetNames, Lane
from topics.partitions import Partitioner
from topics.records import State
from topics.settings import FleetSettings, PriorityRule, PrioritySettings, load_settings

Rules = PrioritySettings | Sequence[PriorityRule]


class AgentClient:
    """Asks a fleet for decisions, for any number of agents, from one event loop.

        async with AgentClient(fleet="cartpole") as agents:
            reply = await agents.decide("agent-7", observation, lane="high", deadline_ms=20)

    `fleet`, `bootstrap_servers` and `rules` replace what `settings` say; without `settings` they are read like
    everywhere (`FLEET_…` variables, `fleet.toml`, defaults). `reply_topic` and `reply_partition` name a place of this
    client's own for its answers, else they come on the actions topic in each agent's partition. `timeout_s` bounds
    every call that names no other, `close_s` bounds `close`.

    Raises:
        SettingsError: a setting is wrong.
    """

    def __init__(
        self,
        fleet: str | None = None,
        *,
        settings: FleetSettings | None = None,
        bootstrap_servers: str | Sequence[str] | None = None,
        reply_topic: str | None = None,
        reply_partition: int | None = None,
        timeout_s: float = 5.0,
        close_s: float = 5.0,
        rules: Rules | None = None,
    ) -> None:
        self.settings = _settings(settings, fleet, bootstrap_servers)
        self.stats = ClientStats()
        self._reply_topic = reply_topic
        self._reply_partition = reply_partition
        self._timeout_s = timeout_s
        self.close_s = close_s
        self._lanes = LaneRules(_priority(self.settings, rules))
        self._actions = ActionReader(self.stats)
        self._client_id = correlation.new_client_id()
        self._pending = PendingCalls(self._client_id, self.stats)
        self._over: FleetError | None = ClientClosed("the client is not open: use `async with AgentClient(…)`")
        self._connection: Connection
        self._exchange: Exchange
        self._turns: Turns
        self._many: Many
        self._loop: asyncio.AbstractEventLoop
        self._agents: Agents

    async def start(self) -> None:
        """Connect; `async with` does it.

        Raises:
            BrokerUnavailable: no broker answers at the address, or it refuses us.
            TopicMissing: a states topic or the reply topic is not there.
            SettingsError: `reply_partition` does not exist.
        """
        self._loop = asyncio.get_running_loop()
        connection = self._connection = await connect(
            self.settings,
            self._reply_topic or self.settings.names.actions,
            f"{self.settings.name}-agents-{self._client_id.hex()[:8]}",
            self.stats,
            self._on_replies,
            self._pending.lose,
            self._on_failure,
        )
        self._exchange = Exchange(self.settings, connection, self._pending, self._reply_topic, self._reply_partition)
        self._turns = Turns(self._exchange, self._pending, self._actions)
        connection.sender.before_departure = self._turns.leave
        self._many = Many(self._exchange, self._pending, self._actions, self._lanes.look_back)
        self._agents = Agents(Partitioner(connection.partitions), self._reply_partitions(connection))
        self._over = None
        try:
            await self._watch_own_partition(connection)
        except BaseException:
            await self.close()
            raise

    def _reply_partitions(self, connection: Connection) -> Any:
        if self._reply_partition is None:
            return Partitioner(connection.reply_partitions)
        partition = self._reply_partition
        return lambda _key: partition

    async def _watch_own_partition(self, connection: Connection) -> None:
        if self._reply_partition is None:
            return
        if not 0 <= self._reply_partition < connection.reply_partitions:
            topic, count = self._reply_topic or self.settings.names.actions, connection.reply_partitions
            raise SettingsError(
                f"reply_partition={self._reply_partition} does not exist: {topic} has {count} partitions"
            )
        await connection.reader.watch([self._reply_partition], self._timeout_s)

    async def decide(
        self,
        agent_id: str,
        observation: Any,
        *,
        lane: Lane | None = None,
        deadline_ms: float | None = None,
        kind: str | None = None,
        attributes: Attributes | None = None,
        seq: int | None = None,
        episode: int | str | None = None,
        options: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """The fleet's answer to one state of one agent, whatever its outcome.

        `observation`: an array [*shape], a map of input name → array, or plain numbers and lists. `lane`: else the
        fleet's priority rules choose it from `kind`, `attributes`, `deadline_ms` and how the agent's last state
        ended. `deadline_ms`: from now; a state that waits longer is answered `expired`. `seq`: else counted per
        agent from 0. Calls made in one turn of the event loop travel together.

        Raises:
            ReplyTimeout: no answer within `timeout_s`.
            BrokerUnavailable: the broker does not say where the answers of a new agent will begin.
            NotSent: the broker refused the state, or too many wait for it.
            ClientClosed: the client was closed meanwhile.
            TooLarge, InputError: the observation is too large, or its dtype cannot travel.
        """
        self._check_open()
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        known = self._agents.known((agent_id,))
        if known is None:
            known, wait_s = await self._meet((agent_id,), wait_s)
        (agent,) = known
        if lane is None:
            lane = self._lanes.one(agent, kind, deadline_ms, attributes)
        state = State(observation, agent.next_seq(seq), episode, kind, options=dict(options or {}))
        return await self._turns.ask(agent, checked(lane), state, deadline_ms, wait_s)

    async def decide_many(
        self,
        ids: Sequence[str],
        observations: Any,
        *,
        lane: Lane | Sequence[Lane] | None = None,
        deadline_ms: float | Sequence[float | None] | None = None,
        kind: str | Sequence[str | None] | None = None,
        attributes: Attributes | Sequence[Attributes | None] | None = None,
        seq: Sequence[int] | None = None,
        episode: int | str | Sequence[int | str] | None = None,
        options: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Replies:
        """The fleet's answers to one state each of n agents, in columns.

        `observations`: an array [n, *shape], a map of input name → [n, *shape], or a list of n. Other arguments as in
        `decide`, one for all or a list [n]. Ends when every state is answered or after `timeout_s`; what came by then
        is in the replies, `answered` says which.

        Raises:
            ClientClosed: the client was closed meanwhile.
            BrokerUnavailable: the broker does not say where the answers of new agents will begin.
            TooLarge, InputError: the observations are too large, or their dtype cannot travel.
            ValueError: lengths differ, or a lane does not exist.
        """
        self._check_open()
        size = len(ids)
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        if not size:
            return Replies(ids, [], self._actions.read([]), np.empty(0), None)
        agents = self._agents.known(ids)
        if agents is None:
            agents, wait_s = await self._meet(ids, wait_s)
        asked = Asked(
            per_row(kind, size, "kind"),
            per_row(deadline_ms, size, "deadline_ms"),
            per_row(episode, size, "episode"),
            options,
        )
        lanes = self._lanes_for(agents, lane, asked, attributes)
        seqs = seqs_for(agents, per_row(seq, size, "seq"))
        values = encode_call(observations, seqs, asked, time.time_ns() // 1000)
        self._turns.leave()  # single states of this turn have lower counters: they go first
        return await self._many.ask(ids, agents, lanes, values, wait_s)

    def forget(self, ids: Iterable[str]) -> None:
        """Drop what is remembered of agents that will not come back: step counter, partition, history (0.3 kB each)."""
        self._agents.forget(ids)

    async def close(self) -> None:
        """Close within about `close_s`, also when the broker is gone. Calls that still wait raise `ClientClosed`."""
        if isinstance(self._over, ClientClosed):
            return
        self._end(ClientClosed(CLOSED))
        await disconnect(self._connection, self.close_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._over is not None:
            raise copy(self._over)

    async def _meet(self, ids: Sequence[str], wait_s: float) -> tuple[list[Agent], float]:
        """The agents in this order, new ones among them, and what is left of `wait_s`.

        The answers of the new ones are read from before their first state on.
        """
        began_s = self._loop.time()
        strangers = self._agents.strangers(ids)
        await self._connection.reader.watch({agent.reply_partition for agent in strangers}, wait_s)
        self._check_open()
        self._agents.meet(strangers)
        return self._agents.known(ids) or [], max(0.0, wait_s - (self._loop.time() - began_s))

    def _lanes_for(self, agents: Sequence[Agent], lane: Any, asked: Asked, attributes: Any) -> Lane | list[Lane]:
        if lane is None:
            attributes = per_row(attributes, len(agents), "attributes")
            return self._lanes.many(agents, asked.kind, asked.deadline_ms, attributes)
        lanes = per_row(lane, len(agents), "lane")
        if isinstance(lanes, list):
            for name in set(lanes):
                checked(name)
            return lanes
        return checked(lanes)

    def _on_replies(self, records: Iterable[Any]) -> None:
        self._pending.land(correlation.by_call(records), self._loop.time())

    def _on_failure(self, error: BaseException) -> None:
        """A task of the connection has ended with a bug: nothing would ever be answered."""
        if self._over is None:
            self._end(FleetError(f"the client is broken, open a new one: {error!r}"))

    def _end(self, why: FleetError) -> None:
        """Every call that still waits ends with `why`, and so does every further one."""
        self._over = why
        self._pending.abort(why)
        self._turns.abort(why)

    def __repr__(self) -> str:
        state = "open" if self._over is None else str(self._over)
        return f"<AgentClient {self.settings.name} on {self.settings.kafka.bootstrap_servers} {state}>"


def _settings(settings: FleetSettings | None, fleet: str | None, servers: str | Sequence[str] | None) -> FleetSettings:
    if servers is not None and not isinstance(servers, str):
        servers = ",".join(servers)
    if settings is None:
        overrides: dict[str, Any] = {} if fleet is None else {"name": fleet}
        if servers is not None:
            overrides["kafka"] = {"bootstrap_servers": servers}
        return load_settings(FleetSettings, overrides=overrides)
    if servers is not None:
        kafka = settings.kafka.model_copy(update={"bootstrap_servers": servers})
        settings = settings.model_copy(update={"kafka": kafka})
    if fleet is not None:
        settings = settings.model_copy(update={"name": FleetNames(fleet).fleet})
    return settings


def _priority(settings: FleetSettings, rules: Rules | None) -> PrioritySettings:
    if rules is None or isinstance(rules, PrioritySettings):
        return settings.priority if rules is None else rules
    return settings.priority.model_copy(update={"rules": tuple(rules)})

"""The agents of one client: key, partitions, step counter, and how their last state ended.

An agent is met once (its reply partition is then read before its first state leaves) and remembered until it is
forgotten; 0.3 kB each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Agent:
    """One agent as this client knows it."""

    id: str
    key: bytes
    partition: int
    """In every lane."""
    reply_partition: int
    seq: int = 0
    """Counter of its next state."""
    last_outcome: str | None = None
    """Of its last answered state; None before the first."""
    timeouts_in_a_row: int = 0
    """Its last states that got no answer in time."""

    def next_seq(self, given: int | None = None) -> int:
        """The counter of the state that is about to leave; a given one moves the counter."""
        seq = self.seq if given is None else given
        self.seq = seq + 1
        return seq

    def ended(self, outcome: str) -> None:
        """Its state ended with `outcome`; "" if no answer came in time."""
        if outcome:
            self.last_outcome = outcome
            self.timeouts_in_a_row = 0
        else:
            self.timeouts_in_a_row += 1


class Agents:
    """Agents by ID. Grows with every new ID; `forget` those that never come back."""

    def __init__(self, partition_of: Callable[[bytes], int], reply_partition_of: Callable[[bytes], int]) -> None:
        self._partition_of = partition_of
        self._reply_partition_of = reply_partition_of
        self._known: dict[str, Agent] = {}

    def known(self, ids: Sequence[str]) -> list[Agent] | None:
        """The agents in this order; None if one of them has not been met."""
        known = self._known
        try:
            return [known[agent_id] for agent_id in ids]
        except KeyError:
            return None

    def strangers(self, ids: Iterable[str]) -> list[Agent]:
        """A new agent for every ID that has not been met; not remembered before `meet`.

        Raises:
            TypeError: an ID is not a string.
            ValueError: an ID is empty.
        """
        fresh = dict.fromkeys(agent_id for agent_id in ids if agent_id not in self._known)
        return [self._new(agent_id) for agent_id in fresh]

    def _new(self, agent_id: str) -> Agent:
        if not isinstance(agent_id, str):
            raise TypeError(f"agent ID {agent_id!r} is a {type(agent_id).__name__}, expected a string")
        if not agent_id:
            raise ValueError("agent ID is empty: it is the Kafka key, and order is kept per key")
        key = agent_id.encode()
        return Agent(str(agent_id), key, self._partition_of(key), self._reply_partition_of(key))

    def meet(self, agents: Iterable[Agent]) -> None:
        """Remember them: their replies are being read. Who is known already stays as it is."""
        for agent in agents:
            self._known.setdefault(agent.id, agent)

    def forget(self, ids: Iterable[str]) -> None:
        """Drop their counters and history."""
        for agent_id in ids:
            self._known.pop(agent_id, None)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<Agents {len(self)} known>"

"""The reference: every state that was asked, every answer that came, and what must be true of both.

A state's correlation ID is its number. Its observation says which agent asked and when, and the probe model answers
with the observation itself, so an answer that belongs to somebody else is seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from aiokafka.structs import TopicPartition

from topics.headers import CORRELATION_ID
from topics.names import Lane
from topics.records import Action, State
from topics.wire import decode_action


class Ledger:
    """Asked and answered, by number. Never reads the clock: times are the records' own (ms)."""

    def __init__(self) -> None:
        self.agents: list[int] = []
        self.lanes: list[Lane] = []
        self.seqs: list[int] = []
        self.deadlines_us: list[int | None] = []
        self.unanswered: set[int] = set()
        self.doubled = 0
        self.wrong: list[str] = []
        self.disordered: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.late: set[int] = set()
        """Numbers whose action was made after the state's deadline."""
        self.workers: Counter[str] = Counter()
        self.actions_ms: dict[int, int] = {}
        """number → when its action was made, ms (Unix)."""
        self._next_seq: dict[tuple[int, Lane], int] = defaultdict(int)
        self._last_seq: dict[tuple[int, Lane], int] = defaultdict(lambda: -1)

    def __len__(self) -> int:
        return len(self.agents)

    def ask(self, agent: int, lane: Lane, deadline_us: int | None = None) -> tuple[bytes, State]:
        """Enter one state; gives its correlation ID and what to send."""
        number, seq = len(self.agents), self._next_seq[agent, lane]
        self._next_seq[agent, lane] = seq + 1
        self.agents.append(agent)
        self.lanes.append(lane)
        self.seqs.append(seq)
        self.deadlines_us.append(deadline_us)
        self.unanswered.add(number)
        return b"%08d" % number, State(self._observation(number), seq=seq, deadline_us=deadline_us)

    def _observation(self, number: int) -> Any:
        return np.array([self.agents[number], self.seqs[number], number % 4096, number // 4096], np.float32)

    def read(self, polled: Mapping[TopicPartition, Sequence[Any]]) -> None:
        """Enter what one poll of the actions topic brought."""
        for records in polled.values():
            for record in records:
                self._enter(int(dict(record.headers)[CORRELATION_ID]), record)

    def _enter(self, number: int, record: Any) -> None:
        action = decode_action(record.value)
        self._hold_against(number, record.key, action)
        self.workers[action.worker] += 1
        if number not in self.unanswered:
            self.doubled += 1
            return
        self.unanswered.remove(number)
        self.outcomes[action.outcome] += 1
        if action.outcome == "action":
            self.actions_ms[number] = record.timestamp
            deadline_us = self.deadlines_us[number]
            if deadline_us is not None and record.timestamp * 1000 > deadline_us:
                self.late.add(number)
            self._in_order(number)

    def _hold_against(self, number: int, key: bytes, action: Action) -> None:
        expected = f"a{self.agents[number]}".encode()
        fits = action.outcome != "action" or np.array_equal(action.action, self._observation(number))
        if key != expected or action.seq != self.seqs[number] or not fits:
            self.wrong.append(f"state {number} of {expected!r}: {key!r} {action!r:.200}")

    def _in_order(self, number: int) -> None:
        """Expired states are left out: one is answered at its deadline, whatever waits before it."""
        place, seq = (self.agents[number], self.lanes[number]), self.seqs[number]
        if seq < self._last_seq[place]:
            self.disordered.append(f"a{place[0]} {place[1]}: {seq} after {self._last_seq[place]}")
        self._last_seq[place] = max(seq, self._last_seq[place])

    def __repr__(self) -> str:
        return f"<Ledger {len(self)} asked, {len(self.unanswered)} unanswered, {self.doubled} doubled>"

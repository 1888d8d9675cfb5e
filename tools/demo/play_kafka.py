"""Play through Kafka: every group asks for its next actions with one `decide_many` and steps its environments.

A state without an action (no answer in time, expired, failed) is asked again, so what the agents do depends on the
policy alone and never on timing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tools.demo.group import Group
from tools.demo.lineup import Seats, lanes_of, urgent_rows
from tools.demo.tally import Tally
from topics.client import AgentClient, Replies
from topics.errors import FleetError
from topics.names import Lane
from topics.tensors import Array

ANSWER_WITHIN_S: Final = 5.0
ASKED_AT_MOST: Final = 8
"""40 s: a killed worker's partitions are with another one after the session time-out of 10 s."""
SAMPLED_EVERY: Final = 8
"""Steps of a group: taking one answer apart costs as much as two decisions."""
PAUSE_S: Final = 0.05
"""Before a state is asked again that was answered, but without an action."""


class Play:
    """The play of several groups through one client, until `clock` (seconds) shows `until_s`."""

    def __init__(
        self, client: AgentClient, environment: str, tally: Tally, until_s: float, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._environment = environment
        self._tally = tally
        self._until_s = until_s
        self._clock = clock
        self.failure = ""
        """Why play ended early."""

    async def run(self, groups: Sequence[tuple[Seats, Group]]) -> None:
        """All groups at once; returns when each has finished its last step."""
        async with asyncio.TaskGroup() as tasks:
            for seats, group in groups:
                tasks.create_task(self._group(seats, group))

    async def rehearse(self, groups: Sequence[tuple[Seats, Group]], until_s: float) -> None:
        """Ask for the first states again and again until `until_s`; nobody acts on the answers, and nothing is counted.

        A broker that was just started runs its first thousands of requests in slow code: 200 ms instead of 20.
        """

        async def ask(seats: Seats, group: Group) -> None:
            ids = ids_of(group)
            lanes: Lane | list[Lane] = "low" if seats.background else lanes_of(self._urgent(seats, group))
            while self._clock() < until_s:
                await self._client.decide_many(ids, group.observations, lane=lanes, timeout_s=ANSWER_WITHIN_S)
            self._client.forget(ids)  # the step counters start anew

        async with asyncio.TaskGroup() as tasks:
            for seats, group in groups:
                tasks.create_task(ask(seats, group))

    async def _group(self, seats: Seats, group: Group) -> None:
        ids = ids_of(group)
        while self._clock() < self._until_s and not self.failure:
            urgent = self._urgent(seats, group)
            actions = await self._decided(ids, group, "low" if seats.background else "normal", urgent)
            if actions is not None:
                group.step(actions)

    def _urgent(self, seats: Seats, group: Group) -> Array:
        """bool [n]: who asks on `high`."""
        if seats.background:
            return np.zeros(len(group), bool)
        return urgent_rows(self._environment, group.numbers, group.observations)

    async def _decided(self, ids: list[str], group: Group, lane: Lane, urgent: Array) -> Array | None:
        """An action for every agent; None if one of them has none at last."""
        lanes = lanes_of(urgent) if urgent.any() else lane
        replies = await self._client.decide_many(ids, group.observations, lane=lanes, timeout_s=ANSWER_WITHIN_S)
        self._count(replies, lane, urgent)
        if group.steps % SAMPLED_EVERY == 0 and (record := replies.record(0)) is not None:
            self._tally.sampled(record.worker, record.timing.batch_size)
        ok = replies.ok
        return replies.actions if ok.all() else await self._ask_again(ids, group, replies, lane, urgent)

    async def _ask_again(
        self, ids: list[str], group: Group, replies: Replies, lane: Lane, urgent: Array
    ) -> Array | None:
        """Ask for the rows that have no action, until they have one or were asked too often."""
        actions, missing = replies.actions, np.flatnonzero(~replies.ok)
        for _ in range(ASKED_AT_MOST - 1):
            self._tally.asked_again += len(missing)
            await asyncio.sleep(PAUSE_S)
            replies = await self._client.decide_many(
                [ids[row] for row in missing],
                group.observations[missing],
                lane=lanes_of(urgent[missing]) if lane != "low" else lane,
                seq=[group.steps] * len(missing),
                timeout_s=ANSWER_WITHIN_S,
            )
            self._count(replies, lane, urgent[missing])
            actions = _filled(actions, missing, replies)
            missing = missing[~replies.ok]
            if not len(missing):
                return actions
        self._tally.unanswered += len(missing)
        self.failure = self.failure or _why(replies)
        return None

    def _count(self, replies: Replies, lane: Lane, urgent: Array) -> None:
        tally, latency_s = self._tally, replies.latency_s
        tally.answered(lane, latency_s[~urgent])
        tally.answered("high", latency_s[urgent])
        ok = int(replies.ok.sum())
        tally.outcomes["action"] += ok
        if ok < len(replies):
            tally.outcomes.update(str(outcome) or "unanswered" for outcome in replies.outcomes[~replies.ok])


def ids_of(group: Group) -> list[str]:
    """The agents' IDs, which are their records' keys."""
    return [f"agent-{number}" for number in group.numbers]


def _filled(actions: Array, rows: Array, replies: Replies) -> Array:
    """`actions` with those of `replies`, which are for `rows`."""
    # Before the first action of all the client does not know their dtype.
    if actions.dtype == object and replies.actions.dtype != object:
        actions = np.zeros((len(actions), *replies.actions.shape[1:]), replies.actions.dtype)
    actions[rows[replies.ok]] = replies.actions[replies.ok]
    return actions


def _why(replies: Replies) -> str:
    try:
        replies.raise_for_missing()
    except FleetError as error:
        return str(error)
    return "states stayed without an action"

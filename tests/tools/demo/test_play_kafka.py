"""Play through a client that fails in every way: what the agents do depends on the policy alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tools.demo import play_kafka
from tools.demo.group import Group
from tools.demo.lineup import Seats
from tools.demo.play_kafka import Play
from tools.demo.tally import Tally
from topics.client import Replies, ReplyTimeout
from topics.client.decode import Decoded
from topics.tensors import Array, TensorSpec

SPEC = TensorSpec("observation", "float32", (4,))
STEPS = 20


class FakeClient:
    """Answers like a policy that pushes towards the pole's side; `fails(call, agent)` says what has no action."""

    def __init__(self, fails: Callable[[int, int], str]) -> None:
        self.lanes: list[Any] = []
        self.seqs: list[Any] = []
        self.calls = 0
        self.forgotten: list[str] = []
        self._fails = fails

    def forget(self, ids: Sequence[str]) -> None:
        self.forgotten += ids

    async def decide_many(
        self, ids: Sequence[str], observations: Array, *, lane: Any, timeout_s: float, seq: Any = None
    ) -> Replies:
        await asyncio.sleep(0)
        self.calls += 1
        self.lanes.append(lane)
        self.seqs.append(seq)
        bad = [self._fails(self.calls, int(agent.removeprefix("agent-"))) for agent in ids]
        outcomes = np.array([found or "action" for found in bad])
        outcomes[outcomes == "lost"] = ""
        actions = np.where(outcomes == "action", (observations[:, 2] > 0).astype(np.int64), 0)
        latency_s = np.where(outcomes == "", np.nan, 0.001)
        error = ReplyTimeout("no answer for agent-0") if (outcomes == "").any() else None
        return Replies(ids, [None] * len(ids), Decoded(outcomes, actions, {}), latency_s, error)


async def _play(fails: Callable[[int, int], str], background: bool = False) -> tuple[FakeClient, Group, Tally, Play]:
    client, group, tally = FakeClient(fails), Group("CartPole-v1", [0, 1, 2], 0, SPEC), Tally()
    play = Play(client, "CartPole-v1", tally, until_s=STEPS, clock=lambda: group.steps)  # type: ignore[arg-type]
    await play.run([(Seats((0, 1, 2), background), group)])
    return client, group, tally, play


def _same_steps(group: Group) -> list[str]:
    """Digests of the same policy, played without any client, for as many steps."""
    alone = Group("CartPole-v1", group.numbers, 0, SPEC)
    for _ in range(group.steps):
        alone.step((alone.observations[:, 2] > 0).astype(np.int64))
    return [one.actions_sha256 for one in alone.played()]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_kafka, "PAUSE_S", 0.0)


@pytest.mark.parametrize("outcome", ["lost", "expired", "failed"])
async def test_a_state_without_an_action_is_asked_again(outcome: str) -> None:
    """The agents do exactly what they would have done with every answer in time."""
    client, group, tally, _ = await _play(lambda call, agent: outcome if call % 2 and agent == 1 else "")
    assert [one.actions_sha256 for one in group.played()] == _same_steps(group)
    assert tally.asked_again == client.calls // 2 == STEPS
    assert tally.unanswered == 0
    assert tally.outcomes["action"] == 3 * group.steps
    again = [seq for seq in client.seqs if seq]
    assert again == [[step] for step in range(len(again))], "the state keeps its step's number"


async def test_a_state_that_is_never_answered_ends_the_play_with_a_reason() -> None:
    """Bounded: the demo must not hang on a dead fleet."""
    client, group, tally, play = await _play(lambda call, agent: "lost" if call > 4 and agent == 2 else "")
    assert group.steps == 4
    assert tally.unanswered == 1
    assert client.calls == 4 + play_kafka.ASKED_AT_MOST
    assert play.failure == "no answer for agent-0"


async def test_background_agents_ask_on_low_and_nothing_else() -> None:
    """Also when they are about to fall, and also when asked again."""
    client, _, _, _ = await _play(lambda call, agent: "expired" if call == 3 and agent == 0 else "", background=True)
    assert set(client.lanes) == {"low"}


async def test_the_lane_comes_per_row() -> None:
    """Who is about to fall asks on high in the same call."""
    client, _, _, _ = await _play(lambda call, agent: "")
    named = {lane for lanes in client.lanes for lane in ([lanes] if isinstance(lanes, str) else lanes)}
    assert named == {"high", "normal"}


async def test_the_rehearsal_moves_nobody_and_counts_nothing() -> None:
    """It only warms up what a freshly started broker runs slowly at first."""
    client, group, tally = FakeClient(lambda call, agent: ""), Group("CartPole-v1", [0, 1, 2], 0, SPEC), Tally()
    play = Play(client, "CartPole-v1", tally, until_s=0.0, clock=lambda: client.calls)  # type: ignore[arg-type]
    await play.rehearse([(Seats((0, 1, 2), background=False), group)], until_s=5.0)
    assert client.calls == 5
    assert group.steps == 0
    assert client.forgotten == ["agent-0", "agent-1", "agent-2"], "the step counters start at 0"
    assert not tally.outcomes

"""The proof finds what differs, and gives everybody something to play."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.demo.played import Played
from tools.demo.proof import compare, difference, share_out

ONE = Played(agent=7, steps=30, returns=(10.0, 12.0), unfinished=8.0, actions_sha256="a")


def test_equal_records_are_a_proof() -> None:
    """In whatever order the local processes deliver them."""
    both = [ONE, replace(ONE, agent=8)]
    proof = compare(both, both[::-1], 1.5)
    assert proof.equal and not proof.mismatch
    assert (proof.agents, proof.episodes, proof.decisions) == (2, 4, 60)


def test_nothing_played_proves_nothing() -> None:
    """An empty comparison must not look like success."""
    assert not compare([], [], 0.0).equal


@pytest.mark.parametrize(
    ("local", "text"),
    [
        (replace(ONE, returns=(10.0, 13.0)), "agent 7, episode 2: return 12 through Kafka, 13 locally"),
        (replace(ONE, returns=(10.0,)), "agent 7: 2 episodes through Kafka, 1 locally"),
        (replace(ONE, unfinished=9.0), "agent 7, unfinished episode 3: return 8 through Kafka, 9 locally"),
        (replace(ONE, actions_sha256="b"), "agent 7: equal returns, but other actions"),
        (None, "agent 7 was not played locally"),
    ],
)
def test_the_first_mismatch_is_named(local: Played | None, text: str) -> None:
    """A person must know where to look."""
    assert difference(ONE, local) == text
    proof = compare([replace(ONE, agent=1), ONE], [replace(ONE, agent=1)] + ([local] if local else []), 0.0)
    assert not proof.equal
    assert proof.mismatch == text


def test_records_survive_json() -> None:
    """They cross a process border; a digit lost there would be a false alarm."""
    record = replace(ONE, unfinished=0.1 + 0.2)
    assert Played.of_dict(record.as_dict()) == record


def test_every_agent_is_shared_out_once_with_its_own_steps() -> None:
    """Groups differ in steps; the cores get equal parts of each."""
    played = [replace(ONE, agent=number, steps=30 if number % 3 else 20) for number in range(30)]
    shares = share_out(played, 4)
    assert len(shares) == 4
    found = {agent: group["steps"] for share in shares for group in share for agent in group["agents"]}
    assert found == {one.agent: one.steps for one in played}
    loads = [sum(group["steps"] * len(group["agents"]) for group in share) for share in shares]
    assert max(loads) - min(loads) <= 50


def test_no_share_is_empty_when_there_are_more_cores_than_agents() -> None:
    """Each share is a process that imports torch."""
    assert len(share_out([ONE], 8)) == 1

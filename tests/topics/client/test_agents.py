"""Agents are met once, under their key, and counted from 0."""

from __future__ import annotations

import pytest

from topics.client.agents import Agents
from topics.partitions import Partitioner


def agents() -> Agents:
    return Agents(Partitioner(12), lambda _key: 3)


def test_an_agent_is_unknown_until_it_is_met() -> None:
    """Its replies must be read first; one unknown agent makes the whole call wait for that."""
    ours = agents()
    assert ours.known(["a"]) is None
    strangers = ours.strangers(["a", "b", "a"])
    assert [agent.id for agent in strangers] == ["a", "b"]
    assert ours.known(["a"]) is None
    ours.meet(strangers)
    assert [agent.id for agent in ours.known(["b", "a", "b"]) or []] == ["b", "a", "b"]
    assert ours.known(["a", "c"]) is None


def test_it_has_the_partitions_of_its_key() -> None:
    """UTF-8, hashed as every Kafka client does."""
    (agent,) = agents().strangers(["agent-ü"])
    assert (agent.key, agent.partition, agent.reply_partition) == (
        "agent-ü".encode(),
        Partitioner(12)("agent-ü".encode()),
        3,
    )


def test_two_calls_that_meet_the_same_agent_share_it() -> None:
    """The second to come back from waiting must not reset its counter."""
    ours = agents()
    first, second = ours.strangers(["a"]), ours.strangers(["a"])
    ours.meet(first)
    first[0].next_seq()
    ours.meet(second)
    (known,) = ours.known(["a"]) or []
    assert known.seq == 1


def test_a_forgotten_agent_starts_anew() -> None:
    """Its counter and history are gone."""
    ours = agents()
    ours.meet(ours.strangers(["a", "b"]))
    ours.forget(["a", "never seen"])
    assert len(ours) == 1
    assert ours.known(["a"]) is None


@pytest.mark.parametrize(("agent_id", "error"), [(7, TypeError), (b"a", TypeError), ("", ValueError)])
def test_ids_are_strings_and_not_empty(agent_id: object, error: type[Exception]) -> None:
    """Order is kept per key; a number or nothing would be somebody else's key."""
    with pytest.raises(error, match="agent ID"):
        agents().strangers([agent_id])  # type: ignore[list-item]

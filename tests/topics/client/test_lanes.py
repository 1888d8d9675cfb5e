"""A state takes the lane its author names, else the one the fleet's rules choose from what is known of it."""

from __future__ import annotations

import pytest

from topics.client.agents import Agent
from topics.client.lanes import LaneRules, checked
from topics.settings import PriorityRule, PrioritySettings, PriorityWhen


def agent(name: str = "a") -> Agent:
    return Agent(name, name.encode(), 0, 0)


def rules(*pairs: tuple[dict[str, object], str], default: str = "normal") -> LaneRules:
    made = tuple(PriorityRule(when=PriorityWhen(**when), lane=lane) for when, lane in pairs)  # type: ignore[arg-type]
    return LaneRules(PrioritySettings(rules=made, default=default))  # type: ignore[arg-type]


def test_without_rules_all_take_the_default() -> None:
    """One lane for the whole call; no row is looked at."""
    assert rules(default="low").many([agent()] * 3, None, None, None) == "low"
    assert rules().one(agent(), "urgent", 1, {"tier": "boss"}) == "normal"


def test_shared_facts_are_looked_at_once() -> None:
    """One lane for all rows, not a list, when nothing differs between them."""
    ours = rules(({"kind": "urgent"}, "high"))
    assert ours.many([agent()] * 3, "urgent", None, None) == "high"
    assert not ours.look_back


def test_rows_with_their_own_facts_have_their_own_lane() -> None:
    """Kinds, deadlines and attributes per row."""
    ours = rules(
        ({"kind": "urgent"}, "high"), ({"deadline_below_ms": 10}, "high"), ({"attribute": {"tier": "npc"}}, "low")
    )
    agents = [agent()] * 3
    assert ours.many(agents, ["urgent", None, None], None, None) == ["high", "normal", "normal"]
    assert ours.many(agents, None, [20, 5, None], None) == ["normal", "high", "normal"]
    assert ours.many(agents, None, None, [None, {"tier": "boss"}, {"tier": "npc"}]) == ["normal", "normal", "low"]


def test_after_a_time_out_the_next_state_goes_high() -> None:
    """And back when it was answered."""
    ours = rules(({"after_timeout": True}, "high"))
    slow, fine = agent("slow"), agent("fine")
    slow.ended("")
    fine.ended("action")
    assert ours.look_back
    assert ours.many([slow, fine], None, None, None) == ["high", "normal"]
    slow.ended("action")
    assert ours.one(slow, None, None, None) == "normal"


def test_history_is_the_last_outcome() -> None:
    """A time-out in between does not make it forgotten."""
    ours = rules(({"after_outcome": "expired"}, "high"))
    late = agent()
    late.ended("expired")
    late.ended("")
    assert ours.many([late, agent()], None, None, None) == ["high", "normal"]


def test_a_lane_that_does_not_exist_is_refused() -> None:
    """The text names it and those there are."""
    with pytest.raises(ValueError, match="lane is 'urgent', expected one of high, normal, low"):
        checked("urgent")

"""Priority rules: which lane a state takes."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from topics.priority import Facts, choose_lane
from topics.settings import PrioritySettings

RULES = """
default = "normal"
rules = [
  { when = { kind = ["urgent", "recovery"] }, lane = "high" },
  { when = { attribute.tier = "boss", deadline_below_ms = 50 }, lane = "high" },
  { when = { attribute.background = true }, lane = "low" },
  { when = { deadline_below_ms = 20 }, lane = "high" },
  { when = { after_timeout = true }, lane = "high" },
  { when = { after_outcome = ["expired", "failed"] }, lane = "high" },
]
"""


def priority(text: str) -> PrioritySettings:
    """The [priority] table of a fleet.toml."""
    return PrioritySettings.model_validate(tomllib.loads(text))


@pytest.mark.parametrize(
    ("facts", "lane"),
    [
        ({}, "normal"),
        ({"kind": "urgent"}, "high"),
        ({"kind": "recovery"}, "high"),
        ({"kind": "steering"}, "normal"),
        ({"attributes": {"tier": "boss"}}, "normal"),
        ({"attributes": {"tier": "boss"}, "deadline_ms": 49.0}, "high"),
        ({"attributes": {"tier": "minion"}, "deadline_ms": 49.0}, "normal"),
        ({"attributes": {"background": True}}, "low"),
        ({"deadline_ms": 20.0}, "normal"),
        ({"deadline_ms": 19.9}, "high"),
        ({"timeouts_in_a_row": 1}, "high"),
        ({"last_outcome": "expired"}, "high"),
        ({"last_outcome": "action"}, "normal"),
    ],
)
def test_a_rule_matches_when_all_its_conditions_hold(facts: dict[str, Any], lane: str) -> None:
    """Kind, attributes, deadline and history; an unknown fact fulfils nothing."""
    assert choose_lane(priority(RULES), Facts(**facts)) == lane


def test_the_first_rule_that_matches_decides() -> None:
    """A background agent stays in low, however short its deadline is: its rule stands first."""
    facts = Facts(attributes={"background": True}, deadline_ms=1.0, timeouts_in_a_row=3)
    assert choose_lane(priority(RULES), facts) == "low"


def test_without_rules_everything_takes_the_default() -> None:
    """Nothing is configured, everything is normal; the default itself may be another lane."""
    assert choose_lane(PrioritySettings(), Facts(kind="urgent")) == "normal"
    assert choose_lane(priority('default = "low"'), Facts()) == "low"


def test_a_rule_may_ask_for_no_timeout() -> None:
    """after_timeout = false is a condition, too."""
    rules = priority('rules = [{ when = { after_timeout = false }, lane = "low" }]')
    assert choose_lane(rules, Facts()) == "low"
    assert choose_lane(rules, Facts(timeouts_in_a_row=1)) == "normal"


def test_an_attribute_may_have_one_of_several_values() -> None:
    """Numbers and text alike."""
    rules = priority('rules = [{ when = { attribute.level = [1, 2, "final"] }, lane = "high" }]')
    lanes = [choose_lane(rules, Facts(attributes={"level": level})) for level in (1, 3, "final")]
    assert lanes == ["high", "normal", "high"]

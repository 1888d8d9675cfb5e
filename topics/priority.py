"""Which lane a state takes when its agent's author names none: rules from fleet.toml, the first that matches.

Takes what is known when a state is published, gives a lane. Pure; called by the agents' client, once per
state. The rules read like this (all conditions of one `when` must hold; a list means "one of these"):

    [priority]
    default = "normal"                              # what no rule matches

    [[priority.rules]]
    when = { kind = ["urgent", "recovery"] }        # the state's kind
    lane = "high"

    [[priority.rules]]
    when = { attribute.tier = "boss", deadline_below_ms = 50 }
    lane = "high"

    [[priority.rules]]
    when = { after_timeout = true }                 # the agent's last state got no answer in time
    lane = "high"

    [[priority.rules]]
    when = { after_outcome = "expired" }            # … or got this one
    lane = "high"

    [[priority.rules]]
    when = { kind = "simulation" }
    lane = "low"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topics.names import Lane
from topics.settings import Plain, PrioritySettings, PriorityWhen


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a state and its agent when the state is published."""

    kind: str | None = None
    attributes: Mapping[str, Plain] = field(default_factory=dict)
    """What the agent's author says of the agent: {"tier": "boss"}."""
    deadline_ms: float | None = None
    """Time left for the answer."""
    last_outcome: str | None = None
    """Outcome of the agent's last answered state; None before the first."""
    timeouts_in_a_row: int = 0
    """States of this agent, counted back from the last, that got no answer in time."""


def choose_lane(priority: PrioritySettings, facts: Facts) -> Lane:
    """Lane of the first rule whose conditions all hold, else the default."""
    for rule in priority.rules:
        if matches(rule.when, facts):
            return rule.lane
    return priority.default


def matches(when: PriorityWhen, facts: Facts) -> bool:
    """Whether all conditions that `when` gives hold. An unknown fact fulfils no condition."""
    return (
        (when.kind is None or _is_one_of(facts.kind, when.kind))
        and (when.attribute is None or _attributes_match(when.attribute, facts.attributes))
        and (when.deadline_below_ms is None or _is_below(facts.deadline_ms, when.deadline_below_ms))
        and (when.after_timeout is None or when.after_timeout == (facts.timeouts_in_a_row > 0))
        and (when.after_outcome is None or _is_one_of(facts.last_outcome, when.after_outcome))
    )


def _attributes_match(wanted: Mapping[str, Plain | tuple[Plain, ...]], attributes: Mapping[str, Plain]) -> bool:
    return all(name in attributes and _is_one_of(attributes[name], value) for name, value in wanted.items())


def _is_one_of(found: Plain | None, wanted: Plain | tuple[Plain, ...]) -> bool:
    return found in wanted if isinstance(wanted, tuple) else found == wanted


def _is_below(found: float | None, limit: float) -> bool:
    return found is not None and found < limit

"""The lane of each state of a call: the one that the agent's author names, or what the priority rules choose.

Rules are evaluated once for all rows that have the same facts; without rules, or with a lane named, per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topics.client.agents import Agent
from topics.names import LANES, Lane
from topics.priority import Facts, choose_lane
from topics.settings import Plain, PrioritySettings

Attributes = Mapping[str, Plain]


def checked(lane: Any) -> Lane:
    """`lane` if it is one; ValueError names it and those there are."""
    if lane not in LANES:
        raise ValueError(f"lane is {lane!r}, expected one of {', '.join(LANES)}")
    return lane  # type: ignore[no-any-return]


class LaneRules:
    """Chooses lanes by the fleet's `priority` settings."""

    def __init__(self, priority: PrioritySettings) -> None:
        self._priority = priority
        whens = [rule.when for rule in priority.rules]
        self.look_back = any(w.after_timeout is not None or w.after_outcome is not None for w in whens)
        """Whether a rule looks at the agent's history; if none does, no history is kept."""

    def one(self, agent: Agent, kind: str | None, deadline_ms: float | None, attributes: Attributes | None) -> Lane:
        """The lane of one state for which none was named."""
        if not self._priority.rules:
            return self._priority.default
        facts = Facts(kind, attributes or {}, deadline_ms, agent.last_outcome, agent.timeouts_in_a_row)
        return choose_lane(self._priority, facts)

    def many(
        self,
        agents: Sequence[Agent],
        kinds: Sequence[str | None] | str | None,
        deadlines_ms: Sequence[float | None] | float | None,
        attributes: Sequence[Attributes | None] | Attributes | None,
    ) -> Lane | list[Lane]:
        """One lane for all rows, or the lane of each. What is no sequence holds for every row."""
        shared = not isinstance(attributes, Sequence)
        if not self._priority.rules:
            return self._priority.default
        if shared and not self.look_back and not _is_column(kinds) and not _is_column(deadlines_ms):
            return self.one(agents[0], kinds, deadlines_ms, attributes)  # type: ignore[arg-type]
        lanes = []
        known: dict[Any, Lane] = {}
        for row, agent in enumerate(agents):
            kind, deadline_ms = _at(kinds, row), _at(deadlines_ms, row)
            if not shared:
                lanes.append(self.one(agent, kind, deadline_ms, _at(attributes, row)))
                continue
            facts = (kind, deadline_ms, agent.last_outcome, agent.timeouts_in_a_row)
            lane = known.get(facts)
            if lane is None:
                lane = known[facts] = self.one(agent, kind, deadline_ms, attributes)  # type: ignore[arg-type]
            lanes.append(lane)
        return lanes


def _is_column(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _at(column: Any, row: int) -> Any:
    return column[row] if _is_column(column) else column

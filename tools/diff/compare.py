"""Two sets of answers side by side: which agree, and how the others differ: by lane, agent, output and time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tools.diff.answers import Answer, Answers, Step
from tools.diff.distance import Tolerance, agree, distance
from tools.diff.spread import Spread

NAMED: Final = 1000
"""Missing, extra and differing states that are named; all are counted."""


@dataclass(slots=True)
class Share:
    """How many of so many agree."""

    pairs: int = 0
    agreeing: int = 0

    def add(self, agrees: bool) -> None:
        """One more pair."""
        self.pairs += 1
        self.agreeing += agrees

    @property
    def agreement(self) -> float | None:
        """None: there are no pairs."""
        return self.agreeing / self.pairs if self.pairs else None


@dataclass(slots=True)
class Divergence:
    """The first state of an agent whose answers differ, and what differs."""

    step: Step
    at_ms: int
    why: str


@dataclass(slots=True)
class Times:
    """What answers say of their way: waits and passes in µs, rows, ms away."""

    wait_us: Spread = field(default_factory=Spread)
    predict_us: Spread = field(default_factory=Spread)
    batch_size: Spread = field(default_factory=Spread)
    away_ms: Spread = field(default_factory=Spread)

    def add(self, answer: Answer) -> None:
        """One more answer. Refusals did not run."""
        if answer.batch_size:
            self.wait_us.add(answer.wait_us)
            self.predict_us.add(answer.predict_us)
            self.batch_size.add(answer.batch_size)
        if answer.away_ms is not None:
            self.away_ms.add(answer.away_ms)


@dataclass(slots=True)
class Comparison:
    """Grows by `add`, agents in any order; first answers are the reference."""

    tolerance: Tolerance
    all: Share = field(default_factory=Share)
    lanes: dict[str, Share] = field(default_factory=dict)
    agents: dict[bytes, Share] = field(default_factory=dict)
    seconds: dict[int, Share] = field(default_factory=dict)
    """By the reference answer's Unix second."""
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    distances: dict[str, Spread] = field(default_factory=dict)
    """By output; pairs of one shape."""
    first: dict[bytes, Divergence] = field(default_factory=dict)
    missing: list[Step] = field(default_factory=list)
    extra: list[Step] = field(default_factory=list)
    missing_count: int = 0
    extra_count: int = 0
    repeated: tuple[int, int] = (0, 0)
    models: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    times: tuple[dict[str, Times], dict[str, Times]] = field(default_factory=lambda: ({}, {}))
    """By lane, of each side."""

    def add(self, reference: Answers, other: Answers) -> None:
        """Everything of these agents."""
        for step, wanted in reference.by_step.items():
            self.look(0, wanted)
            given = other.by_step.get(step)
            if given is None:
                self.miss(step)
            else:
                self.pair(step, wanted, given)
        for step, given in other.by_step.items():
            self.look(1, given)
            if step not in reference.by_step:
                self.surplus(step)
        self.repeated = (self.repeated[0] + reference.repeated, self.repeated[1] + other.repeated)

    def miss(self, step: Step) -> None:
        """The other side has no answer to this state: it counts as one that differs."""
        self.missing_count += 1
        if len(self.missing) < NAMED:
            self.missing.append(step)

    def surplus(self, step: Step) -> None:
        """The other side alone has an answer to this state."""
        self.extra_count += 1
        if len(self.extra) < NAMED:
            self.extra.append(step)

    def pair(self, step: Step, wanted: Answer, given: Answer) -> None:
        """Two answers to one state."""
        why = self._difference(wanted, given)
        for share in (
            self.all,
            self.lanes.setdefault(wanted.lane, Share()),
            self.agents.setdefault(step.agent, Share()),
            self.seconds.setdefault(wanted.at_ms // 1000, Share()),
        ):
            share.add(not why)
        if wanted.outcome != given.outcome:
            self.outcomes[wanted.outcome, given.outcome] += 1
        known = self.first.get(step.agent)
        if why and (known is None or wanted.at_ms < known.at_ms):
            self.first[step.agent] = Divergence(step, wanted.at_ms, why)

    def _difference(self, wanted: Answer, given: Answer) -> str:
        """What differs; empty: nothing that counts. Every output's distance is kept."""
        if wanted.outcome != given.outcome:
            return f"{wanted.outcome} became {given.outcome}"
        why = ""
        for name, array in wanted.outputs.items():
            other = given.outputs.get(name)
            if other is None:
                why = why or (f"{name} is gone" if name in self.tolerance.outputs else "")
                continue
            apart = distance(array, other)
            if apart is not None:
                self.distances.setdefault(name, Spread()).add(apart)
            if name in self.tolerance.outputs and not agree(array, other, self.tolerance):
                why = why or (f"{name} differs by {apart:.3g}" if apart is not None else f"{name} has another shape")
        return why

    def look(self, side: int, answer: Answer) -> None:
        """One more answer of the reference (0) or the other side (1), whether it has a counterpart or not."""
        if answer.model:
            self.models[side].add(answer.model)
        self.times[side].setdefault(answer.lane, Times()).add(answer)

    @property
    def agreement(self) -> float | None:
        """Share of the reference's answers with an equal one on the other side; None: it has no answers."""
        answers = self.all.pairs + self.missing_count
        return self.all.agreeing / answers if answers else None

    def worst_agents(self, n: int) -> list[tuple[bytes, Share]]:
        """Those with the lowest agreement, lowest first; only those that differ at all."""
        differing = [(agent, share) for agent, share in self.agents.items() if share.agreeing < share.pairs]
        return sorted(differing, key=lambda entry: (entry[1].agreement or 0, entry[0]))[:n]

    def first_divergences(self, n: int) -> list[Divergence]:
        """The earliest of all agents'."""
        return sorted(self.first.values(), key=lambda found: found.at_ms)[:n]


def over_time(seconds: Mapping[int, Share], bins: int = 60) -> list[tuple[int, Share]]:
    """`seconds` joined into at most `bins` equal stretches: first Unix second of each, and its share."""
    if not seconds:
        return []
    begin, end = min(seconds), max(seconds) + 1
    width = -(-(end - begin) // bins)
    joined: dict[int, Share] = {}
    for second, share in seconds.items():
        bin_ = joined.setdefault(begin + (second - begin) // width * width, Share())
        bin_.pairs += share.pairs
        bin_.agreeing += share.agreeing
    return sorted(joined.items())

"""What the page shows of a recording, gathered a part of its agents at a time: counts, times, and who fared worst."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tools.diff.answers import Answer, Answers
from tools.diff.recordings import AT_ONCE, collected
from tools.recording.plan import plan
from tools.recording.read import Recording
from tools.recording.selection import Selection
from topics.names import FleetNames

WORST: Final = 15
BINS: Final = 80
Numbers = npt.NDArray[np.float64]


@dataclass(slots=True)
class LaneTimes:
    """One number per answer that ran: when (ms), its wait and pass (µs), its batch; `away_ms` -1: not known."""

    at_ms: array[int] = field(default_factory=lambda: array("q"))
    wait_us: array[int] = field(default_factory=lambda: array("q"))
    predict_us: array[int] = field(default_factory=lambda: array("q"))
    batch_size: array[int] = field(default_factory=lambda: array("i"))
    away_ms: array[int] = field(default_factory=lambda: array("q"))

    def add(self, answer: Answer) -> None:
        """One more."""
        self.at_ms.append(answer.at_ms)
        self.wait_us.append(answer.wait_us)
        self.predict_us.append(answer.predict_us)
        self.batch_size.append(answer.batch_size)
        self.away_ms.append(-1 if answer.away_ms is None else answer.away_ms)

    @property
    def away(self) -> Numbers:
        """ms from state to answer, where known."""
        found = np.asarray(self.away_ms, np.float64)
        return found[found >= 0]


@dataclass(slots=True)
class AgentRow:
    """One agent: its states and answers, and its slowest answer."""

    agent: bytes
    answers: int = 0
    refused: int = 0
    unanswered: int = 0
    worst_ms: int = -1


@dataclass(slots=True)
class Gathered:
    """Everything the page is made of, besides the recording's own words."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By lane and outcome."""
    lanes: dict[str, LaneTimes] = field(default_factory=dict)
    sent_per_s: dict[str, Counter[int]] = field(default_factory=dict)
    """States by topic and Unix second."""
    agents: dict[bytes, AgentRow] = field(default_factory=dict)
    """Those who fared worst."""
    agent_count: int = 0
    repeated: int = 0
    unanswered: int = 0
    models: set[str] = field(default_factory=set)


def gather(
    recording: Recording, selection: Selection, progress: Callable[[int, int], None] = lambda _done, _of: None
) -> Gathered:
    """Read the recording, as often as its size needs. Raises RecordingError where it is damaged."""
    parts = max(1, -(-plan(recording, selection).total // AT_ONCE))
    found = Gathered()
    names = FleetNames(recording.about.fleet)
    for lane in names.state_topics():
        found.sent_per_s[lane] = Counter()
    for part in range(parts):
        _add(found, collected(recording, selection, part, parts))
        progress(part + 1, parts)
    for records in recording.records(Selection(("states",), (), selection.agents, *_span(selection), selection.sample)):
        for record in records:
            found.sent_per_s[record.topic][record.timestamp_ms // 1000] += 1
    return found


def _span(selection: Selection) -> tuple[int | None, int | None]:
    return selection.since_us, selection.until_us


def _add(found: Gathered, answers: Answers) -> None:
    rows: dict[bytes, AgentRow] = {}
    for step, answer in answers.by_step.items():
        found.outcomes[answer.lane, answer.outcome] += 1
        if answer.model:
            found.models.add(answer.model)
        row = rows.setdefault(step.agent, AgentRow(step.agent))
        row.answers += 1
        row.refused += answer.outcome != "action"
        row.worst_ms = max(row.worst_ms, -1 if answer.away_ms is None else answer.away_ms)
        if answer.batch_size:
            found.lanes.setdefault(answer.lane, LaneTimes()).add(answer)
    for step in answers.unanswered:
        rows.setdefault(step.agent, AgentRow(step.agent)).unanswered += 1
    found.unanswered += len(answers.unanswered)
    found.repeated += answers.repeated
    found.agent_count += len(rows)
    everyone = [*found.agents.values(), *rows.values()]
    everyone.sort(key=lambda row: (-row.unanswered, -row.refused, -row.worst_ms, row.agent))
    found.agents = {row.agent: row for row in everyone[:WORST]}

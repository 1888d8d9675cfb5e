"""The answers of a recording, one by one, as much of each as a comparison needs.

An answer belongs to the state with its agent's `seq`; where an agent counts anew, to the k-th one with that number. A
second answer to the same state (its correlation ID is there already) is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tools.recording.recorded import Recorded
from topics.errors import DecodeError
from topics.headers import CORRELATION_ID
from topics.tensors import Array
from topics.wire import decode_action, decode_state

UNREADABLE = "unreadable"
"""The outcome of a record that is no answer of the wire."""


class Step(NamedTuple):
    """Which state: the agent, its own counter (None: the state could not be read), and the how-manieth with that."""

    agent: bytes
    seq: int | None
    k: int


@dataclass(slots=True)
class Answer:
    """One terminal answer. `outputs` by name: the action, then what else the model gave; times in ms and µs."""

    at_ms: int
    outcome: str
    outputs: Mapping[str, Array]
    lane: str
    model: str
    wait_us: int
    predict_us: int
    batch_size: int
    away_ms: int | None = None
    """From the state's timestamp to the answer's, where the recording has the state."""


class Asked(NamedTuple):
    """A state: the lane's topic that it was sent to, and Kafka's time."""

    topic: str
    at_ms: int


@dataclass(slots=True)
class Answers:
    """Those of one recording, in the order of their times."""

    by_step: dict[Step, Answer] = field(default_factory=dict)
    repeated: int = 0
    """Second answers to the same state."""
    unanswered: dict[Step, Asked] = field(default_factory=dict)
    """States without an answer."""


class Collector:
    """Takes records in the order of their times; `answers` holds what they were."""

    def __init__(self, fleet_states: Sequence[str]) -> None:
        self.answers = Answers()
        self._states = frozenset(fleet_states)
        self._asked: dict[tuple[bytes, int | None], int] = {}
        self._answered: dict[tuple[bytes, int | None], set[bytes]] = {}

    def add(self, records: Iterable[Recorded]) -> None:
        """States give the times at which they were sent; everything else is an answer."""
        for record in records:
            if record.topic in self._states:
                self._ask(record)
            else:
                self._answer(record)

    def _ask(self, record: Recorded) -> None:
        try:
            seq = decode_state(record.value or b"").seq
        except DecodeError:
            return
        place = (record.key or b"", seq)
        k = self._asked.get(place, 0)
        self._asked[place] = k + 1
        self.answers.unanswered[Step(*place, k)] = Asked(record.topic, record.timestamp_ms)

    def _answer(self, record: Recorded) -> None:
        seq, answer = read_answer(record)
        place = (record.key or b"", seq)
        known = self._answered.setdefault(place, set())
        correlation = next((value for name, value in record.headers if name == CORRELATION_ID and value), None)
        name = correlation if correlation is not None else b"\0%d" % len(known)
        if name in known:
            self.answers.repeated += 1
            return
        step = Step(*place, len(known))
        known.add(name)
        asked = self.answers.unanswered.pop(step, None)
        answer.away_ms = None if asked is None else record.timestamp_ms - asked.at_ms
        self.answers.by_step[step] = answer


def read_answer(record: Recorded) -> tuple[int | None, Answer]:
    """The `seq` and the answer in a record; never raises: what cannot be read has the outcome `unreadable`."""
    try:
        action = decode_action(record.value or b"")
    except DecodeError:
        return None, Answer(record.timestamp_ms, UNREADABLE, {}, "", "", 0, 0, 0)
    outputs = dict(numbers_in({"action": action.action, **action.extras}))
    timing = action.timing
    answer = Answer(
        record.timestamp_ms,
        action.outcome,
        outputs,
        action.lane,
        action.model,
        timing.wait_us,
        timing.predict_us,
        timing.batch_size,
    )
    return action.seq, answer


def numbers_in(fields: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Everything among the fields that is an array of numbers, or plain numbers that make one."""
    for name, value in fields.items():
        if value is None or isinstance(value, str | bytes | Mapping):
            continue
        try:
            array = np.asarray(value)
        except ValueError:  # lists of different lengths
            continue
        if array.dtype.kind in "biuf" or array.dtype.name == "bfloat16":
            yield name, array

"""Answers find their counterpart, and what differs is told: which state, which output, by how much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tools.cli import application
from tools.diff import recordings
from tools.diff.compare import Comparison
from tools.diff.distance import Tolerance, agree, distance
from tools.diff.recordings import compare
from tools.recording.about import About
from tools.recording.read import Recording
from tools.recording.recorded import Recorded, RecordingError
from tools.recording.selection import Selection
from tools.recording.write import RecordingWriter
from topics.records import Action, State, Timing
from topics.wire import encode_action, encode_state

START_MS = 1_700_000_000_000


class Traffic:
    """States and their answers, as one recording after the other."""

    def __init__(self, path: Path, fleet: str = "demo", begin_ms: int = START_MS) -> None:
        self.path = path
        self.fleet = fleet
        self.at_ms = begin_ms
        self.records: list[Recorded] = []

    def ask(self, agent: str, seq: int) -> None:
        """A state, 10 ms after what came before."""
        self.at_ms += 10
        value = encode_state(State(np.zeros(2, np.float32), seq=seq))
        self._add(f"{self.fleet}.states.normal", agent, value, b"")

    def answer(self, agent: str, seq: int | None, action: Any, correlation: str = "", **fields: Any) -> None:
        """5 ms later."""
        self.at_ms += 5
        outcome = "action" if action is not None else "expired"
        given = {"lane": "normal", "model": "m v1", "timing": Timing(1000, 2000, 8)} | fields
        value = encode_action(Action(outcome, seq, action=action, **given))  # type: ignore[arg-type]
        name = correlation or f"{agent}-{seq}-{len(self.records)}"
        self._add(f"{self.fleet}.actions", agent, value, name.encode())

    def _add(self, topic: str, agent: str, value: bytes, correlation: bytes) -> None:
        offset = sum(record.topic == topic for record in self.records)
        headers = (("kafka_correlationId", correlation),)
        self.records.append(Recorded(topic, 0, offset, self.at_ms, 0, agent.encode(), value, headers))

    def written(self) -> Recording:
        """As a file."""
        writer = RecordingWriter(self.path, About(self.fleet, "c1"))
        writer.add(self.records)
        writer.finish()
        return Recording.open(self.path)


def two(tmp_path: Path) -> tuple[Traffic, Traffic]:
    """A recording, and its replay an hour later by another fleet."""
    return Traffic(tmp_path / "a.mcap"), Traffic(tmp_path / "b.mcap", "trial", START_MS + 3_600_000)


def compared(sides: tuple[Traffic, Traffic], **tolerance: Any) -> Comparison:
    """The answers of both."""
    return compare(sides[0].written(), sides[1].written(), Selection(), Tolerance(**tolerance))


def test_equal_answers_agree_whenever_they_came(tmp_path: Path) -> None:
    """By agent and seq; times, models and the order of the agents do not matter."""
    first, second = two(tmp_path)
    for agent in ("x", "y"):
        for seq in range(5):
            first.ask(agent, seq)
            first.answer(agent, seq, np.array([seq], np.float32))
    for agent in ("y", "x"):
        for seq in range(5):
            second.answer(agent, seq, np.array([seq * (1 + 1e-6)], np.float32), model="m v2")
    found = compared((first, second))
    assert (found.agreement, found.all.pairs, found.missing_count, found.extra_count) == (1.0, 10, 0, 0)
    assert found.models == ({"m v1"}, {"m v2"})
    assert found.times[0]["normal"].away_ms.counts == {5: 10} and not found.times[1]["normal"].away_ms.n


def test_the_first_state_that_differs_is_named(tmp_path: Path) -> None:
    """A recurrent policy differs from there on; what and by how much is told."""
    first, second = two(tmp_path)
    for seq in range(6):
        first.answer("x", seq, np.array([1.0, 2.0]))
        second.answer("x", seq, np.array([1.0, 2.0 + (0.5 if seq >= 3 else 0)]))
    found = compared((first, second))
    assert found.agreement == 0.5
    (divergence,) = found.first_divergences(5)
    assert (divergence.step.seq, divergence.why) == (3, "action differs by 0.5")
    assert found.distances["action"].max == 0.5
    assert found.worst_agents(1)[0][0] == b"x"


def test_an_agent_that_counts_anew_is_matched_by_occurrence(tmp_path: Path) -> None:
    """The k-th answer to seq 0 belongs to the k-th state with seq 0."""
    first, second = two(tmp_path)
    for episode in range(3):
        for seq in range(2):
            first.answer("x", seq, np.array(episode))
            second.answer("x", seq, np.array(episode if episode != 1 else 9))
    found = compared((first, second))
    assert (found.all.pairs, found.all.agreeing) == (6, 4)
    assert found.first_divergences(1)[0].step == (b"x", 0, 1)


def test_a_second_answer_to_one_state_is_left_out(tmp_path: Path) -> None:
    """At least once may answer twice; the first one counts, as for the client."""
    first, second = two(tmp_path)
    first.answer("x", 0, np.array(1), "c0")
    first.answer("x", 0, np.array(2), "c0")
    second.answer("x", 0, np.array(1), "other")
    found = compared((first, second))
    assert (found.agreement, found.repeated, found.extra_count) == (1.0, (1, 0), 0)


def test_missing_and_extra_answers_are_named_and_missing_ones_count(tmp_path: Path) -> None:
    """A fleet that does not answer does not agree."""
    first, second = two(tmp_path)
    for seq in range(4):
        first.answer("x", seq, np.array(1))
    second.answer("x", 0, np.array(1))
    second.answer("z", 7, np.array(1))
    found = compared((first, second))
    assert (found.agreement, found.missing_count, found.extra_count) == (0.25, 3, 1)
    assert [step.seq for step in found.missing] == [1, 2, 3]
    assert found.extra == [(b"z", 7, 0)]


def test_outcomes_that_changed_are_counted(tmp_path: Path) -> None:
    """An action that expired instead; refusals that stayed refusals agree."""
    first, second = two(tmp_path)
    for seq in range(3):
        first.answer("x", seq, np.array(1) if seq else None)
        second.answer("x", seq, None)
    found = compared((first, second))
    assert found.outcomes == {("action", "expired"): 2}
    assert found.all.agreeing == 1


def test_other_outputs_are_measured_and_decide_only_if_named(tmp_path: Path) -> None:
    """A candidate's values differ; whether that matters is the user's to say."""
    first, second = two(tmp_path)
    first.answer("x", 0, np.array(1), extras={"value": np.array(0.25)})
    second.answer("x", 0, np.array(1), extras={"value": np.array(0.75)})
    assert compared((first, second)).agreement == 1.0
    (tmp_path / "a.mcap").unlink(), (tmp_path / "b.mcap").unlink()
    found = compared((first, second), outputs=frozenset({"action", "value"}))
    assert found.agreement == 0.0 and found.distances["value"].counts == {0.5: 1}


@pytest.mark.parametrize(
    ("first", "second", "options", "same"),
    [
        ([1.0], [1.00005], {}, True),
        ([1.0], [1.001], {}, False),
        ([1.0], [1.001], {"rtol": 0.01}, True),
        ([0.0], [0.1], {"atol": 0.2}, True),
        ([1, 2], [1, 3], {}, False),
        ([0.1, 0.9], [5.0, 7.0], {"argmax": True}, True),
        ([0.1, 0.9], [7.0, 5.0], {"argmax": True}, False),
        ([[0, 1], [1, 0]], [[0, 9], [0, 9]], {"argmax": True}, False),
        ([1.0, 2.0], [1.0], {}, False),
        ([float("nan")], [float("nan")], {}, True),
        ([], [], {}, True),
    ],
)
def test_tolerances(first: list[Any], second: list[Any], options: dict[str, Any], same: bool) -> None:
    """Absolute, relative, whole numbers, the place of the largest."""
    assert agree(np.array(first), np.array(second), Tolerance(**options)) is same


def test_a_distance_is_the_largest_difference() -> None:
    """None where there is nothing to subtract, infinity against what is not a number."""
    assert distance(np.array([1.0, 5.0]), np.array([2.0, 3.0])) == 2.0
    assert distance(np.array([np.inf, np.nan]), np.array([np.inf, np.nan])) == 0.0
    assert distance(np.array([1.0]), np.array([np.nan])) == np.inf
    assert distance(np.array([1.0]), np.array([1.0, 2.0])) is None


def test_parts_give_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison in parts of the agents, for recordings larger than memory, is the same."""
    first, second = two(tmp_path)
    for number in range(40):
        first.ask(f"agent-{number}", 0)
        first.answer(f"agent-{number}", 0, np.array(number))
        second.answer(f"agent-{number}", 0, np.array(number if number % 4 else -1))
    sides = first.written(), second.written()
    whole = compare(*sides, Selection(), Tolerance())
    monkeypatch.setattr(recordings, "AT_ONCE", 10)
    parts = compare(*sides, Selection(), Tolerance())
    assert (parts.all, parts.agents, parts.lanes) == (whole.all, whole.agents, whole.lanes)
    assert (whole.all.pairs, whole.all.agreeing) == (40, 30)


def test_a_stretch_of_time_looks_at_the_reference(tmp_path: Path) -> None:
    """What the other side answered outside of it is no surplus, as its clock is another."""
    first, second = two(tmp_path)
    for seq in range(4):
        first.answer("x", seq, np.array(1))
        second.answer("x", seq, np.array(1))
    since = Selection(since_us=(first.records[2].timestamp_ms) * 1000)
    found = compare(first.written(), second.written(), since, Tolerance())
    assert (found.all.pairs, found.missing_count, found.extra_count) == (2, 0, 0)


def test_without_answers_there_is_nothing_to_compare(tmp_path: Path) -> None:
    """One line, not 100 %."""
    first, second = two(tmp_path)
    first.ask("x", 0)
    second.answer("x", 0, np.array(1))
    with pytest.raises(RecordingError, match="has no answers"):
        compared((first, second))


def test_the_command_fails_below_a_share(tmp_path: Path) -> None:
    """For CI: exit code 1, figures as JSON."""
    first, second = two(tmp_path)
    for seq in range(10):
        first.answer("<x>", seq, np.array(1))
        second.answer("<x>", seq, np.array(1 if seq else 2))
    first.written(), second.written()
    words = ["diff", str(first.path), str(second.path)]
    app = application(words)
    good = CliRunner().invoke(app, [*words, "--fail-below", "0.9", "--json"])
    assert good.exit_code == 0 and json.loads(good.output)["agreement"] == 0.9
    bad = CliRunner().invoke(app, [*words, "--fail-below", "0.95"])
    assert bad.exit_code == 1 and "90.0000% agree" in bad.output and "<x>" in bad.output

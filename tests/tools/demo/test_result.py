"""What a demo reports, to people, to programs and to the shell."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tools.demo.live import LiveView
from tools.demo.options import Options
from tools.demo.proof import Proof
from tools.demo.result import Result
from tools.demo.workers import Workers

LANE = {"answered": 100, "p50_ms": 1.234, "p95_ms": 5.0, "p99_ms": 9.9}
PROOF = Proof(equal=True, agents=512, episodes=77, decisions=300, seconds=2.5)


def _result(**play: Any) -> Result:
    told = {
        "seconds": 2.0,
        "cpu_s": 1.5,
        "lanes": {"high": LANE, "normal": LANE, "low": LANE | {"answered": 0, "p50_ms": None}},
        "failure": "",
        "decisions": 200,
        "outcomes": {"action": 200},
        "asked_again": 0,
        "unanswered": 0,
        "episodes": 77,
        "mean_return": 499.5,
        "workers": {"demo-1": 20.0},
    }
    worker = {"name": "demo-1", "state": "drained", "decisions": 200, "batches": 10, "rows": 200, "log": None}
    return Result(Options(), "demo", "h:1", "broker of its own", "cartpole v1", told | play, [worker], 64, PROOF)


def _shown(result: Result) -> str:
    text = io.StringIO()
    result.show(Console(file=text, width=100))
    return text.getvalue()


def test_the_json_has_what_programs_look_for(tmp_path: Path) -> None:
    """The names of issue 3 at least."""
    path = tmp_path / "demo.json"
    _result().write(path)
    found = json.loads(path.read_text())
    assert found["decisions_per_s"] == 100.0
    assert found["lanes"]["high"] == LANE
    assert (found["unanswered"], found["returns_equal"]) == (0, True)
    assert found["batch_fill"] == round(20 / 64, 4)
    assert found["config"]["env"] == "CartPole-v1"
    assert found["environment"]["cores"] >= 1


def test_a_good_play_has_no_problems_and_shows_its_proof() -> None:
    """Exit 0."""
    result = _result()
    assert result.problems == [] and result.warnings == []
    shown = _shown(result)
    assert "77 finished and 512 unfinished episodes equal those played locally" in shown
    assert "20.0 of 64 requests on average (31% full)" in shown


def test_unanswered_states_and_other_returns_are_problems() -> None:
    """Each names its reason; the shell sees a non-zero exit."""
    result = _result(unanswered=3, failure="no answer for agent-1")
    result.proof = replace(PROOF, equal=False, mismatch="agent 7: equal returns, but other actions")
    assert result.problems == [
        "play ended early: no answer for agent-1",
        "3 states stayed without an action",
        "not what the same seeds play locally: agent 7: equal returns, but other actions",
    ]
    assert "FAILED: agent 7" in _shown(result)


def test_a_worker_that_died_is_a_warning_with_its_log() -> None:
    """The others took over, so the play is still good; but somebody should look."""
    result = _result()
    result.workers[0] |= {"state": "dead: killed by SIGKILL", "log": "/tmp/x/demo-1.log"}
    assert result.problems == []
    assert result.warnings == ["worker demo-1 is dead: killed by SIGKILL, see /tmp/x/demo-1.log"]


def test_attached_the_batches_are_those_that_the_agents_saw() -> None:
    """There is nobody's probe to ask."""
    result = _result()
    result.options, result.workers, result.max_batch = Options(attach=True), [], None
    assert result.as_dict()["batch_size_mean"] == 20.0
    assert result.as_dict()["batch_fill"] is None
    assert "answered by demo-1" in _shown(result)


def test_where_there_is_no_terminal_the_live_view_is_a_line_now_and_then() -> None:
    """Logs and pipes get no tables and no control characters."""
    text = io.StringIO()
    window = {
        "lanes": _result().play["lanes"],
        "decisions": 9,
        "asked_again": 0,
        "episodes": 1,
        "mean_return": 2.0,
        "workers": {},
    }
    with LiveView(Console(file=text), Options(), Workers()) as view:
        for half_seconds in range(1, 25):
            view.show({**window, "at_s": half_seconds / 2})
    lines = text.getvalue().splitlines()
    assert len(lines) == 2
    assert "400 decisions/s" in lines[0] and "high p99 9.9 ms" in lines[0]
    assert "\x1b" not in text.getvalue()


def test_on_a_terminal_the_picture_has_lanes_and_workers() -> None:
    """One frame of it, drawn."""
    text = io.StringIO()
    window = {"lanes": _result().play["lanes"], "decisions": 9, "asked_again": 0, "episodes": 1, "mean_return": 2.0}
    with LiveView(Console(file=text, force_terminal=True, width=100), Options(), Workers()) as view:
        view.show({**window, "workers": {"theirs-1": 12.5}, "at_s": 0.5})
    shown = text.getvalue()
    assert all(word in shown for word in ("high", "normal", "low", "theirs-1", "12.5", "1 episodes, mean return 2.0"))

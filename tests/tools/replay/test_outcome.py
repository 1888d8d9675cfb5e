"""The judgement of a run, its exit code and its lines."""

from __future__ import annotations

from typing import Any

import pytest

from tools.replay.answers import Found
from tools.replay.bookmark import Job
from tools.replay.lateness import Late
from tools.replay.outcome import Outcome
from tools.replay.outgoing import Unsendable

IN_TIME = Late(0.4, 3.0, 9.0)


def outcome(speed: float | None = 1.0, **changes: Any) -> Outcome:
    job = Job("a.mcap", "00" * 8, "fleet", "cluster", speed=speed, out="b.mcap")
    found: dict[str, Any] = {
        "sent": 100,
        "handed_over": IN_TIME,
        "arrived": IN_TIME,
        "planned_s": 10.0,
        "took_s": 10.01,
    }
    return Outcome(job, **(found | {"found": Found(100, 100)} | changes))


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({}, 0, "answered: 100 of 100 states, recorded in b.mcap"),
        ({"handed_over": Late(1.0, 7.0, 8.0)}, 4, "INVALID: not sent as recorded: 99 % of the states"),
        ({"took_s": 10.2}, 4, "INVALID: not sent as recorded: it took 10.200 s, planned were 10.000 s"),
        (
            {"arrived": Late(1.0, 300.0, 400.0)},
            4,
            "99 % of the states were acknowledged within 300 ms, 255 ms are allowed",
        ),
        ({"speed": None, "took_s": 99.0}, 0, "sent 100 states in 99.000 s"),
        ({"found": Found(100, 99, unanswered=[7])}, 1, "no answer: agent seven"),
        ({"found": Found(99, 100, unseen=[7])}, 1, "acknowledged, but not in its topic: agent seven"),
        ({"found": Found(error="disk full")}, 1, "the recording is not whole: disk full"),
        ({"found": Found(100, 100, deleted=["5 offsets"])}, 1, "5 offsets"),
        ({"found": Found(100, 100, states_twice=2)}, 0, "2 states came more than once"),
        ({"found": None}, 0, "late at the acknowledgement: p50 0.40 ms, p99 3.00 ms, max 9.0 ms"),
        ({"unsendable": [Unsendable(3, "agent x", 9)]}, 1, "not sent: agent x: 9 bytes are more than its topic takes"),
        ({"failure": "no acknowledgement", "resume_with": "b.resume"}, 1, "--resume b.resume"),
        ({"sent": 0, "found": Found()}, 1, "no state of the recording matches: nothing was sent"),
        ({"interrupted": True, "found": Found(50, 3), "resume_with": "b.resume"}, 130, "--resume b.resume"),
    ],
)
def test_each_outcome_has_its_exit_code_and_is_told(changes: dict[str, Any], code: int, text: str) -> None:
    """What is missing goes before what was late."""
    found = outcome(**changes)
    found.names = {7: "agent seven"}
    assert found.exit_code == code
    assert text in "\n".join(found.lines())


def test_of_many_missing_states_ten_are_named_and_json_has_all() -> None:
    """A million of them must not fill the terminal."""
    found = outcome(found=Found(100, 50, unanswered=[*range(50)]))
    found.names = {number: f"agent {number}" for number in range(50)}
    lines = "\n".join(found.lines())
    assert lines.count("no answer: agent") == 10 and "and 40 more" in lines
    assert found.line()["unanswered"] == [f"agent {number}" for number in range(50)]

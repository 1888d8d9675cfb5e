"""The job that every system gets, run here: right actions, on our wire."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from tools.bench.peers.job import Job, Place, place
from tools.bench.rig import SHIPPED_MODEL
from topics import wire
from topics.records import State
from workers.models.load import load_model

SEEN = np.array([[0.0, 0.1, 0.2, 0.3], [0.0, -0.1, -0.2, -0.3], [0.5, 1.0, -0.1, -2.0]], np.float32)


@pytest.fixture(scope="module")
def job() -> Job:
    return Job(SHIPPED_MODEL, "quix")


@pytest.fixture(scope="module")
def expected() -> list[int]:
    """What a worker's model answers."""
    actions: list[int] = load_model(SHIPPED_MODEL).predict({"observation": SEEN})["action"].tolist()
    return actions


def test_plain_observations_get_the_fleets_actions(job: Job, expected: list[int]) -> None:
    """As the systems behind HTTP ask."""
    assert job.act(SEEN.tolist()) == expected
    assert len(set(expected)) == 2


def test_state_records_become_action_records(job: Job, expected: list[int]) -> None:
    """As the systems on Kafka ask: every field of an action, the state's own number."""
    values = [wire.encode_state(State(row, seq=number, sent_us=1)) for number, row in enumerate(SEEN)]
    actions = [wire.decode_action(answer) for answer in job.answer(values)]
    assert [int(action.action) for action in actions] == expected
    assert [action.seq for action in actions] == [0, 1, 2]
    assert {action.outcome for action in actions} == {"action"}
    assert {action.worker for action in actions} == {"quix"}


def test_correlation_ids_go_into_the_answers_on_request(job: Job) -> None:
    """For a system whose batches share their headers."""
    values = [wire.encode_state(State(row, seq=0, sent_us=1)) for row in SEEN]
    ids = [b"\xff" * 16, b"\x00" * 16, b"\x80" * 16]
    assert [msgpack.unpackb(answer)["id"] for answer in job.answer(values, ids)] == ids


def test_a_place_travels_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bench says is what the process reads."""
    sent = Place(SHIPPED_MODEL, "127.0.0.1:9092", "f.states.normal", "f.actions", "f.quix.1", 8000)
    for name, value in sent.environment().items():
        monkeypatch.setenv(name, value)
    assert place() == sent

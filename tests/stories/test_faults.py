"""Faults of a device and of the network: nothing is lost, and who looks at the probes sees what is wrong."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stories.fleet import READY_WITHIN_S, Fleet, observation, states
from tests.stories.models import write_package
from topics.partitions import Partitioner
from topics.records import State

pytestmark = pytest.mark.broker


async def test_a_hung_predictor_is_replaced_and_only_the_guilty_state_fails(fleet: Fleet, tmp_path: Path) -> None:
    """Its batch runs again elsewhere; the state that hung twice is a dead letter; the worker lives on."""
    model = write_package(tmp_path / "hanging", hangs_on=-666.0)
    worker = await fleet.worker(model, FLEET_HANG__AFTER_S="0.7").ready()
    bad = State(observation(-666.0), seq=5)
    sent = [*states(20, 1), ("guilty", bad), *states(20, 1)]
    asked = await fleet.ask(sent)
    answers = await fleet.answers(asked)
    assert answers.keys() == asked.keys() and answers.doubled == 0
    outcomes = {agent: answers[correlation][0].outcome for correlation, agent in asked.items()}
    assert outcomes.pop("guilty") == "failed" and set(outcomes.values()) == {"action"}
    (letter,) = await fleet.dead_letters(1)
    assert letter.key == b"guilty" and dict(letter.headers)["fleet_dead-reason"] == b"model_hangs"
    assert len(worker.events("predictor_replaced")) == 2
    assert worker.probe("/readyz")[0] == 200
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0


async def test_a_takeover_runs_no_state_again_that_the_finished_map_names(fleet: Fleet, tmp_path: Path) -> None:
    """A slow state holds the commit back; the states behind it are answered, and the next owner knows."""
    model = write_package(tmp_path / "hanging", hangs_on=-666.0)
    patient = {"FLEET_HANG__AFTER_S": "100", "FLEET_PREDICTORS": '[{"device": "cpu"}, {"device": "cpu"}]'}
    first = await fleet.worker(model, **patient).ready()
    slow = await fleet.ask([("slow", State(observation(-666.0)))])
    await asyncio.sleep(0.5)
    place = Partitioner(fleet.settings.topics.partitions)
    neighbour = next(f"n{n}" for n in range(999) if place(b"n%d" % n) == place(b"slow"))
    asked = await fleet.ask([(neighbour, state) for _, state in states(1, 200)])
    await fleet.answers(asked)
    await asyncio.sleep(1.0)  # a commit interval
    first.kill()
    second = await fleet.worker(write_package(tmp_path / "well")).ready()
    answers = await fleet.answers(asked | slow, extra_s=1.0)
    assert answers.keys() == (asked | slow).keys()
    assert answers.doubled == 0
    assert 'fleet_skipped_total{lane="normal"} 200' in second.probe("/metrics")[1]


async def test_a_model_that_takes_nothing_is_loaded_anew_and_fails_no_state(fleet: Fleet, tmp_path: Path) -> None:
    """A lost device is not the states' fault: they wait until it is back, and the probes say that nothing serves."""
    lost = tmp_path / "lost"
    worker = await fleet.worker(write_package(tmp_path / "fragile", lost_while=str(lost))).ready()
    lost.touch()
    asked = await fleet.ask(states(20, 4))
    await until(lambda: len(worker.events("predictor_not_loaded")) >= 2)
    status, why = worker.probe("/readyz")
    assert status == 503 and "none serves" in why and "the device is lost" in why
    assert worker.probe("/livez")[0] == 200
    lost.unlink()
    answers = await fleet.answers(asked)
    assert answers.keys() == asked.keys() and answers.doubled == 0
    assert {actions[0].outcome for actions in answers.values()} == {"action"}
    assert worker.probe("/readyz")[0] == 200


@pytest.mark.slow
async def test_sigterm_while_a_predictor_hangs_ends_in_time_and_commits_nothing_unanswered(
    fleet: Fleet, tmp_path: Path
) -> None:
    """The drain's bound holds, the log says how many states are left, and the next worker answers them."""
    model = write_package(tmp_path / "hanging", hangs_on=-666.0)
    worker = await fleet.worker(model, FLEET_HANG__AFTER_S="100", FLEET_DRAIN__TIMEOUT_S="4").ready()
    asked = await fleet.ask([("stuck", State(observation(-666.0)))])
    await asyncio.sleep(0.5)
    asked |= await fleet.ask(states(30, 1))
    await asyncio.sleep(0.5)
    worker.signal(signal.SIGTERM)
    assert await worker.ended(4 + 5) == 0
    (drained,) = worker.events("drained")
    assert drained["unanswered"] == 31
    assert (await fleet.committed())["normal"] == 0
    await fleet.worker(write_package(tmp_path / "well")).ready()
    answers = await fleet.answers(asked)
    assert answers.keys() == asked.keys() and answers.doubled == 0


async def until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    """Wait for what must come."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_worker_that_was_taken_for_dead_puts_no_offset_back(fleet: Fleet, tmp_path: Path) -> None:
    """Stopped with states in its hands, while another answered them and more and left: Kafka takes a commit of a
    fenced member as long as the group is empty, so the worker must not send one."""
    sessions = {"FLEET_KAFKA__SESSION_TIMEOUT_MS": "2000", "FLEET_KAFKA__HEARTBEAT_INTERVAL_MS": "300"}
    stopped = await fleet.worker(write_package(tmp_path / "slow", seconds=0.5), **sessions).ready()
    asked = await fleet.ask(states(16, 60))
    await asyncio.sleep(1.0)
    stopped.signal(signal.SIGSTOP)
    await asyncio.sleep(2.5)  # the group forgets it
    other = await fleet.worker(write_package(tmp_path / "well"), **sessions).ready()
    asked |= await fleet.ask(states(16, 20))
    await fleet.answers(asked, extra_s=1.0)
    other.signal(signal.SIGTERM)
    assert await other.ended() == 0
    before = await fleet.committed()
    assert before["normal"] == len(asked)
    stopped.signal(signal.SIGCONT)
    lowest = before["normal"]
    for _ in range(20):
        lowest = min(lowest, (await fleet.committed())["normal"])
    assert lowest == before["normal"]
    assert stopped.process.poll() is None
    more = await fleet.ask(states(16, 5))
    answers = await fleet.answers(asked | more)
    assert answers.keys() == (asked | more).keys()


@pytest.mark.slow
async def test_of_two_workers_of_one_name_the_younger_leaves(fleet: Fleet, tmp_path: Path) -> None:
    """One line and an exit code of its own; the older serves on. A killed one's name is free again when its session
    has ended. One that is told to go while it waits joins nothing."""
    sessions = {"FLEET_KAFKA__SESSION_TIMEOUT_MS": "2000", "FLEET_KAFKA__HEARTBEAT_INTERVAL_MS": "300"}
    model = write_package(tmp_path / "well")
    elder = await fleet.worker(model, FLEET_WORKER="pod-0", **sessions).ready()
    leaving = fleet.worker(model, FLEET_WORKER="pod-0", **sessions)
    await until(lambda: bool(leaving.events("waiting_for_predecessor")), READY_WITHIN_S)
    leaving.signal(signal.SIGTERM)
    assert await leaving.ended() == 0
    younger = fleet.worker(model, FLEET_WORKER="pod-0", **sessions)
    assert await younger.ended() == 6
    assert "error: a worker named pod-0 serves this fleet already" in younger.log.read_text()
    answers = await fleet.answers(asked := await fleet.ask(states(8, 2)))
    assert answers.keys() == asked.keys()
    assert len(elder.events("assigned")) == 3, "it never noticed"
    elder.kill()
    again = await fleet.worker(model, FLEET_WORKER="pod-0", **sessions).ready()
    assert again.process.poll() is None
    asked |= await fleet.ask(states(8, 2))
    assert (await fleet.answers(asked)).keys() == asked.keys()


@pytest.mark.slow
async def test_a_worker_that_comes_back_from_the_dead_finds_its_name_given_away(fleet: Fleet, tmp_path: Path) -> None:
    """As a pod does whose node was cut off for longer than the session: whoever serves under the name now goes on."""
    sessions = {"FLEET_KAFKA__SESSION_TIMEOUT_MS": "2000", "FLEET_KAFKA__HEARTBEAT_INTERVAL_MS": "300"}
    model = write_package(tmp_path / "well")
    cut_off = await fleet.worker(model, FLEET_WORKER="pod-0", **sessions).ready()
    cut_off.signal(signal.SIGSTOP)
    successor = await fleet.worker(model, FLEET_WORKER="pod-0", **sessions).ready()
    cut_off.signal(signal.SIGCONT)
    assert await cut_off.ended() == 6
    assert "error: a worker named pod-0 serves this fleet already" in cut_off.log.read_text()
    asked = await fleet.ask(states(8, 2))
    assert (await fleet.answers(asked)).keys() == asked.keys()
    assert successor.process.poll() is None


async def test_a_predictor_that_does_not_load_leaves_the_other_serving(fleet: Fleet, tmp_path: Path) -> None:
    """The worker is ready, and whoever looks sees which predictor is missing."""
    two = '[{"device": "cuda:63"}, {"device": "cpu"}]'
    worker = await fleet.worker(write_package(tmp_path / "well"), FLEET_PREDICTORS=two).ready()
    asked = await fleet.ask(states(8, 2))
    answers = await fleet.answers(asked)
    assert {actions[0].outcome for actions in answers.values()} == {"action"}
    assert 'fleet_predictor_serving{predictor="cuda:63#0"} 0.0' in worker.probe("/metrics")[1]
    status, page = worker.probe("/readyz?verbose")
    assert status == 200 and [one["serving"] for one in json.loads(page)["metrics"]["predictors"].values()] == [
        False,
        True,
    ]
    assert worker.events("predictor_fenced")[0]["predictor"] == "cuda:63#0"


@pytest.mark.slow
async def test_of_two_workers_of_one_name_that_start_at_once_one_stays(fleet: Fleet, tmp_path: Path) -> None:
    """Neither sees the other before it joins."""
    model = write_package(tmp_path / "well")
    both = [fleet.worker(model, FLEET_WORKER="pod-0") for _ in range(2)]
    await until(lambda: any(worker.process.poll() is not None for worker in both), READY_WITHIN_S)
    (left,) = [worker for worker in both if worker.process.poll() is not None]
    (stays,) = [worker for worker in both if worker is not left]
    assert left.process.poll() == 6
    await stays.ready()
    asked = await fleet.ask(states(8, 2))
    assert (await fleet.answers(asked)).keys() == asked.keys()
    assert stays.process.poll() is None


@pytest.mark.slow
async def test_sigterm_in_the_middle_of_a_rebalance_ends_in_time_and_loses_nothing(
    fleet: Fleet, tmp_path: Path
) -> None:
    """The worker is giving its partitions up to one that joins when it is told to go."""
    bounds = {"FLEET_DRAIN__TIMEOUT_S": "5", "FLEET_DRAIN__REVOKE_TIMEOUT_S": "4"}
    leaving = await fleet.worker(write_package(tmp_path / "slow", seconds=1.0), **bounds).ready()
    asked = await fleet.ask(
        states(64, 30)
    )  # half a minute of work: some is left however long the other one takes to start
    staying = fleet.worker(write_package(tmp_path / "well"), FLEET_WORKER="other")
    async with asyncio.timeout(READY_WITHIN_S):
        while await fleet.group_state("normal") != "PreparingRebalance":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    leaving.signal(signal.SIGTERM)
    assert await leaving.ended(5 + 5) == 0
    (revoked,) = [event for event in leaving.events("revoked") if event["lane"] == "normal"]
    assert revoked["timestamp"] > leaving.events("signal")[0]["timestamp"], "the signal came too late to tell anything"
    await staying.ready()
    answers = await fleet.answers(asked)
    assert answers.keys() == asked.keys() and answers.doubled == 0

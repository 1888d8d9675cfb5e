"""Exactly once: a worker sleeps or dies between its answers and its commit, another takes over; nobody hears twice.

The same stories with the default delivery do bring second answers: they can fail.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stories.fleet import Answers, Fleet, WorkerProcess, states
from topics.kafka import log_ends

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

QUICK = {"FLEET_KAFKA__SESSION_TIMEOUT_MS": "3000", "FLEET_KAFKA__HEARTBEAT_INTERVAL_MS": "500"}
ONCE = {**QUICK, "FLEET_DELIVERY": "exactly_once"}
STOPPED = "T"
"""The state of a stopped process in /proc."""


async def until(found: Callable[[], object], within_s: float = 40.0) -> None:
    """Wait until something is so."""
    for _ in range(round(within_s / 0.05)):
        if found():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not so within {within_s:g} s")


def state_of(worker: WorkerProcess) -> str:
    return Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()[0]


async def with_open_transactions(
    fleet: Fleet, folder: Path, model: Path, number: int, **settings: str
) -> WorkerProcess:
    """A worker that gets signal `number` between the answers to `fleet`'s next states and their commit."""
    when = folder / "when"
    variables = {"COMMIT_SIGNAL": str(int(number)), "COMMIT_SIGNAL_WHEN": str(when)}
    worker = await fleet.worker(model, **variables, **settings).ready()
    when.touch()
    return worker


async def everything_written(fleet: Fleet, expected: int) -> Answers:
    """All answers in the log, those of aborted transactions too."""
    found = Answers()
    async with fleet.reader([fleet.names.actions], isolation_level="read_uncommitted") as consumer:
        while polled := await consumer.getmany(timeout_ms=1000):
            found.read(polled)
    assert len(found) == expected
    return found


async def unfinished(fleet: Fleet) -> int:
    """Records of transactions that are still open, as they hold back the end that readers of answers see."""
    async with fleet.reader([fleet.names.actions]) as consumer:
        places = consumer.assignment()
        stable = await consumer.end_offsets(places)
        return sum((await log_ends(consumer, places)).values()) - sum(stable.values())


async def taken_over_and_woken(
    fleet: Fleet, folder: Path, probe: Path, **settings: str
) -> tuple[Answers, WorkerProcess]:
    """All answers that an agent sees when the first worker sleeps in front of a commit until a second took over."""
    first = await with_open_transactions(fleet, folder, probe, signal.SIGSTOP, **settings)
    asked = await fleet.ask(states(40, 5))
    await until(lambda: state_of(first) == STOPPED)
    second = await fleet.worker(probe, **settings).ready()
    await fleet.answers(asked)
    first.signal(signal.SIGCONT)
    # It is a member again, or has ended: whatever it would have sent, it has.
    await until(lambda: len(first.events("assigned")) > 3 or first.process.poll() is not None)
    asked |= await fleet.ask(states(40, 5))
    answers = await fleet.answers(asked, extra_s=1.0)
    assert answers.keys() == asked.keys()
    assert second.process.poll() is None
    return answers, first


async def test_a_worker_that_sleeps_before_its_commit_answers_nobody_twice(
    fleet: Fleet, tmp_path: Path, probe: Path
) -> None:
    """What it had begun is refused when it wakes up, and it goes on as a member like any other."""
    answers, first = await taken_over_and_woken(fleet, tmp_path, probe, **ONCE)
    assert answers.doubled == 0
    assert first.events("fenced") and first.process.poll() is None
    written = await everything_written(fleet, len(answers))
    assert written.doubled > 0, "the sleeper had written no answer: this proves nothing"


@pytest.mark.slow
async def test_asleep_for_longer_than_a_transaction_may_take(fleet: Fleet, tmp_path: Path, probe: Path) -> None:
    """The sleeper ends by itself; what it had begun is refused all the same."""
    answers, first = await taken_over_and_woken(fleet, tmp_path, probe, **ONCE, FLEET_REPLY__TIMEOUT_S="1")
    assert answers.doubled == 0
    assert await first.ended() == 1
    assert (await everything_written(fleet, len(answers))).doubled > 0, "nothing had been written: this proves nothing"


@pytest.mark.slow
async def test_asleep_while_nobody_takes_over_until_the_broker_gives_up(
    fleet: Fleet, tmp_path: Path, probe: Path
) -> None:
    """The broker aborts what took too long; the worker that still owns the partition ends, and the next one answers."""
    patient = {**ONCE, "FLEET_KAFKA__SESSION_TIMEOUT_MS": "40000", "FLEET_REPLY__TIMEOUT_S": "2"}
    first = await with_open_transactions(fleet, tmp_path, probe, signal.SIGSTOP, **patient)
    asked = await fleet.ask(states(40, 5))
    await until(lambda: state_of(first) == STOPPED)
    assert await unfinished(fleet) > 0
    for _ in range(60):  # the broker looks for them every 10 s
        if not await unfinished(fleet):
            break
        await asyncio.sleep(0.5)
    assert not await unfinished(fleet)
    first.signal(signal.SIGCONT)
    assert await first.ended() == 1
    await fleet.worker(probe, **ONCE).ready()
    answers = await fleet.answers(asked, extra_s=1.0)
    assert answers.keys() == asked.keys() and answers.doubled == 0


@pytest.mark.slow
async def test_by_default_a_worker_that_sleeps_before_its_commit_does_answer_twice(
    fleet: Fleet, tmp_path: Path, probe: Path
) -> None:
    """The counter-proof: with at-least-once the same story brings second answers."""
    answers, _ = await taken_over_and_woken(fleet, tmp_path, probe, **QUICK)
    assert answers.doubled > 0


@pytest.mark.slow
async def test_a_worker_that_dies_in_its_transactions_answers_nobody_twice(
    fleet: Fleet, tmp_path: Path, probe: Path
) -> None:
    """kill -9 between answers and commit: they are aborted, and the next owner answers."""
    first = await with_open_transactions(fleet, tmp_path, probe, signal.SIGKILL, **ONCE)
    asked = await fleet.ask(states(40, 5))
    assert await first.ended() == -signal.SIGKILL
    await fleet.worker(probe, **ONCE).ready()
    answers = await fleet.answers(asked, extra_s=1.0)
    assert answers.keys() == asked.keys() and answers.doubled == 0
    assert (await everything_written(fleet, len(asked))).doubled > 0, "nothing had been written: this proves nothing"


async def test_a_letter_that_has_no_room_for_its_state_harms_nobody(fleet: Fleet, probe: Path) -> None:
    """A batch that the broker refused would end the transaction, the worker, and its successor."""
    worker = await fleet.worker(probe, **ONCE).ready()
    asked = await fleet.ask([*states(5, 2), ("huge", b"\xc1" * 1_048_000), *states(5, 2)])
    answers = await fleet.answers(asked)
    outcomes = {agent: answers[correlation][0].outcome for correlation, agent in asked.items()}
    assert outcomes.pop("huge") == "rejected" and set(outcomes.values()) == {"action"}
    (letter,) = await fleet.dead_letters(1)
    assert letter.key == b"huge" and letter.value is None
    assert b"left out" in dict(letter.headers)["fleet_dead-message"]
    assert worker.process.poll() is None

"""Answers and dead letters that are larger than their topics take: they alone fail, and the worker serves on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.stories.fleet import Fleet, observation, states
from topics.headers import CORRELATION_ID
from topics.kafka import make_producer, started
from topics.outbox import Outbox
from topics.partitions import Partitioner
from topics.records import State
from topics.wire import decode_action, encode_state

pytestmark = pytest.mark.broker


def limit(fleet: Fleet, topic: str, size_bytes: int) -> None:
    """What an operator does: batches above this size are refused from now on."""
    admin = AdminClient({"bootstrap.servers": fleet.settings.kafka.bootstrap_servers})
    entry = ConfigEntry("max.message.bytes", str(size_bytes), incremental_operation=AlterConfigOpType.SET)
    for changed in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
    ).values():
        changed.result(20)


async def ask_one(fleet: Fleet, agent: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> None:
    """One state, with whatever headers."""
    kafka = fleet.settings.kafka
    async with started(make_producer(kafka, client_id="story"), kafka) as producer:
        outbox = Outbox(producer)
        place = Partitioner(fleet.settings.topics.partitions)(agent)
        outbox.add(fleet.names.states("normal"), place, agent, value, headers)
        await outbox.flush(20.0)


async def answer_without_key(fleet: Fleet) -> Any:
    """The action record that names its state by topic, partition and offset alone."""
    async with fleet.reader([fleet.names.actions]) as consumer:
        while True:
            polled = await consumer.getmany(timeout_ms=20_000)
            assert polled, "no answer came"
            for record in (record for records in polled.values() for record in records):
                if not record.headers:
                    return record


@pytest.mark.slow
async def test_a_lowered_limit_costs_no_answer_that_fits(fleet: Fleet, probe: Path) -> None:
    """Full batches of answers are refused and come in parts; only the one that is too large by itself fails."""
    worker = await fleet.worker(probe).ready()
    asked = await fleet.ask(states(16, 2))
    await fleet.answers(asked)  # the producer has sequence numbers by now
    limit(fleet, fleet.names.actions, 1_500)
    await ask_one(fleet, b"agent-3", encode_state(State(observation(1.0), seq=9)), [(CORRELATION_ID, b"long" * 500)])
    asked |= await fleet.ask(states(16, 40))
    answers = await fleet.answers(asked)
    assert answers.keys() >= asked.keys() and answers.doubled == 0
    assert {answers[one][0].outcome for one in asked} == {"action"}
    record = await answer_without_key(fleet)
    action = decode_action(record.value)
    assert (action.outcome, action.seq, record.key) == ("failed", 9, b"")
    assert action.origin is not None and action.origin.topic == fleet.names.states("normal")
    (letter,) = await fleet.dead_letters(1)
    assert letter.key == b"agent-3" and dict(letter.headers)["fleet_dead-reason"] == b"reply_too_large"
    assert worker.process.poll() is None


async def test_a_state_full_of_headers_does_not_end_the_worker(fleet: Fleet, probe: Path) -> None:
    """An agent's correlation ID as large as its topic takes it: its answer has no room for it, and says so."""
    worker = await fleet.worker(probe).ready()
    huge = b"x" * (fleet.settings.topics.max_message_bytes - 250)
    await ask_one(fleet, b"hostile", encode_state(State(observation(1.0))), [(CORRELATION_ID, huge)])
    asked = await fleet.ask(states(16, 4))
    answers = await fleet.answers(asked)
    assert answers.keys() >= asked.keys()
    action = decode_action((await answer_without_key(fleet)).value)
    assert action.outcome == "failed" and "takes" in action.reason
    (letter,) = await fleet.dead_letters(1)
    assert dict(letter.headers)[CORRELATION_ID] == huge
    assert worker.process.poll() is None


@pytest.mark.slow
async def test_a_letter_that_does_not_fit_is_kept_without_its_state(fleet: Fleet, probe: Path) -> None:
    """The bad state is answered all the same, and its letter still says where the state lies."""
    worker = await fleet.worker(probe).ready()
    limit(fleet, fleet.names.dead, 1_500)
    asked = await fleet.ask([("bad", b"\xc1" * 3_000), *states(4, 1), ("worse", b"\xc1")])
    answers = await fleet.answers(asked)
    outcomes = sorted(actions[0].outcome for actions in answers.values())
    assert outcomes == ["action"] * 4 + ["rejected"] * 2 and answers.doubled == 0
    letters = {letter.key: letter for letter in await fleet.dead_letters(2)}
    assert (letters[b"bad"].value, letters[b"worse"].value) == (None, b"\xc1")
    headers = dict(letters[b"bad"].headers)
    assert b"left out: the state" in headers["fleet_dead-message"] and headers["fleet_dead-offset"].isdigit()
    assert worker.events("dead_letter_cut") and worker.process.poll() is None


async def test_exactly_once_refuses_topics_that_take_too_little(fleet: Fleet, probe: Path) -> None:
    """In one line at its start: a transaction with an answer too large would end it, and every worker after it."""
    limit(fleet, fleet.names.actions, 1_500)
    worker = fleet.worker(probe, FLEET_DELIVERY="exactly_once")
    assert await worker.ended() == 2
    (line,) = [line for line in worker.log.read_text().splitlines() if line.startswith("error:")]
    assert f"topic {fleet.names.actions} takes records up to max.message.bytes=1500" in line

"""Agents ask, the fleet answers: the right agent, in order, each state exactly once."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from tests.stories.fleet import Fleet, observation, states
from tests.stories.models import write_package
from tools.top.pages import parse
from topics.records import State
from topics.wire import decode_action, encode_state

pytestmark = pytest.mark.broker


async def test_many_agents_get_their_own_answers_in_order(fleet: Fleet, probe: Path) -> None:
    """200 agents × 10 states over three lanes: each answer carries its own observation, each agent's in its order."""
    worker = fleet.worker(probe)
    asked: dict[bytes, str] = {}
    sent = states(200, 10)
    await worker.ready()
    for lane, part in (("normal", sent[:1000]), ("high", sent[1000:1600]), ("low", sent[1600:])):
        asked |= await fleet.ask(part, lane)  # type: ignore[arg-type]
    answers = await fleet.answers(asked)
    assert answers.keys() == asked.keys() and answers.doubled == 0
    for correlation, (agent, state) in zip(asked, sent, strict=True):
        (action,) = answers[correlation]
        assert answers.keys_of[correlation] == agent.encode()
        np.testing.assert_array_equal(action.action, state.observation)
        assert (action.outcome, action.seq, action.model) == ("action", state.seq, "probe v1")
    for correlations in answers.order.values():
        for lane in ("high", "normal", "low"):
            seqs = [answers[c][0].seq or 0 for c in correlations if answers[c][0].lane == lane]
            assert seqs == sorted(seqs)


POISON: dict[str, tuple[Any, str, bytes]] = {
    "wrong shape": (encode_state(State(np.zeros(5, np.float32), seq=7)), "shape [5], expected [4]", b"wrong_input"),
    "NaN": (encode_state(State(observation(np.nan), seq=7)), "NaN", b"wrong_input"),
    "truncated": (encode_state(State(observation(1.0)))[:-9], "MessagePack", b"undecodable"),
    "a claim of 100 MiB in 20 bytes": (
        b"\x82\xa1v\x01\xabobservation\xc6\x06\x40\x00\x00",
        "MessagePack",
        b"undecodable",
    ),
    "a nested bomb": (b"\x82\xa1v\x01\xabobservation" + b"\x91" * 1000 + b"\xc0", "", b"undecodable"),
    "raises in the model": (encode_state(State(observation(-666), seq=7)), "told to raise", b"model_error"),
}


async def test_poison_among_good_states_harms_nobody_else(fleet: Fleet, tmp_path: Path) -> None:
    """63 good states around each bad one are answered; the bad one gets its reply and an untouched dead letter."""
    worker = fleet.worker(write_package(tmp_path / "raising", raises_on=-666.0))
    sent: list[tuple[str, Any]] = []
    for name, (value, _, _) in POISON.items():
        good = [(f"{name}-{n}", State(observation(n), seq=n)) for n in range(63)]
        sent += [*good[:31], (f"bad-{name}", value), *good[31:]]
    asked = await fleet.ask(sent)
    await worker.ready()
    answers = await fleet.answers(asked, extra_s=0.5)
    assert answers.keys() == asked.keys() and answers.doubled == 0
    letters = {record.key: record for record in await fleet.dead_letters(len(POISON))}
    assert len(letters) == len(POISON)
    for correlation, (agent, state) in zip(asked, sent, strict=True):
        (action,) = answers[correlation]
        if not isinstance(state, bytes):
            assert action.outcome == "action", (agent, action.reason)
            continue
        _, says, reason = POISON[agent.removeprefix("bad-")]
        assert action.outcome == ("failed" if reason == b"model_error" else "rejected")
        assert says in (action.reason or "")
        letter = letters[agent.encode()]
        headers = dict(letter.headers)
        assert letter.value == state and headers["kafka_correlationId"] == correlation
        assert headers["fleet_dead-reason"] == reason
        assert headers["fleet_dead-topic"].decode() == fleet.names.states("normal")
        assert headers["fleet_dead-partition"].isdigit() and headers["fleet_dead-offset"].isdigit()
    assert worker.process.poll() is None


async def test_sigterm_answers_what_is_held_and_hands_back_the_rest(fleet: Fleet, tmp_path: Path) -> None:
    """64 in flight and 1,000 queued: the worker exits 0, and its successor answers exactly what it did not."""
    slow = write_package(tmp_path / "slow", seconds=0.1)
    first = await fleet.worker(slow, FLEET_DRAIN__TIMEOUT_S="2").ready()
    sent = states(133, 8)
    asked = await fleet.ask(sent)
    await asyncio.sleep(0.3)
    first.signal(signal.SIGTERM)
    assert await first.ended(within_s=10) == 0
    partial = await fleet.answers(asked, within_s=2)
    assert 64 <= len(partial) <= len(asked), "the running batch is answered"
    assert (await fleet.committed())["normal"] == len(partial), "committed is exactly what was answered"
    await fleet.worker(slow).ready()
    answers = await fleet.answers(asked)
    assert answers.keys() == asked.keys() and answers.doubled == 0


async def test_a_killed_worker_is_taken_over_with_every_state_answered(fleet: Fleet, probe: Path) -> None:
    """kill −9 in the middle: the survivor answers all; a state may be answered twice, never not at all."""
    quick = {"FLEET_KAFKA__SESSION_TIMEOUT_MS": "6000", "FLEET_KAFKA__HEARTBEAT_INTERVAL_MS": "500"}
    slow = write_package(probe.parent / "slow", seconds=0.05)
    victim, survivor = fleet.worker(slow, **quick), fleet.worker(slow, **quick)
    await victim.ready()
    await survivor.ready()
    asked = await fleet.ask(states(300, 20))
    await asyncio.sleep(0.5)
    victim.kill()
    answers = await fleet.answers(asked, within_s=60)
    assert answers.keys() == asked.keys()
    assert all(action.outcome == "action" for actions in answers.values() for action in actions)
    for actions in answers.values():
        assert len({(action.seq, action.action.tobytes()) for action in actions}) == 1


async def test_states_past_their_deadline_are_answered_expired(fleet: Fleet, probe: Path) -> None:
    """Before any model time is spent on them, and without a dead letter."""
    asked = await fleet.ask([(f"late-{n}", State(observation(n), seq=n, deadline_us=1)) for n in range(50)])
    asked_in_time = await fleet.ask([("in-time", State(observation(1)))])
    worker = await fleet.worker(probe).ready()
    answers = await fleet.answers(asked | asked_in_time)
    assert {answers[correlation][0].outcome for correlation in asked} == {"expired"}
    assert [answers[correlation][0].outcome for correlation in asked_in_time] == ["action"]
    metrics = worker.probe("/metrics")[1]
    assert 'fleet_replies_total{lane="normal",outcome="expired"} 50' in metrics
    assert "fleet_batch_size_sum" in metrics and 'fleet_batch_size_sum{predictor="cpu"} 1.0' in metrics
    assert await fleet.dead_letters(0) == []


async def test_a_full_low_lane_does_not_delay_high(fleet: Fleet, tmp_path: Path) -> None:
    """Thousands of low states wait for a slow model; a high one waits for one batch, not for them."""
    slow = write_package(tmp_path / "slow", seconds=0.1)
    worker = fleet.worker(slow)
    flood = await fleet.ask(states(500, 20), "low")
    await worker.ready()
    await asyncio.sleep(1.0)
    urgent = await fleet.ask([(f"urgent-{n}", State(observation(n))) for n in range(5)], "high")
    answers = await fleet.answers(urgent)
    waits_ms = [answers[correlation][0].timing.wait_us / 1000 for correlation in urgent]
    assert max(waits_ms) < 350, f"waited {waits_ms}, a batch takes 100 ms"
    still_waiting = len(flood.keys() - answers.keys())
    assert still_waiting > 3000, "the flood was still there when high was answered"


async def test_two_workers_share_the_partitions_with_the_same_numbers_in_every_lane(fleet: Fleet, probe: Path) -> None:
    """So that an agent's states are in one place whatever lane they take; also after one of them leaves."""
    one, two = fleet.worker(probe, FLEET_WORKER="one"), fleet.worker(probe, FLEET_WORKER="two")
    await one.ready()
    await two.ready()
    await _settled(one, two)
    owned = [_owned(worker) for worker in (one, two)]
    for lanes in owned:
        assert lanes["high"] == lanes["normal"] == lanes["low"] != []
    assert sorted(owned[0]["high"] + owned[1]["high"]) == list(range(12))
    asked = await fleet.ask(states(100, 4))
    answers = await fleet.answers(asked)
    assert answers.keys() == asked.keys() and answers.doubled == 0
    assert {actions[0].worker for actions in answers.values()} == {"one", "two"}
    one.signal(signal.SIGTERM)
    assert await one.ended() == 0
    await _settled(two)
    assert _owned(two) == {lane: list(range(12)) for lane in ("high", "normal", "low")}


def _owned(worker: Any) -> dict[str, list[int]]:
    return {event["lane"]: event["partitions"] for event in worker.events("assigned")}


async def _settled(*workers: Any) -> None:
    """Wait until the workers together own every partition of every lane once."""
    for _ in range(200):
        owned = [_owned(worker) for worker in workers]
        lanes = [sorted(p for one in owned for p in one.get(lane, [])) for lane in ("high", "normal", "low")]
        if lanes == [list(range(12))] * 3:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"partitions are not shared out: {owned}")


async def test_another_kafka_client_with_plain_lists_gets_plain_answers(fleet: Fleet, probe: Path) -> None:
    """librdkafka (confluent-kafka), numbers instead of tensors, no correlation ID: the answer names the state."""
    from confluent_kafka import Producer

    await fleet.worker(probe).ready()
    producer = Producer({"bootstrap.servers": fleet.settings.kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    topic = fleet.names.states("normal")
    for n in range(10):
        value = msgpack.packb({"v": 1, "observation": [n, n + 0.25, n + 0.5, n + 0.75], "seq": n})
        producer.produce(topic, value, key=f"other-{n}")
    assert producer.flush(10) == 0
    answered: dict[bytes, Any] = {}
    async with fleet.reader([fleet.names.actions]) as consumer:
        for _ in range(100):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                answered |= {record.key: (record, decode_action(record.value)) for record in records}
            if len(answered) == 10:
                break
    assert sorted(answered) == [b"other-%d" % n for n in range(10)]
    for n in range(10):
        record, action = answered[b"other-%d" % n]
        assert action.action == [n, n + 0.25, n + 0.5, n + 0.75] and action.seq == n
        assert action.origin is not None and action.origin.topic == topic
        assert record.headers == ()


async def test_the_probes_tell_the_workers_life(fleet: Fleet, probe: Path) -> None:
    """Ready once it owns its partitions; metrics in the Prometheus format."""
    worker = await fleet.worker(probe).ready()
    assert worker.probe("/livez")[0] == 200
    status, body = worker.probe("/readyz?verbose")
    assert status == 200 and json.loads(body)["phase"] == "ready"
    asked = await fleet.ask(states(10, 3))
    await fleet.answers(asked)
    status, body = worker.probe("/metrics")
    assert status == 200
    assert 'fleet_replies_total{lane="normal",outcome="action"} 30' in body
    assert 'fleet_admitted_total{lane="normal"} 30' in body


async def test_the_parts_of_the_time_add_up_on_a_real_worker(fleet: Fleet, probe: Path) -> None:
    """Within 2 % of what is told from the agents' send to the acknowledged answer."""
    worker = await fleet.worker(probe).ready()
    await fleet.answers(await fleet.ask(states(40, 5)))
    status, page = worker.probe("/metrics")
    told = parse(page)
    assert status == 200
    parts = sum(told.counters["fleet_decision_seconds_total"].values())
    assert parts == pytest.approx(told.distribution("fleet_end_to_end_seconds", "action").total, rel=0.02)
    assert parts > 0

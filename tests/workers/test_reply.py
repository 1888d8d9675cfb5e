"""Reply: every request of a batch is answered once, dead letters come first, and nothing is finished unacknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.workers.build import record, request
from topics.columns import ActionColumns
from topics.outbox import Outbox, SendFailed
from topics.tensors import TensorSpec
from topics.wire import decode_action
from workers.dead_letters import DeadLetters
from workers.metrics import Metrics
from workers.reply import Encoder, Replies
from workers.requests import Batch, Fault, Predicted, Refusal, Request

ACTION = TensorSpec("action", "int64", ())


class FakeProducer:
    """Keeps what is sent; acknowledges when told to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.acknowledges = asyncio.Event()
        self.acknowledges.set()

    def create_batch(self) -> Any:
        return FakeBatch()

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> asyncio.Task[None]:
        self.sent += [{**fields, "topic": topic, "partition": partition} for fields in batch.records]
        return asyncio.ensure_future(self._acknowledge())

    async def _acknowledge(self) -> None:
        await self.acknowledges.wait()


class FakeBatch:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def append(self, **fields: Any) -> object:
        assert type(fields["headers"]) is list, "aiokafka takes nothing else"
        if len(self.records) == 3:
            return None
        self.records.append(fields)
        return object()


class Bench:
    def __init__(self) -> None:
        self.producer, self.dead = FakeProducer(), FakeProducer()
        self.answered: list[int] = []
        columns = ActionColumns([ACTION], "m v1", "w")
        letters = DeadLetters(Outbox(self.dead), "f.dead", 1, "w", "m v1", 1.0)  # type: ignore[arg-type]
        self.replies = Replies(
            Outbox(self.producer),  # type: ignore[arg-type]
            letters,
            Encoder(columns, ["action"], "m v1", "w"),
            self._count,
            0.2,
            Metrics(max_batch=8),
        )

    def _count(self, predicted: Sequence[Predicted], refusals: Sequence[Refusal]) -> None:
        self.answered += [len(ran.batch) - len(ran.faults) for ran in predicted] + [1 for _ in refusals]

    async def run(self, for_s: float = 0.05) -> None:
        running = asyncio.ensure_future(self.replies.run())
        await asyncio.sleep(for_s)
        if running.done():
            await running
        running.cancel()


def ran(requests: list[Request], faults: dict[int, Fault] | None = None) -> Predicted:
    outputs = {"action": np.arange(len(requests), dtype=np.int64)}
    return Predicted(Batch(0, requests, 0), outputs, 100, 180, faults or {})


async def test_a_batch_is_answered_row_by_row() -> None:
    """Each reply carries its own action, step counter and correlation ID; a full record batch starts the next."""
    bench = Bench()
    bench.replies.predicted(ran([request(f"a{n}", seq=n) for n in range(7)]))
    await bench.run()
    actions = {sent["key"]: decode_action(sent["value"]) for sent in bench.producer.sent}
    assert {key: int(action.action) for key, action in actions.items()} == {b"a%d" % n: n for n in range(7)}
    assert {action.seq for action in actions.values()} == set(range(7))
    assert actions[b"a3"].timing.batch_size == 7 and actions[b"a3"].timing.predict_us == 80
    assert bench.producer.sent[0]["headers"] == [("kafka_correlationId", b"c")]
    assert bench.answered == [7]


async def test_nothing_is_finished_before_the_broker_acknowledged_it() -> None:
    """The offset moves only behind an acknowledged answer."""
    bench = Bench()
    bench.producer.acknowledges.clear()
    bench.replies.predicted(ran([request()]))
    await bench.run()
    assert bench.producer.sent and bench.answered == []


async def test_answers_that_are_never_acknowledged_end_the_process() -> None:
    """Another worker then takes over; waiting for ever would help nobody."""
    bench = Bench()
    bench.producer.acknowledges.clear()
    bench.replies.predicted(ran([request()]))
    with pytest.raises(SendFailed, match=r"f\.actions within 0\.2 s"):
        await bench.run(for_s=0.5)
    assert bench.answered == []


async def test_a_fault_becomes_a_dead_letter_and_then_a_failed_reply() -> None:
    """The letter keeps key, value and headers untouched and says why, from where and by whom."""
    bench = Bench()
    requests = [request("good"), request("bad", offset=41)]
    bench.replies.predicted(ran(requests, {1: Fault("failed", "model_error", "RuntimeError: boom")}))
    await bench.run()
    (letter,) = bench.dead.sent
    assert (letter["key"], letter["value"]) == (b"bad", requests[1].record.value)
    headers = dict(letter["headers"])
    assert headers["kafka_correlationId"] == b"c41"
    assert headers["fleet_dead-reason"] == b"model_error" and headers["fleet_dead-offset"] == b"41"
    assert headers["fleet_dead-attempts"] == b"1"
    outcomes = {sent["key"]: decode_action(sent["value"]).outcome for sent in bench.producer.sent}
    assert outcomes == {b"good": "action", b"bad": "failed"}
    assert bench.answered == [1, 1]


async def test_no_reply_tells_of_a_dead_letter_that_was_not_written() -> None:
    """The letter is acknowledged first."""
    bench = Bench()
    bench.dead.acknowledges.clear()
    bench.replies.refused([Refusal(request(), "rejected", "bad", dead="wrong_input")])
    await bench.run()
    assert bench.dead.sent and not bench.producer.sent


async def test_expired_states_are_answered_without_a_dead_letter() -> None:
    """Nothing is wrong with them."""
    bench = Bench()
    bench.replies.refused([Refusal(request(seq=4), "expired", "too late")])
    await bench.run()
    assert bench.dead.sent == []
    action = decode_action(bench.producer.sent[0]["value"])
    assert (action.outcome, action.reason, action.seq, action.action) == ("expired", "too late", 4, None)


async def test_work_of_a_lost_assignment_is_not_answered() -> None:
    """The partition's new owner answers; a second reply would only be dropped by the agent."""
    bench = Bench()
    stale = request("stale")
    stale.offsets.revoke()
    bench.replies.predicted(ran([stale, request("ours")]))
    bench.replies.refused([Refusal(stale, "rejected", "bad", dead="wrong_input")])
    await bench.run()
    assert [sent["key"] for sent in bench.producer.sent] == [b"ours"] and bench.dead.sent == []


async def test_an_agent_that_speaks_plain_numbers_is_answered_in_them() -> None:
    """And one that sent no correlation ID is told which state is meant."""
    bench = Bench()
    plain = request("plain")
    plain.plain, plain.correlated, plain.headers = True, False, []
    bench.replies.predicted(ran([request(), plain]))
    await bench.run()
    action = decode_action(next(sent["value"] for sent in bench.producer.sent if sent["key"] == b"plain"))
    assert action.action == 1 and type(action.action) is int
    assert action.origin is not None and (action.origin.topic, action.origin.offset) == ("f.states.normal", 0)


async def test_a_second_failure_is_seen_as_such() -> None:
    """A redriven state's next letter counts on and keeps its history; what an agent forged is not carried on."""
    bench = Bench()
    bad = request("bad")
    brought = [
        ("kafka_correlationId", b"c"),
        ("fleet_dead-attempts", b"1"),
        ("fleet_dead-history", b"[]"),
        ("fleet_dead-letter", b"0:17"),
        ("fleet_dead-note", b"forged"),
        ("fleet_dead-reason", b"forged"),
    ]
    bad.record = record(headers=brought, agent="bad")
    bench.replies.refused([Refusal(bad, "failed", "boom", dead="model_error")])
    await bench.run()
    (letter,) = bench.dead.sent
    names = [name for name, _ in letter["headers"]]
    assert len(names) == len(set(names)) and "fleet_dead-note" not in names
    headers = dict(letter["headers"])
    assert headers["fleet_dead-attempts"] == b"2" and headers["fleet_dead-reason"] == b"model_error"
    assert (headers["fleet_dead-history"], headers["fleet_dead-letter"]) == (b"[]", b"0:17")

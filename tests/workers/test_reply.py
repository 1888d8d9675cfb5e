"""Reply: every request of a batch is answered once, dead letters come first, and nothing is finished unacknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
)
from aiokafka.producer.message_accumulator import BatchBuilder

from tests.workers.build import record, request
from topics.columns import ActionColumns
from topics.outbox import Outbox, SendFailed
from topics.tensors import Array, TensorSpec
from topics.wire import decode_action
from workers.dead_letters import DeadLetters
from workers.metrics import Metrics
from workers.reply import Encoder, Replies
from workers.requests import Batch, Fault, Predicted, Refusal, Request

CORRELATED = [("kafka_correlationId", b"c")]


class FakeProducer:
    """Keeps what is sent; acknowledges when told to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.acknowledges = asyncio.Event()
        self.acknowledges.set()
        self.refuses: KafkaError | None = None
        self.largest_bytes = 1 << 20
        """Of a batch; a larger one is refused, as a broker does."""
        self._client = SimpleNamespace(cluster=SimpleNamespace(unauthorized_topics=set()))
        self._txn_manager = None

    def create_batch(self) -> Any:
        return FakeBatch()

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> asyncio.Task[None]:
        if self.refuses or batch.size() > self.largest_bytes:
            return asyncio.ensure_future(self._refuse())
        self.sent += [{**fields, "topic": topic, "partition": partition} for fields in batch.records]
        return asyncio.ensure_future(self._acknowledge())

    async def _refuse(self) -> None:
        raise self.refuses or MessageSizeTooLargeError

    async def _acknowledge(self) -> None:
        await self.acknowledges.wait()


class FakeBatch:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self._real: Any = BatchBuilder(1 << 20, 0)

    def append(self, **fields: Any) -> object:
        assert type(fields["headers"]) is list, "aiokafka takes nothing else"
        if len(self.records) == 3:
            return None
        self.records.append(fields)
        self._real.append(**fields)
        return object()

    def size(self) -> int:
        return int(self._real.size())

    def _build(self) -> bytes:
        return bytes(self._real._build())


class Bench:
    def __init__(self, shape: tuple[int, ...] = (), fallback: Array | None = None) -> None:
        self.producer, self.dead = FakeProducer(), FakeProducer()
        self.answered: list[int] = []
        columns = ActionColumns([TensorSpec("action", "int64", shape)], "m v1", "w")
        letters = DeadLetters(Outbox(self.dead), "f.dead", 1, "w", "m v1", 1.0)  # type: ignore[arg-type]
        self.replies = Replies(
            Outbox(self.producer),  # type: ignore[arg-type]
            letters,
            Encoder(columns, ["action"], "m v1", "w", fallback),
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


def ran(requests: list[Request], faults: dict[int, Fault] | None = None, shape: tuple[int, ...] = ()) -> Predicted:
    outputs = {"action": np.zeros((len(requests), *shape), np.int64)}
    outputs["action"].T[...] = np.arange(len(requests))
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


@pytest.mark.parametrize("plain", [False, True])
async def test_an_expired_state_gets_the_packages_fallback(plain: bool) -> None:
    """As a tensor, or in plain numbers for who speaks those; no other outcome has one."""
    bench = Bench(shape=(2,), fallback=np.array([3, 4]))
    late, bad = request("late"), request("bad")
    late.plain = plain
    bench.replies.refused([Refusal(late, "expired", "too late"), Refusal(bad, "rejected", "bad")])
    await bench.run()
    answered, refused = [decode_action(sent["value"]) for sent in bench.producer.sent]
    assert (answered.outcome, answered.reason) == ("expired", "too late")
    if plain:
        assert answered.action == [3, 4]
    else:
        assert isinstance(answered.action, np.ndarray) and answered.action.tolist() == [3, 4]
    assert refused.outcome == "rejected" and refused.action is None


async def test_a_fallback_that_its_topic_does_not_take_is_left_out() -> None:
    """The state is expired all the same, and the worker goes on."""
    bench = Bench(shape=(64,), fallback=np.zeros(64, np.int64))
    bench.producer.largest_bytes = 500
    bench.replies.refused([Refusal(request(), "expired", "too late")])
    await bench.run()
    (sent,) = bench.producer.sent
    assert decode_action(sent["value"]).action is None and sent["key"] == b"a"
    assert bench.answered == [1]


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


async def test_an_action_that_its_topic_does_not_take_fails_alone() -> None:
    """Its neighbours in the refused batch are answered; it becomes a dead letter, and its agent hears of it."""
    bench = Bench(shape=(64,))
    bench.producer.largest_bytes = 500
    requests = [request(f"a{n}", offset=n) for n in range(7)]
    for neighbour in (*requests[:4], *requests[5:]):
        neighbour.plain = True  # small integers take a byte each, not eight
    bench.replies.predicted(ran(requests, shape=(64,)))
    await bench.run()
    found = {sent["key"]: decode_action(sent["value"]) for sent in bench.producer.sent}
    assert {key: action.outcome for key, action in found.items()} == {
        b"a%d" % n: "failed" if n == 4 else "action" for n in range(7)
    }
    assert len(bench.producer.sent) == 7 and "more than f.actions takes" in found[b"a4"].reason
    (letter,) = bench.dead.sent
    assert letter["key"] == b"a4" and dict(letter["headers"])["fleet_dead-reason"] == b"reply_too_large"
    assert bench.answered == [6, 1]
    assert [sent["headers"] for sent in bench.producer.sent if sent["key"] == b"a4"] == [CORRELATED]


@pytest.mark.parametrize("outcome", ["action", "rejected"])
async def test_a_huge_correlation_id_does_not_come_back(outcome: str) -> None:
    """What an agent made its answer too large with is left out; the answer names the state's origin instead."""
    bench = Bench()
    bench.producer.largest_bytes = 600
    huge = request("huge", offset=77)
    huge.headers = [("kafka_correlationId", b"c" * 2000)]
    if outcome == "action":
        bench.replies.predicted(ran([request(), huge]))
    else:
        bench.replies.predicted(ran([request()]))
        bench.replies.refused([Refusal(huge, "rejected", "bad", dead="wrong_input")])
    await bench.run()
    good, bad = bench.producer.sent
    action = decode_action(bad["value"])
    assert good["key"] == b"a" and (bad["key"], bad["headers"]) == (b"", [])
    assert action.outcome == ("failed" if outcome == "action" else "rejected")
    assert action.origin is not None and action.origin.offset == 77
    assert len(bench.dead.sent) == 1 and bench.answered == [1, 1]


async def test_a_topic_that_takes_not_even_a_short_answer_ends_the_process() -> None:
    """One line says which topic and what to raise; nothing counts as answered."""
    bench = Bench()
    bench.producer.largest_bytes = 100
    bench.replies.predicted(ran([request()]))
    with pytest.raises(SendFailed, match=r"larger than topic f\.actions takes: raise its max\.message\.bytes"):
        await bench.run()
    assert bench.answered == []


async def test_a_letter_that_its_topic_does_not_take_leaves_the_state_out() -> None:
    """It still says what failed, why and where it lies; its neighbours are whole and the agents are answered."""
    bench = Bench()
    bench.dead.largest_bytes = 900
    large = request("large", offset=41)
    large.record = record(41, "large", value=b"v" * 2000)
    both = [Refusal(one, "failed", "boom", dead="model_error") for one in (request(), large)]
    bench.replies.refused(both)
    await bench.run()
    whole, cut = bench.dead.sent
    assert whole["value"] == both[0].request.record.value
    headers = dict(cut["headers"])
    assert (cut["key"], cut["value"], headers["fleet_dead-offset"]) == (b"large", None, b"41")
    assert headers["fleet_dead-message"].startswith(b"boom; left out: the state, as this letter of 2")
    assert [decode_action(sent["value"]).outcome for sent in bench.producer.sent] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OutOfOrderSequenceNumber(), "the broker refused records: OutOfOrderSequenceNumber"),
        (TopicAuthorizationFailedError("f.actions"), "not allowed to write to f.actions: `fleet topics acls`"),
    ],
)
async def test_other_refusals_end_the_process(error: KafkaError, told: str) -> None:
    """A new process begins with a new producer, and what is not acknowledged is not finished."""
    bench = Bench()
    bench.producer.refuses = error
    bench.replies.predicted(ran([request()]))
    with pytest.raises(SendFailed, match=told):
        await bench.run()
    assert bench.answered == []


async def test_a_topic_that_is_hidden_from_us_is_named() -> None:
    """Without any right on a topic the producer does not even learn its leaders and waits for ever."""
    bench = Bench()
    bench.producer.acknowledges.clear()
    bench.producer._client.cluster.unauthorized_topics = {"f.actions"}
    bench.replies.predicted(ran([request()]))
    with pytest.raises(SendFailed, match=r"not allowed to write to f\.actions: `fleet topics acls`"):
        await bench.run(0.4)


async def test_a_finished_reply_step_begins_no_more_flushes() -> None:
    """What is on its way is waited for; what comes later is neither sent nor counted, as no commit would know of it."""
    bench = Bench()
    running = asyncio.ensure_future(bench.replies.run())
    bench.replies.predicted(ran([request("a")]))
    await asyncio.sleep(0.05)
    await bench.replies.finish(1.0)
    sent = len(bench.producer.sent)
    bench.replies.predicted(ran([request("b")]))
    await asyncio.wait_for(running, 1.0)
    assert sent == len(bench.producer.sent) == 1 and bench.answered == [1]


@pytest.mark.parametrize("apart", [False, True])
async def test_an_agents_answers_keep_their_order_around_a_fault(apart: bool) -> None:
    """A row at fault does not fall behind a later state of its agent, in the same batch or in the next one."""
    bench = Bench()
    first, second, fault = (
        request(seq=1, offset=1),
        request(seq=2, offset=2),
        {0: Fault("failed", "model_error", "boom")},
    )
    if apart:
        bench.replies.predicted(ran([first, request("other")], fault))
        bench.replies.predicted(ran([second]))
    else:
        bench.replies.predicted(ran([first, second], fault))
    bench.replies.refused([Refusal(request(seq=3, offset=3), "expired", "too late")])
    await bench.run()
    sent = [decode_action(sent["value"]) for sent in bench.producer.sent if sent["key"] == b"a"]
    assert [(action.seq, action.outcome) for action in sent] == [(1, "failed"), (2, "action"), (3, "expired")]


async def test_the_records_of_a_flush_are_counted_once() -> None:
    """A row at fault is one record, not a row and a refusal."""
    bench = Bench()
    bench.replies.predicted(ran([request("good"), request("bad")], {1: Fault("failed", "model_error", "boom")}))
    bench.replies.refused([Refusal(request(), "expired", "too late")])
    await bench.run()
    counted = bench.replies._metrics.snapshot().counters["fleet_stage_records_total"]
    assert counted == {("reply",): 3}

"""Transactions: nothing is committed that was not written, nothing is written that the commit does not name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tests.workers.build import TOPIC, request
from tests.workers.test_reply import FakeBatch
from topics.columns import ActionColumns
from topics.outbox import Outbox, SendFailed
from topics.tensors import TensorSpec
from topics.wire import decode_action
from workers import source, transactions
from workers.dead_letters import DeadLetters
from workers.errors import PartitionTaken, TakeOverFailed
from workers.finished import decode
from workers.lanes import Lanes
from workers.metrics import Metrics
from workers.offsets import LaneOffsets, PartitionOffsets
from workers.reply import Encoder
from workers.requests import Batch, Fault, Predicted, Refusal, Request
from workers.settings import Settings
from workers.transactions import Transactions

ACTION = TensorSpec("action", "int64", ())
SETTINGS = Settings.model_validate({"delivery": "exactly_once", "commit": {"transaction_ms": 1}})


class FakeProducer:
    """Writes down what is asked of it; fails where told to."""

    _txn_manager = None  # `topics.kafka.renew_identity` looks at it

    def __init__(self, log: list[str], **failures: KafkaError) -> None:
        self.log = log
        self.failures = failures
        self.sent: list[dict[str, Any]] = []
        self._txn_manager = None
        self.committed: list[tuple[int, str]] = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()

    def _did(self, what: str) -> None:
        self.log.append(what)
        if what in self.failures:
            raise self.failures[what]

    def create_batch(self) -> Any:
        return FakeBatch()

    async def begin_transaction(self) -> None:
        self._did("begin")

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> asyncio.Future[None]:
        self.sent += [{**fields, "topic": topic} for fields in batch.records]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._did(f"write {topic}")
        except KafkaError as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    async def send_offsets_to_transaction(self, offsets: dict[TopicPartition, OffsetAndMetadata], group: str) -> None:
        assert group == "fleet.normal"
        ((_, found),) = offsets.items()
        self.committed.append((found.offset, found.metadata))
        self._did("offsets")

    async def commit_transaction(self) -> None:
        self._did("commit")
        await self.may_commit.wait()

    async def abort_transaction(self) -> None:
        self._did("abort")


class FakeConsumer:
    """A group with at most one commit; remembers where it was sent."""

    def __init__(self, log: list[str], commit: OffsetAndMetadata | None = None) -> None:
        self.log = log
        self.commit = commit
        self.position: int | None = None
        self._coordinator = self

    async def fetch_committed_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        self.log.append("read commit")
        return {place: self.commit for place in places if self.commit}

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 7)

    def seek(self, _place: TopicPartition, offset: int) -> None:
        self.position = offset


class Bench:
    """A worker's way out, with one partition of the normal lane."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: OffsetAndMetadata | None = None, **failures: Any) -> None:
        self.log: list[str] = []
        self.producer = FakeProducer(self.log, **failures)
        self.consumer = FakeConsumer(self.log, at)
        self.owned = LaneOffsets(TOPIC)
        self.answered: list[int] = []
        encoder = Encoder(ActionColumns([TensorSpec("action", "int64", ())], "m v1", "w"), ["action"], "m v1", "w")
        self.lanes = Lanes({"high": 8, "normal": 8, "low": 8})
        self.out = Transactions(SETTINGS, self._letters, encoder, self.lanes, self._count, Metrics(max_batch=8))
        monkeypatch.setattr(source, "stop", self._stop)
        monkeypatch.setattr(self.out, "_producer", self._start)

    def _letters(self, outbox: Outbox) -> DeadLetters:
        return DeadLetters(outbox, "f.dead", 1, "w", "m v1", 1.0)

    async def _start(self, _lane: str, _partition: int) -> FakeProducer:
        self.log.append("initialise")
        assert self.owned.get(0) is None, "there are no books before the ID is initialised"
        return self.producer

    async def _stop(self, _producer: Any, _within_s: float) -> bool:
        self.log.append("stop")
        return True

    def _count(self, predicted: Sequence[Predicted], refusals: Sequence[Refusal]) -> None:
        requests = [one for ran in predicted for one in ran.batch.requests] + [one.request for one in refusals]
        for one in requests:
            one.offsets.finished(one.record.offset)
            self.answered.append(one.record.offset)

    async def take(self) -> PartitionOffsets:
        """The group gives us the partition."""
        self.running = asyncio.ensure_future(self.out.run())
        await self.out.take("normal", self.consumer, self.owned, [0])  # type: ignore[arg-type]
        books = self.owned.get(0)
        assert books is not None
        return books

    async def settle(self, turns: int = 60) -> None:
        """Let everything run that can."""
        for _ in range(turns):
            await asyncio.sleep(0.001)

    async def end(self) -> BaseException | None:
        self.running.cancel()
        (ended,) = await asyncio.gather(self.running, return_exceptions=True)
        return ended if isinstance(ended, Exception) else None


def ran(requests: list[Request], faults: dict[int, Fault] | None = None) -> Predicted:
    outputs = {"action": np.arange(len(requests), dtype=np.int64)}
    return Predicted(Batch(0, requests, 0), outputs, 100, 180, faults or {})


async def test_the_id_is_initialised_before_the_commit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the last owner could still move the offset that we go on from; what was polled before has no books."""
    bench = Bench(monkeypatch, OffsetAndMetadata(40, ""))
    await bench.take()
    assert bench.log == ["initialise", "read commit"]
    assert bench.consumer.position == 40
    assert await bench.end() is None and bench.log[-1] == "stop"


async def test_without_a_commit_reading_starts_at_the_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an explicit seek: what was polled before the books were there must come again."""
    bench = Bench(monkeypatch)
    await bench.take()
    assert bench.consumer.position == 7
    await bench.end()


async def test_a_commit_that_cannot_be_read_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name answered states; running them again would answer twice."""
    bench = Bench(monkeypatch, OffsetAndMetadata(40, "F9:later"))
    with pytest.raises(TakeOverFailed, match=r"metadata that no worker of this version wrote: 'F9:later'"):
        await bench.take()
    assert bench.owned.partitions == ()
    await bench.end()


async def test_letters_answers_and_offsets_go_in_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the offset is finished after the commit, not before."""
    bench = Bench(monkeypatch)
    books = await bench.take()
    books.received([7, 8, 9])
    bench.producer.may_commit.clear()
    requests = [request(f"a{n}", offsets=books, offset=n) for n in (7, 9)]
    bench.out.predicted(ran(requests, {1: Fault("failed", "model_error", "raised")}))
    await bench.settle()
    written = ["begin", "write f.dead", "write f.actions", "offsets", "commit"]
    assert bench.log[2:] == written and bench.answered == [] and books.incomplete == 3
    ((position, finished),) = bench.producer.committed
    assert position == 8 and decode(position, finished) == {9}
    bench.producer.may_commit.set()
    await bench.settle()
    assert sorted(bench.answered) == [7, 9] and books.incomplete == 1
    await bench.end()


async def test_a_fallback_without_room_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the broker refuses would end the transaction; what the agent wanted echoed is no part of that."""
    bench = Bench(monkeypatch)
    monkeypatch.setattr(bench.out._encoder, "_fallback", np.zeros(SETTINGS.topics.max_message_bytes, np.int8))
    books = await bench.take()
    books.received([7])
    bench.out.refused([Refusal(request(offsets=books, offset=7), "expired", "late")])
    await bench.settle()
    ((value, headers),) = [(sent["value"], sent["headers"]) for sent in bench.producer.sent]
    assert decode_action(value).action is None and headers == [("kafka_correlationId", b"c")]
    assert await bench.end() is None


@pytest.mark.parametrize("refused", ["write f.actions", "offsets", "commit"])
async def test_a_transaction_that_fails_is_never_committed_again(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    """The process ends: whether the transaction counts, only the next owner can find out."""
    bench = Bench(monkeypatch, **{refused: MessageSizeTooLargeError("too large")})
    books = await bench.take()
    books.received([7])
    bench.out.predicted(ran([request("a", offsets=books, offset=7)]))
    await bench.settle()
    assert bench.running.done()
    ended = await bench.end()
    assert isinstance(ended, ExceptionGroup) and isinstance(ended.exceptions[0], SendFailed)
    assert bench.log.count("commit") == (refused == "commit") and "abort" in bench.log


@pytest.mark.parametrize("where", ["write f.actions", "offsets", "commit", "abort"])
async def test_who_is_fenced_drops_the_partition(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Quietly: its answers count as gone, and nothing more is sent. The abort tells what another error hides."""
    failures: dict[str, Any] = {where: ProducerFenced()}
    if where == "abort":
        failures["offsets"] = KafkaError("unexpected")
    bench = Bench(monkeypatch, **failures)
    books = await bench.take()
    books.received([7, 8, 9])
    bench.lanes.normal.put([request("a", offsets=books, offset=9), request("b", offset=9)])
    bench.out.predicted(ran([request("a", offsets=books, offset=7)]))
    await bench.settle()
    left = bench.lanes.normal.take(8, 0).requests
    assert [one.agent for one in left] == [b"b"], "what is queued runs for nobody; another partition's states do"
    assert not bench.running.done() and bench.owned.partitions == () and books.revoked
    began = bench.log.count("begin")
    bench.out.predicted(ran([request("a", offsets=books, offset=8)]))
    await bench.settle()
    assert bench.log.count("begin") == began == 1
    assert sorted(bench.answered) == [7, 8], "what is dropped still has to leave the lane"
    await bench.out.release("normal")
    assert await bench.end() is None


async def test_who_is_fenced_and_stays_a_member_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would answer that partition, while the group believes that we do."""
    monkeypatch.setattr(transactions, "REJOIN_WITHIN_SESSIONS", 0.001)
    bench = Bench(monkeypatch, commit=ProducerFenced())
    books = await bench.take()
    books.received([7])
    bench.out.predicted(ran([request("a", offsets=books, offset=7)]))
    await bench.settle()
    ended = await bench.end()
    assert isinstance(ended, ExceptionGroup) and isinstance(ended.exceptions[0], PartitionTaken)


async def test_a_move_without_an_answer_is_committed_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that the last owner had answered move the position."""
    bench = Bench(monkeypatch, OffsetAndMetadata(40, "F1:AQI"))  # 41 and 42 are answered
    books = await bench.take()
    books.received([40, 41, 42])
    assert books.skip_answered([40, 41, 42]) == {41, 42}
    bench.out.refused([Refusal(request("a", offsets=books, offset=40), "expired", "late")])
    await bench.settle()
    bench.out.nudge("normal")
    await bench.settle()
    assert bench.producer.committed == [(43, "")]
    await bench.end()


async def test_an_agents_answers_keep_their_order_around_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at fault does not fall behind a later state of its agent in the same batch."""
    bench = Bench(monkeypatch)
    books = await bench.take()
    books.received([7, 8])
    requests = [request("a", seq=seq, offsets=books, offset=6 + seq) for seq in (1, 2)]
    bench.out.predicted(ran(requests, {0: Fault("failed", "model_error", "raised")}))
    await bench.settle()
    sent = [decode_action(sent["value"]) for sent in bench.producer.sent if sent["topic"] == "f.actions"]
    assert [(action.seq, action.outcome) for action in sent] == [(1, "failed"), (2, "action")]
    await bench.end()


async def test_what_an_end_leaves_unsent_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the lane, its offset is the next owner's, and no metric says that it was answered."""
    bench = Bench(monkeypatch)
    books = await bench.take()
    books.received([7])
    bench.producer.may_commit.clear()
    bench.out.predicted(ran([request("a", offsets=books, offset=7)]))
    await bench.settle()
    await bench.end()
    assert bench.answered == [7] and books.revoked

"""What the source makes of the polls of a consumer: positions, ends, what is gone, silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.errors import CorruptRecordException, OffsetOutOfRangeError
from aiokafka.structs import ConsumerRecord, TopicPartition

from tools.record import source as module
from tools.record.source import Deleted, LogShrank, Source
from topics.errors import BrokerUnavailable
from topics.settings import KafkaSettings

A, B = TopicPartition("demo.actions", 0), TopicPartition("demo.actions", 1)


def records(place: TopicPartition, *offsets: int) -> list[Any]:
    return [ConsumerRecord(*place, offset, 1000, 0, b"k", b"v", None, 1, 1, ()) for offset in offsets]


class FakeReader:
    """A consumer that gives what it is told to; `script` holds polls (with the positions after them) and errors."""

    def __init__(self, *script: Any, spans: tuple[int, int] = (0, 0)) -> None:
        self.script = list(script)
        self.spans = spans
        self.at: dict[TopicPartition, int] = {}
        self.paused: list[TopicPartition] = []
        self.stamp_ms = 1

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.at = dict.fromkeys(places, -1)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.at[place] = offset

    def pause(self, place: TopicPartition) -> None:
        self.paused.append(place)

    async def position(self, place: TopicPartition) -> int:
        return self.at[place]

    def highwater(self, place: TopicPartition) -> int:
        return 100

    def last_poll_timestamp(self, place: TopicPartition) -> int:
        return self.stamp_ms

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0, 1}

    async def getmany(self, **_: Any) -> Any:
        step = self.script.pop(0) if self.script else ({}, {})
        if isinstance(step, Exception):
            raise step
        polled, positions = step
        self.at |= positions
        return polled


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines for a person. Clients start and stop at once, and answer about offsets what their `spans` say."""

    async def nothing(*_: Any) -> None: ...

    async def span_of(reader: FakeReader, _: TopicPartition) -> tuple[int, int]:
        return reader.spans

    monkeypatch.setattr(module, "start", nothing)
    monkeypatch.setattr(module, "stop", nothing)
    monkeypatch.setattr(module, "span_of", span_of)
    return []


async def started(monkeypatch: pytest.MonkeyPatch, told: list[str], *readers: FakeReader, **begins: int) -> Source:
    """A source that gets these clients, one after the other; it begins at A and B."""
    left = list(readers)
    monkeypatch.setattr(module, "make_reader", lambda _: left.pop(0))
    source = await Source(KafkaSettings(), told.append).__aenter__()
    source.begin({place: begins[name] for place, name in ((A, "a"), (B, "b")) if name in begins})
    return source


async def test_positions_follow_what_is_read_and_what_holds_no_record(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """A transaction's marker behind the last record is passed without a record."""
    reader = FakeReader(({A: records(A, 5, 6, 8)}, {A: 10, B: 1}))
    source = await started(monkeypatch, told, reader, a=5, b=0)
    assert (await source.poll()).keys() == {A}
    assert source.positions == {A: 10, B: 1}
    assert source.without_record == 3  # 7 and 9 of A, 0 of B
    assert source.lag() == 90 + 99


async def test_nothing_behind_an_end_is_given_and_the_partition_is_fetched_no_more(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """Ends are exclusive; it is done when every partition has got there."""
    reader = FakeReader(({A: records(A, 5, 6, 7)}, {A: 8}), ({B: records(B, 0)}, {B: 1}))
    source = await started(monkeypatch, told, reader, a=5, b=0)
    source.begin({A: 5, B: 0}, {A: 7, B: 1})
    assert [record.offset for record in (await source.poll())[A]] == [5, 6]
    assert not source.done and reader.paused == [A] and source.lag() == 1
    await source.poll()
    assert source.done and source.without_record == 0


async def test_what_was_deleted_in_front_of_the_reader_is_told_and_passed(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """Retention was faster: a gap with both its ends, and reading goes on behind it."""
    reader = FakeReader(OffsetOutOfRangeError({A: 5}), ({A: records(A, 40)}, {A: 41}), spans=(40, 90))
    source = await started(monkeypatch, told, reader, a=5)
    assert await source.poll() == {}
    assert source.deleted == [Deleted("demo.actions", 0, 5, 40)]
    assert told == ["35 offsets of demo.actions partition 0 were deleted before they could be read: 5 to 39"]
    assert [record.offset for record in (await source.poll())[A]] == [40]
    assert source.without_record == 0


async def test_a_log_that_ends_in_front_of_the_reader_is_an_error(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """Somebody deleted the topic and created it anew: its offsets mean something else now."""
    reader = FakeReader(OffsetOutOfRangeError({A: 500}), spans=(0, 90))
    source = await started(monkeypatch, told, reader, a=500)
    with pytest.raises(LogShrank, match="ends at offset 90, and was read up to 500 before"):
        await source.poll()


async def test_a_poll_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    """aiokafka may have moved its own positions by then: a new client begins at ours."""
    broken = FakeReader(({A: records(A, 5)}, {A: 6}), CorruptRecordException("Invalid CRC"))
    fresh = FakeReader(({A: records(A, 6)}, {A: 7}))
    source = await started(monkeypatch, told, broken, fresh, a=5)
    await source.poll()
    broken.at[A] = 9
    await source.poll()
    assert fresh.at == {A: 6} and "reading failed" in told[0]
    assert [record.offset for record in (await source.poll())[A]] == [6]


async def test_brokers_that_fall_silent_are_told_once_and_the_client_is_replaced(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """Also while nobody can be reached; when they answer again that is told too."""
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    reader, unreachable, fresh = FakeReader(), FakeReader(), FakeReader()
    source = await started(monkeypatch, told, reader, unreachable, fresh, a=5)
    await source.poll()
    now += 6
    await source.poll()
    await source.poll()
    assert told == ["the cluster at 127.0.0.1:9092 does not answer: waiting for it"]

    async def refuse(*_: Any) -> None:
        raise BrokerUnavailable("nobody is there")

    with monkeypatch.context() as away:
        away.setattr(module, "start", refuse)
        now += 15
        await source.poll()
    assert source.lag() == 0 and await source.poll() == {}
    assert fresh.at == {A: 5}
    fresh.stamp_ms = 2
    now += 1
    await source.poll()
    assert told[1:] == ["the cluster answers again, after 22 s"]


async def test_partitions_that_a_topic_gets_meanwhile_are_read_from_their_beginning(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """Nobody should add any, as agents move; if somebody does, nothing is missed."""
    reader = FakeReader(({A: records(A, 5)}, {A: 6}), ({B: records(B, 0)}, {B: 1}))
    source = await started(monkeypatch, told, reader, a=5)
    await source.poll()
    source.meet_new_partitions(["demo.actions"])
    assert reader.at == {A: 6, B: 0} and told == ["new partitions, read from their beginning: demo.actions 1"]
    source.meet_new_partitions(["demo.actions"])
    assert (await source.poll()).keys() == {B} and len(told) == 1

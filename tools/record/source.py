"""Where the records come from: partitions, read on from given offsets, whatever the brokers do meanwhile.

Without a group: nothing is committed, and no live group notices. Only what transactions have committed is read.
Gives the records of one poll at a time; says what was deleted before it could be read; keeps nothing of a record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError
from aiokafka.structs import ConsumerRecord, TopicPartition

from tools.offsets import ends_of, span_of
from topics.errors import BrokerUnavailable, FleetError
from topics.kafka import ACLS, make_consumer, start, stop
from topics.settings import KafkaSettings

CLIENT_ID: Final = "fleet-record"
POLL_MS: Final = 200
RECORDS_PER_POLL: Final = 5000
"""About 50 ms of work: signals and the second's flush are not kept waiting."""
FETCH_WAIT_MS: Final = 100
"""What a record waits at most before the broker hands it out; nothing here is more urgent."""
SILENT_AFTER_S: Final = 5.0
"""Fetches are answered every `FETCH_WAIT_MS`; a person is told after this."""
RENEW_AFTER_S: Final = 20.0
"""A client that is not answered for so long is replaced: aiokafka's may stall for good (aiokafka#1154)."""
CLOSE_S: Final = 2.0

Polled = Mapping[TopicPartition, Sequence[ConsumerRecord]]


class LogShrank(FleetError):
    """A partition ends in front of what has been read of it: it is not the log that it was."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Offsets [begin, end) that the cluster had deleted before they could be read."""

    topic: str
    partition: int
    begin: int
    end: int

    def __str__(self) -> str:
        return (
            f"{self.end - self.begin} offsets of {self.topic} partition {self.partition} were deleted before they "
            f"could be read: {self.begin} to {self.end - 1}"
        )


def make_reader(kafka: KafkaSettings) -> AIOKafkaConsumer:
    """A consumer for `assign()`, not started; an offset that is gone is an error, not a jump that nobody sees."""
    return make_consumer(kafka, client_id=CLIENT_ID, auto_offset_reset="none", fetch_max_wait_ms=FETCH_WAIT_MS)


class Source:
    """Reads partitions on from `positions`; use it as `async with`. `tell` gets lines for a person."""

    def __init__(self, kafka: KafkaSettings, tell: Callable[[str], None]) -> None:
        self._kafka = kafka
        self._tell = tell
        self._reader: AIOKafkaConsumer | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._answered_ms = 0
        self._heard_at = 0.0
        self._silent_since: float | None = None
        self.positions: dict[TopicPartition, int] = {}
        """The next offset of each partition that is read, also past what holds no record."""
        self.deleted: list[Deleted] = []
        self.without_record = 0
        """Offsets passed that hold no record: markers of transactions, aborted ones, compaction."""

    async def __aenter__(self) -> Source:
        """Raises `BrokerUnavailable`."""
        reader = make_reader(self._kafka)
        await start(reader, self._kafka)
        self._reader = reader
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            await asyncio.shield(stop(self._reader, CLOSE_S))

    @property
    def reader(self) -> AIOKafkaConsumer:
        """The client, for questions about offsets before reading begins."""
        assert self._reader is not None
        return self._reader

    def begin(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Read these partitions from these offsets on, no further than these ends (exclusive), as far as there are."""
        self.positions = dict(positions)
        self._ends = dict(ends or {})
        self._assign()

    def meet_new_partitions(self, topics: Iterable[str]) -> None:
        """Partitions that these topics have got meanwhile are read too, from their first offset on."""
        if self._reader is None:
            return
        found = {TopicPartition(topic, n) for topic in topics for n in self._reader.partitions_for_topic(topic) or ()}
        if new := sorted(found - self.positions.keys()):
            names = ", ".join(f"{place.topic} {place.partition}" for place in new)
            self._tell(f"new partitions, read from their beginning: {names}")
            self.positions |= dict.fromkeys(new, 0)
            self._assign()

    async def end_now(self) -> None:
        """Where there is no end yet: what is there now, also in open transactions. None if nobody answers."""
        if self._reader is not None:
            with contextlib.suppress(BrokerUnavailable):
                self._ends = await ends_of(self._reader, self.positions) | self._ends

    @property
    def bounded(self) -> bool:
        """Whether every partition has an end."""
        return len(self._ends) == len(self.positions)

    @property
    def done(self) -> bool:
        """Whether every partition is read to its end."""
        return self.bounded and all(self.positions[place] >= end for place, end in self._ends.items())

    async def poll(self) -> Polled:
        """What comes within `POLL_MS`. Waits out brokers that are away.

        Raises:
            LogShrank: a topic was truncated, or deleted and created anew.
            BrokerUnavailable: we may not read a topic.
        """
        if self._reader is None:
            await self._renew()
            return {}
        try:
            polled = await self._reader.getmany(timeout_ms=POLL_MS, max_records=RECORDS_PER_POLL)
        except OffsetOutOfRangeError as error:
            await self._pass_deleted(error.args[0])
            return {}
        except TopicAuthorizationFailedError as error:
            raise BrokerUnavailable(f"no rights (any more) to read topic {error.args[0]}: {ACLS}") from None
        except KafkaError as error:  # what the failed poll had taken is lost to it, not to us: `positions` stand
            self._tell(f"reading failed ({error!r}): connecting again")
            await self._renew()
            return {}
        wanted = await self._follow(polled)
        if polled:
            self._heard()
        else:
            await self._listen()
        return wanted

    def lag(self) -> int:
        """Offsets that were there at the last fetch and are not read yet."""
        if self._reader is None:
            return 0
        ends = {place: self._reader.highwater(place) or 0 for place in self.positions}
        return sum(max(0, self._ends.get(place, end) - self.positions[place]) for place, end in ends.items())

    async def _follow(self, polled: Polled) -> Polled:
        """Cut what lies behind an end; move on."""
        assert self._reader is not None
        wanted: dict[TopicPartition, Sequence[ConsumerRecord]] = {}
        for place, position in self.positions.items():
            end = self._ends.get(place)
            if end is not None and position >= end:
                continue
            reached = await self._reader.position(place)
            records = polled.get(place, ())
            if end is not None and reached >= end:
                reached = end
                records = [record for record in records if record.offset < end]
                self._reader.pause(place)
            if records:
                wanted[place] = records
            self.without_record += reached - position - len(records)
            self.positions[place] = reached
        return wanted

    async def _pass_deleted(self, offsets: Mapping[TopicPartition, int]) -> None:
        reader = self.reader
        for place, offset in offsets.items():
            try:
                begin, end = await span_of(reader, place)
            except BrokerUnavailable:
                return  # the next fetch finds out again
            if offset > end:
                raise LogShrank(shrank(place, offset, end))
            if begin > offset:
                self.note(Deleted(place.topic, place.partition, offset, begin))
                self.positions[place] = begin
            reader.seek(place, self.positions[place])

    def note(self, gone: Deleted) -> None:
        """Keep in mind what cannot be read any more, and tell."""
        self.deleted.append(gone)
        self._tell(str(gone))

    async def _listen(self) -> None:
        """A poll that brought nothing: do the brokers answer?"""
        assert self._reader is not None
        reading = [place for place in self.positions if self.positions[place] < self._ends.get(place, 1 << 63)]
        answered_ms = min((self._reader.last_poll_timestamp(place) or 0 for place in reading), default=0)
        if answered_ms != self._answered_ms or not reading:
            self._answered_ms = answered_ms
            self._heard()
            return
        silent_s = monotonic() - self._heard_at
        if silent_s > SILENT_AFTER_S:
            self._fell_silent()
        if silent_s > RENEW_AFTER_S:
            await self._renew()

    def _heard(self) -> None:
        now = monotonic()
        if self._silent_since is not None:
            self._tell(f"the cluster answers again, after {now - self._silent_since:.0f} s")
            self._silent_since = None
        self._heard_at = now

    def _fell_silent(self) -> None:
        if self._silent_since is None:
            self._silent_since = self._heard_at
            self._tell(f"the cluster at {self._kafka.bootstrap_servers} does not answer: waiting for it")

    async def _renew(self) -> None:
        """Replace the client; try again with the next poll if nobody is there."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await asyncio.shield(stop(reader, CLOSE_S))
        reader = make_reader(self._kafka)
        try:
            await start(reader, self._kafka)
        except BrokerUnavailable:
            self._fell_silent()
            await asyncio.sleep(POLL_MS / 1000)
            return
        self._reader = reader
        self._assign()

    def _assign(self) -> None:
        reader = self.reader
        reader.assign([*self.positions])
        for place, position in self.positions.items():
            reader.seek(place, position)
            if position >= self._ends.get(place, 1 << 63):
                reader.pause(place)
        self._heard_at = monotonic()


def shrank(place: TopicPartition, offset: int, end: int) -> str:
    """Why nothing can be read on from `offset`."""
    return (
        f"{place.topic} partition {place.partition} ends at offset {end}, and was read up to {offset} before: it was "
        f"truncated, or deleted and created anew; record into another path"
    )

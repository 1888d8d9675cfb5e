"""What the commands do on the cluster: find letters, read one whole, send letters again.

Opens and closes the Kafka clients; decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from aiokafka.structs import TopicPartition

from tools.dead.filters import Filters, WrongCall
from tools.dead.ledger import LetterId
from tools.dead.read import (
    CLIENT_ID,
    DeadTopic,
    Progress,
    make_reader,
    no_progress,
    read_letters,
)
from tools.dead.redrive import Pace, Redrive, Report, due, new_run
from tools.dead.resend import Resend, Resender, Unsendable
from tools.offsets import partition_counts, span_of
from topics.kafka import make_producer, started
from topics.letters import DeadLetter
from topics.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class Found:
    """Letters without their values, in the order of their offsets, and what is known of their redrives."""

    letters: list[DeadLetter]
    sent_ms: dict[LetterId, int]
    """When a letter was last redriven, Unix ms."""
    perhaps: set[LetterId]
    """Letters that a redrive may or may not have sent before it was cut off."""
    sizes: dict[LetterId, int]
    """Bytes of the values."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a redrive is asked for."""

    filters: Filters
    limit: int | None
    again: bool
    pace: Pace


@contextlib.asynccontextmanager
async def dead_topic(settings: FleetSettings) -> AsyncIterator[DeadTopic]:
    """The fleet's dead-letter topic, nothing of it read yet. Raises `BrokerUnavailable`, `TopicMissing`."""
    topic = settings.names.dead
    async with started(make_reader(settings.kafka), settings.kafka) as consumer:
        counts = await partition_counts(consumer, [topic])
        yield DeadTopic(consumer, topic, counts[topic])


async def find(settings: FleetSettings, filters: Filters, progress: Progress = no_progress) -> Found:
    """Every letter that matches."""
    letters: list[DeadLetter] = []
    sizes: dict[LetterId, int] = {}

    def take(letter: DeadLetter) -> None:
        if filters.match(letter, settings.names):
            sizes[letter.partition, letter.offset] = len(letter.value or b"")
            letters.append(replace(letter, value=None, headers=()))

    async with dead_topic(settings) as topic:
        await topic.catch_up(take, progress)
    letters.sort(key=lambda letter: (letter.partition, letter.offset))
    return Found(letters, topic.ledger.sent(), topic.ledger.perhaps(), sizes)


async def read_one(settings: FleetSettings, partition: int, offset: int) -> DeadLetter:
    """One letter, whole. Raises `WrongCall` if there is none."""
    topic = settings.names.dead
    async with started(make_reader(settings.kafka), settings.kafka) as consumer:
        count = (await partition_counts(consumer, [topic]))[topic]
        if partition >= count:
            raise WrongCall(f"{topic} has partitions 0 to {count - 1}, found {partition}")
        begin, end = await span_of(consumer, TopicPartition(topic, partition))
        if not begin <= offset < end:
            kept = f"holds offsets {begin} to {end - 1}" if begin < end else "is empty"
            raise WrongCall(f"there is no letter {partition}:{offset}: partition {partition} of {topic} {kept}")
        async for letters in read_letters(consumer, topic, {partition: [offset]}):
            if letters:
                return letters[0]
    raise WrongCall(f"{partition}:{offset} is no letter but a note of a redrive: `fleet dead list` shows the letters")


async def redrive(
    settings: FleetSettings,
    wanted: Wanted,
    *,
    say: Callable[[str], None],
    on_sent: Callable[[Sequence[Resend]], None],
    on_reading: Progress = no_progress,
    on_sending: Progress = no_progress,
) -> tuple[Report, int]:
    """Send what matches again. Gives the report, and how many letters were left out because they had been sent."""
    kafka = settings.kafka
    async with (
        dead_topic(settings) as topic,
        started(make_reader(kafka), kafka) as reader,
        started(make_reader(kafka), kafka) as letters,
        started(make_producer(kafka, client_id=CLIENT_ID), kafka) as producer,
    ):
        matching: list[LetterId] = []

        def take(letter: DeadLetter) -> None:
            if wanted.filters.match(letter, settings.names):
                matching.append((letter.partition, letter.offset))

        counts = await partition_counts(reader, settings.names.state_topics())
        run = new_run()
        resender = Resender(settings.names, counts, settings.topics.max_message_bytes, run)
        work = Redrive(topic, reader, producer, resender, run)
        await topic.catch_up(take, on_reading)
        earlier = await work.begin()
        async with asyncio.TaskGroup() as together:
            alive = together.create_task(work.stay_alive())
            await work.claim(earlier, say)
            ledger = topic.ledger
            done = ledger.sent_by(ledger.chain(run)) if wanted.again else ledger.sent()
            offsets, left_out = due(matching, done, limit=wanted.limit)
            total = sum(map(len, offsets.values()))

            def tell(batch: Sequence[Resend]) -> None:
                on_sent(batch)
                on_sending(work.report.sent + len(batch), total)

            await work.send(read_letters(letters, topic.topic, offsets), wanted.pace, tell)
            alive.cancel()
        await work.end()
    return work.report, left_out


async def rehearse(
    settings: FleetSettings, wanted: Wanted, progress: Progress = no_progress
) -> tuple[list[Resend], list[Unsendable], int, set[LetterId]]:
    """What `redrive` would send now, without their values; what it could not; how many it would leave out; and
    which of them only the redrive itself will settle. Writes nothing."""
    found = await find(settings, wanted.filters, progress)
    sent = () if wanted.again else found.sent_ms.keys() - found.perhaps
    matching = {(letter.partition, letter.offset): letter for letter in found.letters}
    offsets, left_out = due(matching, sent, limit=wanted.limit)
    async with started(make_reader(settings.kafka), settings.kafka) as consumer:
        counts = await partition_counts(consumer, settings.names.state_topics())
        resender = Resender(settings.names, counts, settings.topics.max_message_bytes, "rehearsal")
        would: list[Resend] = []
        cannot: list[Unsendable] = []
        async for letters in read_letters(consumer, settings.names.dead, offsets):
            for one in map(resender.resend, letters):
                if isinstance(one, Resend):
                    would.append(replace(one, letter=replace(one.letter, value=None)))
                else:
                    cannot.append(replace(one, letter=replace(one.letter, value=None)))
    return would, cannot, left_out, found.perhaps

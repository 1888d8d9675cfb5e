"""What a redrive that was cut off had sent: found out by reading the ends of the lanes.

A batch is noted before it is sent, with offsets that it cannot lie before. So whatever of it arrived lies between those
and the present ends, and carries the run's and the letter's marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from tools.dead.ledger import LetterId, SentBatch
from tools.dead.read import read_through
from tools.offsets import begins_of, ends_of
from topics.letters import LETTER, RUN


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a doubtful batch. `lost`: the lanes have deleted what would have told; then nothing counts as
    unsent, and a person must look."""

    sent: tuple[LetterId, ...]
    unsent: tuple[LetterId, ...]
    lost: bool = False


async def settle(consumer: AIOKafkaConsumer, run: str, batch: SentBatch) -> Settled:
    """Look for the letters of `batch` where they would lie. `consumer` gets another assignment."""
    begins = {TopicPartition(topic, number): offset for (topic, number), offset in batch.positions.items()}
    ends = await ends_of(consumer, [*begins])
    oldest = await begins_of(consumer, [*begins])
    if any(oldest[place] > offset for place, offset in begins.items()):
        return Settled(tuple(batch.letters), (), lost=True)
    arrived: set[str] = set()
    async for records in read_through(consumer, {place: (begin, ends[place]) for place, begin in begins.items()}):
        arrived |= {letter for letter in (_letter(record, run) for record in records) if letter}
    return divide(batch, arrived)


def divide(batch: SentBatch, arrived: set[str]) -> Settled:
    """The batch's letters by whether their IDs are among those that arrived."""
    here = {letter: f"{letter[0]}:{letter[1]}" in arrived for letter in batch.letters}
    sent = tuple(letter for letter, is_here in here.items() if is_here)
    return Settled(sent, tuple(letter for letter, is_here in here.items() if not is_here))


def _letter(record: ConsumerRecord, run: str) -> str | None:
    found: Mapping[str, bytes | None] = dict(record.headers)
    if found.get(RUN) != run.encode():
        return None
    return (found.get(LETTER) or b"").decode(errors="replace")

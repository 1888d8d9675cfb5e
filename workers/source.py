"""One owned partition with `delivery = "exactly_once"`: its producer, and one transaction after the other.

Part of steps 6 and 7; `transactions` opens a source when the partition is ours and closes it when it is not. Takes
answers, gives them back once they are committed. Never sends one whose offset the commit beside it does not name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from topics.kafka import stop
from topics.names import Lane
from topics.outbox import Outbox, SendFailed
from workers.clock import now_us
from workers.dead_letters import DeadLetters
from workers.metrics import Metrics
from workers.offsets import PartitionOffsets
from workers.requests import Predicted, Refusal, Request
from workers.room import Room
from workers.settings import RELEASE_S, Settings

ABORT_WITHIN_S: Final = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One answer on its way, and what it came from."""

    request: Request
    value: bytes
    origin: Predicted | Refusal


class Source:
    """One owned partition of a lane: its producer, and the answers that wait for its next transaction."""

    def __init__(
        self,
        lane: Lane,
        books: PartitionOffsets,
        producer: AIOKafkaProducer,
        letters: DeadLetters,
        room: Room,
        report: Callable[[Sequence[Answer]], None],
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self.lane: Lane = lane
        self.books = books
        self.task: asyncio.Task[None] | None = None
        self._group = settings.names.group(lane)
        self._producer = producer
        self._outbox = Outbox(producer)
        self._letters = letters
        self._room = room
        self._report = report
        self._interval_s = settings.commit.transaction_ms / 1000
        self._within_s = settings.reply.timeout_s
        self._metrics = metrics
        self.waiting: list[Answer] = []
        self.wake = asyncio.Event()

    def put(self, answer: Answer) -> None:
        """Goes with the next transaction that can name its offset."""
        self.waiting.append(answer)
        self.wake.set()

    async def run(self) -> None:
        """One transaction after the other until cancelled.

        Raises:
            ProducerFenced: another worker has the partition; nothing of the transaction counts.
            SendFailed: anything else. Whether the transaction counts is unknown: only a new owner can find out.
        """
        clock = asyncio.get_running_loop().time
        while True:
            await self.wake.wait()
            self.wake.clear()
            began_s = clock()
            await self._flush()
            await asyncio.sleep(began_s + self._interval_s - clock())

    async def _flush(self) -> None:
        """One transaction with all that can go."""
        answers = {answer.request.record.offset: answer for answer in self.waiting}
        covered = self.books.covering(answers.keys())
        if covered is None:
            return
        found, offsets = covered
        going = [answers[offset] for offset in sorted(offsets)]  # an agent's in the order of its states
        started_us = now_us()
        await self._transact(going, found)
        self.books.committed(found)
        gone = set(offsets)
        self.waiting = [answer for answer in self.waiting if answer.request.record.offset not in gone]
        self._report(going)
        seconds = (now_us() - started_us) / 1e6
        self._metrics.committed(self.lane, seconds)
        self._metrics.stage("reply", seconds, len(going))

    async def _transact(self, answers: Sequence[Answer], found: tuple[int, str]) -> None:
        place = TopicPartition(self.books.topic, self.books.partition)
        try:
            async with asyncio.timeout(self._within_s):
                await self._producer.begin_transaction()
                await self._send(answers)
                await self._producer.send_offsets_to_transaction({place: OffsetAndMetadata(*found)}, self._group)
                await self._producer.commit_transaction()
        except TimeoutError as error:
            self._metrics.commit_failed(self.lane)
            raise SendFailed(f"a transaction of {place} took over {self._within_s:g} s") from error
        except (KafkaError, SendFailed) as error:
            if _says_fenced(error) or await self._is_fenced():
                raise ProducerFenced from error
            self._metrics.commit_failed(self.lane)
            raise SendFailed(f"a transaction of {place} failed: {error!r}") from error

    async def _send(self, answers: Sequence[Answer]) -> None:
        """All of it is acknowledged before the commit: aiokafka would commit although a batch was refused."""
        refusals = [answer.origin for answer in answers if isinstance(answer.origin, Refusal)]
        await self._letters.write([self._room.for_letter(refusal) for refusal in refusals])
        for answer in answers:
            request = answer.request
            key, headers = request.agent, request.headers
            self._outbox.add(request.reply_topic, request.reply_partition, key, answer.value, headers)
        if self._outbox:
            await self._outbox.flush(self._within_s)

    async def _is_fenced(self) -> bool:
        """Abort; the coordinator says whether another producer has our transactional ID."""
        try:
            async with asyncio.timeout(ABORT_WITHIN_S):
                await self._producer.abort_transaction()
        except ProducerFenced:
            return True
        except (KafkaError, TimeoutError, AssertionError):  # aiokafka asserts its states
            pass
        return False

    def drop(self) -> None:
        """What waits is not ours to answer any more: its next owner does that."""
        self.books.revoke()
        dropped, self.waiting = self.waiting, []
        self._report(dropped)

    async def close(self) -> None:
        """End the task and the producer, in bounded time; an open transaction is left to the next owner."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        self.drop()
        await stop(self._producer, RELEASE_S)

    def __repr__(self) -> str:
        return f"<Source {self.books!r} {len(self.waiting)} waiting>"


def _says_fenced(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ProducerFenced | InvalidProducerEpoch):
            return True
        error = error.__cause__
    return False

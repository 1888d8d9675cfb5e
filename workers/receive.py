"""Step 1, receive: one consumer per lane takes records as long as the lane has room, and keeps track of what is owned.

The loop decides nothing: it asks for at most `room` records and hands on what came. A lane without room asks for a
partition that does not exist, which keeps the membership alive and leaves fetched records where they are (`pause` would
throw them away). `getmany` is never cancelled: that would switch off the poll-interval check for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import (
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import TopicPartition

from topics.errors import FleetError
from topics.kafka import ACLS, hidden_topics, read_commits
from topics.names import Lane
from workers.admit import Record
from workers.errors import ReceiveFailed
from workers.lanes import LaneQueue
from workers.logs import get_logger
from workers.metrics import Metrics
from workers.offsets import LaneOffsets

log = get_logger(__name__)

NOTHING: Final = TopicPartition("", -1)
"""Asked for, it yields nothing: `getmany()` without arguments would mean everything."""
POLL_MS: Final = 200
"""How soon the loop notices that it should stop; records end the wait at once."""
BACK_OFF_S: Final = 0.5
"""After a failed poll; the broker is restarting or moving leaders then."""

RESUME_WITHIN_S: Final = 2.0
"""A rebalance waits for this; it is one request to the coordinator that has just answered another."""

OnPolled = Callable[[Lane, dict[TopicPartition, list[Record]]], None]
OnRevoked = Callable[[Lane], Awaitable[None]]


class Ownership(Protocol):
    """What exactly-once adds to an assignment."""

    async def take(self, lane: Lane, consumer: AIOKafkaConsumer, offsets: LaneOffsets, numbers: Iterable[int]) -> None:
        """Make partitions `numbers` ours alone, then give them their books."""

    async def release(self, lane: Lane) -> None:
        """They are taken away."""


class Receive(ConsumerRebalanceListener):  # type: ignore[misc]
    """The intake of one lane."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        queue: LaneQueue,
        offsets: LaneOffsets,
        max_poll: int,
        on_polled: OnPolled,
        on_revoked: OnRevoked,
        progress: asyncio.Event,
        metrics: Metrics,
        ownership: Ownership | None = None,
    ) -> None:
        self.lane: Lane = queue.lane
        self.joined = asyncio.Event()
        self._metrics = metrics
        self._ownership = ownership
        self._failed: FleetError | None = None
        self._resumed: asyncio.Future[None] | None = None
        self._consumer = consumer
        self._queue = queue
        self._offsets = offsets
        self._max_poll = max_poll
        self._on_polled = on_polled
        self._on_revoked = on_revoked
        self._progress = progress

    async def run(self, stopping: asyncio.Event) -> None:
        """Poll until `stopping`. Raises `ReceiveFailed` where asking again would not help."""
        while not stopping.is_set():
            try:
                await self._poll()
            except ConsumerStoppedError:
                return
            except TopicAuthorizationFailedError as error:
                raise ReceiveFailed(f"not allowed to read {', '.join(map(str, error.args))}: {ACLS}") from error
            except GroupAuthorizationFailedError as error:
                raise ReceiveFailed(f"not allowed to read as group {', '.join(error.args)}: {ACLS}") from error
            except KafkaError as error:
                log.warning("poll_failed", lane=self.lane, error=repr(error))
                await asyncio.sleep(BACK_OFF_S)

    async def _poll(self) -> None:
        if self._resumed is not None and not self._resumed.done():  # records may come before the listener has ended
            await asyncio.wait([self._resumed])
        if self._failed is not None:
            raise self._failed
        room = self._queue.room
        if room <= 0:
            await self._consumer.getmany(NOTHING, timeout_ms=0)
            await self._wait_for_room()
            return
        polled = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=min(room, self._max_poll))
        if polled:
            self._on_polled(self.lane, polled)
            await asyncio.sleep(0)  # a backlog makes getmany return without waiting: let the other lanes have a turn
        elif self._offsets.topic in hidden_topics(self._consumer):  # without a leader it fetches nothing, in silence
            raise TopicAuthorizationFailedError(self._offsets.topic)

    async def _wait_for_room(self) -> None:
        self._progress.clear()
        try:
            async with asyncio.timeout(POLL_MS / 1000):
                await self._progress.wait()
        except TimeoutError:
            pass

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """aiokafka waits for this before it rejoins; it swallows what is raised here, so nothing is."""
        try:
            if self._offsets.partitions:
                await self._hand_over()
        finally:
            if self._ownership is not None:
                await self._ownership.release(self.lane)

    async def _hand_over(self) -> None:
        try:
            await self._on_revoked(self.lane)
        except Exception as error:  # the assignment is lost either way: what was not committed is read again
            log.error("revoke_failed", lane=self.lane, error=repr(error))
        finally:
            self._offsets.revoke()
            self.joined.clear()
            self._metrics.rebalanced(self.lane, "revoked")

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """A new epoch begins, with empty books and an empty lane."""
        self._queue.hand_back()  # after a commit that the group refused, nobody announced that the last one had ended
        self._metrics.rebalanced(self.lane, "assigned")
        partitions = list(assigned)
        self._resumed = asyncio.ensure_future(self._take(partitions))
        try:
            await self._resumed
        except FleetError as error:  # aiokafka would swallow it
            self._failed = error
            return
        except Exception as error:  # a fault of ours; running on would mean books of which half is missing
            text = f"could not take over partitions of {self._offsets.topic}, a fault of ours: {error!r}"
            self._failed = ReceiveFailed(f"{text}; start the worker again")
            self._failed.__cause__ = error
            return
        self.joined.set()
        log.info("assigned", lane=self.lane, partitions=list(self._offsets.partitions), epoch=self._offsets.epoch)

    async def _take(self, partitions: list[TopicPartition]) -> None:
        numbers = [partition.partition for partition in partitions]
        if self._ownership is not None:
            await self._ownership.take(self.lane, self._consumer, self._offsets, numbers)
        else:
            self._offsets.assign(numbers)
            await self._resume(partitions)

    async def _resume(self, partitions: list[TopicPartition]) -> None:
        """Learn what the last owners answered behind their commits. Without it those states run twice, no more."""
        try:
            async with asyncio.timeout(RESUME_WITHIN_S):
                commits = await read_commits(self._consumer, partitions)
        except (KafkaError, TimeoutError) as error:
            log.warning("finished_map_unknown", lane=self.lane, error=repr(error))
            return
        for partition, commit in commits.items():
            if offsets := self._offsets.get(partition.partition):
                offsets.resume(commit.offset, commit.metadata or "")

    def __repr__(self) -> str:
        return f"<Receive {self._queue!r} {self._offsets!r}>"

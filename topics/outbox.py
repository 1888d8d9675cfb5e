"""Records on their way out: one record batch per partition and flush, acknowledged together.

Used by the worker's replies and dead letters and by the agents' client. aiokafka's `send` costs several µs a record;
a batch filled here costs a third of that, and idempotence and acknowledgements work as usual.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)
from aiokafka.record import MemoryRecords

from topics.errors import FleetError
from topics.headers import Echoed
from topics.kafka import ACLS, hidden_topics, renew_identity

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


class SendFailed(FleetError):
    """The broker did not acknowledge records: refused, or not within the bound."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """A record that its topic does not take, although it was alone in its batch of `size_bytes`."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    size_bytes: int


class RecordsTooLarge(SendFailed):
    """All other records were acknowledged; these are larger than their topics take."""

    def __init__(self, records: Sequence[Oversized]) -> None:
        first = max(records, key=lambda record: record.size_bytes)
        more = f" (and {len(records) - 1} more)" if len(records) > 1 else ""
        super().__init__(
            f"a record of {first.size_bytes} bytes{more} is larger than topic {first.topic} takes: raise its "
            "max.message.bytes (`fleet topics plan` shows what it should be)"
        )
        self.records = tuple(records)


class Outbox:
    """Fill with `add`, then `flush`. Holds what was added since the last flush and no more."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._batches: dict[tuple[str, int], list[Any]] = {}
        self._now_ms = 0

    def __len__(self) -> int:
        """Partitions that have something to send."""
        return len(self._batches)

    def add(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Echoed) -> None:
        """Append one record to its partition's batch."""
        batches = self._batches.get((topic, partition))
        if batches is None:
            self._now_ms = time.time_ns() // 1_000_000
            batches = self._batches[topic, partition] = [self._producer.create_batch()]
        added = batches[-1].append(timestamp=self._now_ms, key=key, value=value, headers=headers)
        if added is None:  # full: the first record always fits into a new one
            batches.append(self._producer.create_batch())
            batches[-1].append(timestamp=self._now_ms, key=key, value=value, headers=headers)

    async def flush(self, within_s: float) -> None:
        """Send everything added and wait until the broker acknowledged all of it.

        Raises:
            RecordsTooLarge: some records are larger than their topics take; all others are acknowledged, in order.
            SendFailed: the broker refused or did not answer within `within_s`; some records may have arrived then.
        """
        batches, self._batches = self._batches, {}
        try:
            async with asyncio.timeout(within_s):
                oversized = await self._send(batches)
        except TimeoutError as error:
            raise SendFailed(self._why_silent({topic for topic, _ in batches}, within_s)) from error
        except TopicAuthorizationFailedError as error:
            raise SendFailed(f"not allowed to write to {', '.join(map(str, error.args))}: {ACLS}") from error
        except KafkaError as error:
            raise SendFailed(
                f"the broker refused records: {type(error).__name__}: {error}; its log says why"
            ) from error
        if oversized:
            raise RecordsTooLarge(oversized)

    def _why_silent(self, topics: set[str], within_s: float) -> str:
        if hidden := hidden_topics(self._producer) & topics:  # the producer then looks for their leaders for ever
            return f"not allowed to write to {', '.join(sorted(hidden))}: {ACLS}"
        return (
            f"no acknowledgement for records to {', '.join(sorted(topics))} within {within_s:g} s: look at the brokers"
        )

    async def _send(self, batches: Mapping[Place, Sequence[Any]]) -> list[Oversized]:
        """All partitions at once, a partition's further batches after its first; gives what is too large."""
        oversized = []
        for at in range(max(map(len, batches.values()), default=0)):
            refused = await self._round({place: ours[at] for place, ours in batches.items() if at < len(ours)})
            for place, batch in refused.items():
                oversized += await self._halve(place, batch)
        return oversized

    async def _round(self, batches: Mapping[Place, Any]) -> dict[Place, Any]:
        """One batch per partition; gives those that are larger than their topic takes, once all have ended."""
        acknowledged = [
            await self._producer.send_batch(batch, topic, partition=partition)
            for (topic, partition), batch in batches.items()
        ]
        refused = {}
        for (place, batch), ended in zip(
            batches.items(), await asyncio.gather(*acknowledged, return_exceptions=True), strict=True
        ):
            if isinstance(ended, MessageSizeTooLargeError | RecordListTooLargeError):
                refused[place] = batch
            elif isinstance(ended, BaseException):
                raise ended
        if refused:
            renew_identity(self._producer)
        return refused

    async def _halve(self, place: Place, batch: Any) -> list[Oversized]:
        """Send a refused batch in halves until the records that are too large are alone. The limit is one for
        batches: what is refused together may well fit one by one."""
        records = list(MemoryRecords(bytes(batch._build())).next_batch())
        if len(records) == 1:
            (record,) = records
            return [Oversized(place[0], record.key, record.value, tuple(record.headers), batch.size())]
        oversized, middle = [], len(records) // 2
        for half in (records[:middle], records[middle:]):
            for again in (await self._round({place: self._batch(half)})).values():
                oversized += await self._halve(place, again)
        return oversized

    def _batch(self, records: Sequence[Any]) -> Any:
        batch = self._producer.create_batch()
        for record in records:
            batch.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers))
        return batch

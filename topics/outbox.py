"""Records on their way out: one record batch per partition and flush, acknowledged together.

Used by the worker's replies and dead letters and by the agents' client. aiokafka's `send` costs several µs a record;
a batch filled here costs a third of that, and idempotence and acknowledgements work as usual.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from topics.errors import FleetError
from topics.headers import Echoed


class SendFailed(FleetError):
    """The broker did not acknowledge records: refused, or not within the bound."""


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

        Raises `SendFailed` when it refused or did not answer within `within_s`; some records may have arrived then.
        """
        batches, self._batches = self._batches, {}
        try:
            async with asyncio.timeout(within_s):
                await self._send(batches)
        except TimeoutError as error:
            names = ", ".join(sorted({topic for topic, _ in batches}))
            raise SendFailed(f"no acknowledgement for records to {names} within {within_s:g} s") from error
        except KafkaError as error:
            raise SendFailed(f"the broker refused records: {type(error).__name__}: {error}") from error

    async def _send(self, batches: dict[tuple[str, int], list[Any]]) -> None:
        """All partitions at once; a partition's further batches queue behind its first."""
        acknowledged = []
        for at in range(max(map(len, batches.values()), default=0)):
            for (topic, partition), ours in batches.items():
                if at < len(ours):
                    acknowledged.append(await self._producer.send_batch(ours[at], topic, partition=partition))
        await asyncio.gather(*acknowledged)

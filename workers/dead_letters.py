"""Dead letters: records that could not be served, kept untouched with the reason beside them.

Key, value and headers are the state's own; what we know about the failure goes into `fleet_dead-*` headers. A state
that was redriven brings the count and the history of its earlier failures, which its next letter carries on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from topics.letters import ATTEMPTS, PREFIX, earlier, own
from topics.outbox import Outbox
from topics.partitions import Partitioner
from workers.requests import Refusal

MAX_REASON_BYTES = 1024


class DeadLetters:
    """Writes refusals that carry a dead-letter label to the fleet's dead-letter topic."""

    def __init__(self, outbox: Outbox, topic: str, partitions: int, worker: str, model: str, within_s: float) -> None:
        self._outbox = outbox
        self._topic = topic
        self._partitioner = Partitioner(partitions)
        self._worker = worker.encode()
        self._model = model.encode()
        self._within_s = within_s

    async def write(self, refusals: Sequence[Refusal]) -> None:
        """Write a letter for each refusal that has a label, and wait for the acknowledgement.

        Raises `SendFailed` when the broker does not take them; their offsets must then not be committed.
        """
        for refusal in refusals:
            if refusal.dead is not None:
                record = refusal.request.record
                partition = self._partitioner(record.key or b"")
                self._outbox.add(self._topic, partition, record.key, record.value, self._headers(refusal))
        if self._outbox:
            await self._outbox.flush(self._within_s)

    def _headers(self, refusal: Refusal) -> list[tuple[str, bytes]]:
        record = refusal.request.record
        found = {
            "reason": refusal.dead or "",
            "message": refusal.reason,
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "time_us": str(time.time_ns() // 1000),
        }
        ours = [(PREFIX + name, text.encode()[:MAX_REASON_BYTES]) for name, text in found.items()]
        attempts, kept = earlier(record.headers)
        return [
            *own(record.headers),
            *ours,
            (PREFIX + "worker", self._worker),
            (PREFIX + "model", self._model),
            (ATTEMPTS, b"%d" % (attempts + 1)),
            *kept,
        ]

"""Dead letters: records that could not be served, kept untouched with the reason beside them.

Key, value and headers are the state's own; what we know about the failure goes into `fleet_dead-*` headers. A state
that was redriven brings the count and the history of its earlier failures, which its next letter carries on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from topics.letters import ATTEMPTS, KEPT, PREFIX, earlier, own
from topics.outbox import Outbox, Oversized, RecordsTooLarge
from topics.partitions import Partitioner
from workers.logs import get_logger
from workers.requests import Refusal

log = get_logger(__name__)

MAX_REASON_BYTES = 1024
MAX_KEY_BYTES = 1024
"""Of a letter whose state is left out, so that it fits whatever the state was."""


class DeadLetters:
    """Writes refusals that carry a dead-letter label to the fleet's dead-letter topic; a shadow has none."""

    def __init__(
        self, outbox: Outbox, topic: str | None, partitions: int, worker: str, model: str, within_s: float
    ) -> None:
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
        if self._topic is None:
            return
        for refusal in refusals:
            if refusal.dead is not None:
                record = refusal.request.record
                partition = self._partitioner(record.key or b"")
                self._outbox.add(self._topic, partition, record.key, record.value, self._headers(refusal))
        if not self._outbox:
            return
        try:
            await self._outbox.flush(self._within_s)
        except RecordsTooLarge as error:
            await self._write_without_states(error.records)

    async def _write_without_states(self, letters: Sequence[Oversized]) -> None:
        """A letter larger than its topic takes says all it knows but has neither value nor headers of the state."""
        for letter in letters:
            log.warning("dead_letter_cut", topic=letter.topic, size_bytes=letter.size_bytes)
            key = (letter.key or b"")[:MAX_KEY_BYTES]
            self._outbox.add(letter.topic, self._partitioner(key), key, None, _without_state(letter))
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


def _without_state(letter: Oversized) -> list[tuple[str, bytes]]:
    ours = {name: value for name, value in letter.headers if name.startswith(PREFIX) and name not in KEPT}
    note = f"; left out: the state, as this letter of {letter.size_bytes} bytes is larger than its topic takes"
    ours[PREFIX + "message"] = ours[PREFIX + "message"][: MAX_REASON_BYTES - len(note)] + note.encode()
    return list(ours.items())

"""What of a poll is written: the filters, then the redaction function. Called per poll; keeps counts, no records."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.structs import ConsumerRecord, TopicPartition

from tools.record.redact import Redact
from tools.record.source import Polled
from tools.recording.recorded import Recorded
from tools.recording.selection import Selection


class Keep:
    """Callable: polled records → those to write, by partition. Only agents are looked at: topics and times are chosen
    by what is read."""

    def __init__(self, selection: Selection, redact: Redact | None = None) -> None:
        self._filter = selection.filter() if selection.by_key else None
        self._redact = redact
        self.left_out = 0
        """Records that the filters did not want."""
        self.redacted_out = 0
        """Records that the redaction function gave None for."""

    def __call__(self, polled: Polled) -> dict[TopicPartition, list[Recorded]]:
        """No list is empty. Raises `RedactionError`; then nothing of the poll is written."""
        kept = {place: self._kept(records) for place, records in polled.items()}
        return {place: records for place, records in kept.items() if records}

    def _kept(self, found: Sequence[ConsumerRecord]) -> list[Recorded]:
        records = [
            Recorded(
                one.topic, one.partition, one.offset, one.timestamp, one.timestamp_type, one.key, one.value, one.headers
            )
            for one in found
        ]
        if self._filter is not None:
            records = self._filter(records)
            self.left_out += len(found) - len(records)
        if self._redact is not None:
            given = [one for one in map(self._redact, records) if one is not None]
            self.redacted_out += len(records) - len(given)
            return given
        return records

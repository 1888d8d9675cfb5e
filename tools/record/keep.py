"""What of a poll is written: filters first, then the redaction function. Called per poll; keeps counts, no records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aiokafka.structs import ConsumerRecord

from tools.record.redact import Redact
from tools.record.source import Polled
from tools.recording.recorded import Recorded
from tools.recording.selection import Selection

MAX_REMEMBERED_KEYS: Final = 100_000
"""Globs and hashes cost a µs or two: an agent is judged once. Below 15 MB whatever comes."""


class Keep:
    """Callable: polled records → those to write, in their order."""

    def __init__(self, selection: Selection, redact: Redact | None = None) -> None:
        self._by_key = Remembered(selection.takes_key) if selection.agents or selection.sample < 1 else None
        self._since_ms = -(1 << 63) if selection.since_us is None else -(-selection.since_us // 1000)
        self._until_ms = 1 << 63 if selection.until_us is None else -(-selection.until_us // 1000)
        self._filters = self._by_key is not None or (selection.since_us, selection.until_us) != (None, None)
        self._redact = redact
        self.left_out = 0
        """Records that the filters did not want."""
        self.redacted_out = 0
        """Records that the redaction function gave None for."""

    def __call__(self, polled: Polled) -> list[Recorded]:
        """Raises `RedactionError`; then none of the poll has been written."""
        kept: list[Recorded] = []
        for records in polled.values():
            wanted = self._filtered(records) if self._filters else records
            kept += [
                Recorded(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp,
                    record.timestamp_type,
                    record.key,
                    record.value,
                    record.headers,
                )
                for record in wanted
            ]
        return kept if self._redact is None else self._redacted(kept, self._redact)

    def _filtered(self, records: Sequence[ConsumerRecord]) -> list[ConsumerRecord]:
        since_ms, until_ms, by_key = self._since_ms, self._until_ms, self._by_key
        wanted = [
            record
            for record in records
            if since_ms <= record.timestamp < until_ms and (by_key is None or by_key(record.key))
        ]
        self.left_out += len(records) - len(wanted)
        return wanted

    def _redacted(self, kept: Sequence[Recorded], redact: Redact) -> list[Recorded]:
        redacted = [given for given in map(redact, kept) if given is not None]
        self.redacted_out += len(kept) - len(redacted)
        return redacted


class Remembered:
    """A judgement per key, made once; when too many are held, all are forgotten."""

    def __init__(self, judge: Callable[[bytes | None], bool]) -> None:
        self._judge = judge
        self._known: dict[bytes | None, bool] = {}

    def __call__(self, key: bytes | None) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_REMEMBERED_KEYS:
                self._known.clear()
            known = self._known[key] = self._judge(key)
        return known

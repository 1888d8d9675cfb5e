"""What fits into a record of the fleet's topics, decided before it is sent.

For transactions: a batch that the broker refuses as too large ends its transaction, so none may be made. A state's
own key and headers may be as long as a record; echoed beside an answer they may be too long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from topics.errors import SettingsError
from topics.headers import Echoed
from topics.kafka import make_admin, started
from topics.provision import read_cluster
from workers.reply import REPLY_TOO_LARGE
from workers.requests import Refusal, Request
from workers.settings import Settings

RECORD_BYTES: Final = 128
"""A batch's header has 61 bytes, a record's own lengths at most 40."""
HEADER_BYTES: Final = 10
"""The lengths of one header."""
LETTER_BYTES: Final = 8192
"""What a letter says beside its state: ten short headers, a reason of 1 KiB, 4 KiB of earlier failures."""
KEPT_BYTES: Final = 1024
"""Of a key that is kept where something must go."""


async def require_room(settings: Settings) -> None:
    """Every topic that answers and letters go to takes records as large as the settings say: one that takes less would
    end a transaction, its worker, and every worker after it.

    Raises:
        SettingsError: one takes less.
        ProvisionError: their configurations may not be read.
    """
    wanted, topics = settings.topics.max_message_bytes, [*settings.names.written, *settings.reply.topics]
    admin = make_admin(settings.kafka, client_id=f"{settings.worker}.room")
    async with started(admin, settings.kafka):
        found = await read_cluster(admin, topics)
    for name, topic in found.items():
        if (takes := int(topic.configs.get("max.message.bytes") or wanted)) < wanted:
            text = f"topic {name} takes records up to max.message.bytes={takes}, delivery=exactly_once needs {wanted}"
            raise SettingsError(f"{text}: raise it (`fleet topics apply`), or lower topics.max_record_bytes")


class Room:
    """The room of one record: `max_bytes` is the topics' `max.message.bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def has(self, request: Request, value: bytes) -> bool:
        """Whether an answer with this value fits, with all that it echoes."""
        return _size(request.agent, value, request.headers) <= self._max_bytes

    def shorten(self, request: Request) -> None:
        """Its answer names the state's origin in place of the agent and of what it wanted echoed."""
        request.agent, request.headers, request.correlated = b"", [], False

    def refuse(self, request: Request) -> Refusal:
        """In place of an action that does not fit."""
        reason = f"the answer with what it echoes is larger than {self._max_bytes} bytes, which its topic takes"
        return Refusal(request, "failed", reason, dead=REPLY_TOO_LARGE)

    def for_letter(self, refusal: Refusal) -> Refusal:
        """With the state left out where a letter has no room for it."""
        record = refusal.request.record
        size = _size(record.key, record.value, list(record.headers)) + LETTER_BYTES
        if refusal.dead is None or size <= self._max_bytes:
            return refusal
        cut = replace(record, key=(record.key or b"")[:KEPT_BYTES], value=None, headers=())
        reason = f"{refusal.reason}; left out: the state, which has no room in a letter"
        return replace(refusal, request=replace(refusal.request, record=cut), reason=reason)


def _size(key: bytes | None, value: bytes | None, headers: Echoed) -> int:
    echoed = sum(len(name) + len(text or b"") + HEADER_BYTES for name, text in headers)
    return RECORD_BYTES + len(key or b"") + len(value or b"") + echoed

"""Errors of the wire and the connection, each answering one question: is the record bad, or the process?

A `RecordError` concerns one record: it becomes a `rejected` answer and a dead letter, and its neighbours go on.
A `FleetError` concerns the process or the person in front of it: one line, then a non-zero exit.
"""

from __future__ import annotations

from typing import ClassVar

MAX_LINE_CHARACTERS = 2000


class FleetError(Exception):
    """One line for a person: what was found, what was expected, what to do."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        """One line, whatever it quotes: a name from the environment or a broker's text may hold line ends."""
        text = super().__str__()
        if len(text) > MAX_LINE_CHARACTERS:
            text = f"{text[: MAX_LINE_CHARACTERS - 1]}…"
        return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


class SettingsError(FleetError):
    """A setting is unknown, has the wrong type, or contradicts another one."""

    exit_code: ClassVar[int] = 2


class BrokerUnavailable(FleetError):
    """No broker answers, or it refuses us (TLS, SASL, authorisation)."""

    exit_code: ClassVar[int] = 3


class TopicMissing(FleetError):
    """A topic of the fleet is not on the cluster."""

    exit_code: ClassVar[int] = 3


class RecordError(Exception):
    """One record cannot be served; `reason` is its label in metrics and dead letters."""

    reason: ClassVar[str] = "bad_record"


class DecodeError(RecordError):
    """The bytes are not a record of a wire version we read, or they claim more than the limits allow."""

    reason: ClassVar[str] = "undecodable"


class InputError(RecordError):
    """The observation does not fit the model's inputs (dtype, shape, name, not finite)."""

    reason: ClassVar[str] = "wrong_input"


class ReplyTopicError(RecordError):
    """The record names a reply topic or partition that the fleet may not write to."""

    reason: ClassVar[str] = "reply_topic_not_allowed"


class TooLarge(RecordError):
    """The record is larger than `topics.max_record_bytes`."""

    reason: ClassVar[str] = "too_large"

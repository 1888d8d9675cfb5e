"""W3C trace context in headers: the caller's span, where the caller traces with OpenTelemetry. Imports none of it.

https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from topics.headers import TRACEPARENT

TraceHeaders = tuple[tuple[str, bytes], ...]
NONE: Final[TraceHeaders] = ()
LENGTH: Final = 55
SAMPLED: Final = 1


class Parent(NamedTuple):
    """What a traceparent says."""

    trace_id: int
    span_id: int
    flags: int


def current() -> TraceHeaders:
    """The header of the span that the caller is in; none without a span, or where nobody has imported OpenTelemetry."""
    otel = sys.modules.get("opentelemetry.trace")
    if otel is None:
        return NONE
    span = otel.get_current_span().get_span_context()
    return ((TRACEPARENT, traceparent(span.trace_id, span.span_id, int(span.trace_flags))),) if span.is_valid else NONE


def traceparent(trace_id: int, span_id: int, flags: int) -> bytes:
    """Version 00 of the header."""
    return b"00-%032x-%016x-%02x" % (trace_id, span_id, flags)


def parse(value: bytes) -> Parent | None:
    """None where it is not a traceparent: a broken one is as good as none."""
    parts = value.split(b"-")
    if (
        len(value) < LENGTH
        or len(parts) < 4
        or [len(part) for part in parts[:4]] != [2, 32, 16, 2]
        or parts[0] == b"ff"
    ):
        return None
    try:
        found = Parent(*(int(part, 16) for part in parts[1:4]))
    except ValueError:
        return None
    return found if found.trace_id and found.span_id else None

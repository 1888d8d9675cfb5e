"""Headers: the names and bytes of Spring's ReplyingKafkaTemplate."""

from __future__ import annotations

import pytest

from topics.errors import DecodeError
from topics.headers import read


def test_the_correlation_id_is_echoed_untouched() -> None:
    """Opaque bytes, whatever they are."""
    routing = read((("kafka_correlationId", b"\x00\xff"),))
    assert routing.correlated and routing.echoed == [("kafka_correlationId", b"\x00\xff")]


def test_routing_and_trace_are_read_and_unknown_headers_ignored() -> None:
    """A Java client's headers, as its template writes them."""
    routing = read(
        (
            ("kafka_replyTopic", b"others"),
            ("kafka_replyPartition", b"\x00\x00\x01\x02"),
            ("traceparent", b"00-a-b-01"),
            ("content-type", b"application/msgpack"),
            ("b3", b"x"),
        )
    )
    assert (routing.reply_topic, routing.reply_partition, routing.correlated) == ("others", 258, False)
    assert routing.echoed == [("traceparent", b"00-a-b-01")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka_replyPartition", b"\x01"),
        ("kafka_replyPartition", b"\xff\xff\xff\xff"),
        ("kafka_replyTopic", b"\xff"),
        ("content-type", b"application/json"),
    ],
)
def test_malformed_headers_are_named(name: str, value: bytes) -> None:
    """The line names the header."""
    with pytest.raises(DecodeError, match=name):
        read(((name, value),))

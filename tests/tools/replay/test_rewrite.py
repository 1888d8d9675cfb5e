"""What changes around a state that is sent again: correlation ID, reply headers, the key of a copy; nothing else."""

from __future__ import annotations

from tools.replay.rewrite import copied_key, headers_again


def test_headers_keep_their_order_and_lose_the_reply_address() -> None:
    """A fresh correlation ID stands where the old one stood."""
    headers = (("a", b"1"), ("kafka_replyTopic", b"t"), ("kafka_correlationId", b"old"), ("b", None), ("a", b"2"))
    assert headers_again(headers, b"new") == [("a", b"1"), ("kafka_correlationId", b"new"), ("b", None), ("a", b"2")]
    assert headers_again((("kafka_correlationId", b"old"),), b"new") == [("kafka_correlationId", b"new")]
    assert headers_again((("kafka_replyPartition", b"\0\0\0\1"),), b"new") == [("kafka_correlationId", b"new")]


def test_a_copy_of_an_agent_has_an_id_of_its_own() -> None:
    """The first is the agent itself; a record without an agent stays without."""
    assert [copied_key(b"robot", copy) for copy in range(3)] == [b"robot", b"robot~1", b"robot~2"]
    assert copied_key(None, 2) is None

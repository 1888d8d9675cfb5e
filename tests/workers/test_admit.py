"""Admit: a bad record is refused by name and its neighbours never notice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from tests.workers.build import TOPIC, record
from topics.tensors import TensorSpec, to_ext
from topics.wire import Limits, decode_state
from workers.admit import SENT_MAX_AGE_US, Admission, Admitted, PollTime, ReplyTopics
from workers.offsets import PartitionOffsets
from workers.requests import NEVER

NOW = PollTime(now_us=50_000, from_unix_us=-1_000_000)
SPEC = TensorSpec("observation", "float32", (4,))


def admit(*records: Any) -> Admitted:
    topics = ReplyTopics({"f.actions": 12, "others": 2})
    admission = Admission([SPEC], topics, Limits(max_bytes=10_000))
    return admission.admit("normal", [(PartitionOffsets(TOPIC, 0), records)], NOW)


TENSOR = to_ext(np.zeros(4, np.float32))

BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "wrong shape": ({"observation": np.zeros(5, np.float32)}, "wrong_input", r"shape \[5\], expected \[4\]"),
    "truncated": ({"value": b"\x83\xa1v\x01"}, "undecodable", "not MessagePack"),
    "empty": ({"value": b""}, "undecodable", "not MessagePack"),
    "a claim of 100 MiB": ({"value": b"\x82\xa1v\x01\xabobservation\xc6\x06\x40\x00\x00"}, "undecodable", ""),
    "a nested bomb": (
        {"value": b"\x82\xa1v\x01\xabobservation" + b"\x91" * 400 + b"\xc0"},
        "undecodable",
        "nests",
    ),
    "a tensor as its version": (
        {"value": msgpack.packb({"v": TENSOR, "observation": TENSOR})},
        "undecodable",
        "version",
    ),
    "a tensor as its options": (
        {"value": msgpack.packb({"v": 1, "observation": TENSOR, "options": to_ext(np.zeros(2, np.float32))})},
        "undecodable",
        "options is a ndarray",
    ),
    "a list of text": (
        {"value": msgpack.packb({"v": 1, "observation": ["x" * 4000, "", "", ""]})},
        "wrong_input",
        "other than numbers",
    ),
    "too large": ({"value": bytes(10_001)}, "too_large", "10001 bytes, the limit is 10000"),
    "no agent": ({"agent": ""}, "undecodable", "no key"),
    "a huge agent ID": ({"agent": "x" * 2000}, "too_large", "agent ID has 2000 bytes"),
    "a reply topic that is not allowed": (
        {"headers": [("kafka_correlationId", b"c"), ("kafka_replyTopic", b"__consumer_offsets")]},
        "reply_topic_not_allowed",
        "__consumer_offsets",
    ),
    "a reply partition that is not there": (
        {"headers": [("kafka_correlationId", b"c"), ("kafka_replyPartition", b"\0\0\0\x0c")]},
        "reply_topic_not_allowed",
        "partitions 0 to 11",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_among_good_ones_is_the_only_one_refused(name: str) -> None:
    """63 good, 1 bad: 63 requests and one refusal that names what is wrong and becomes a dead letter."""
    fields, label, says = BAD[name]
    records = [record(offset, f"agent-{offset}") for offset in range(64)]
    records[20] = record(20, **fields) if "agent" in fields else record(20, "agent-20", **fields)
    admitted = admit(*records)
    assert [request.record.offset for request in admitted.requests] == [n for n in range(64) if n != 20]
    (refusal,) = admitted.refusals
    assert (refusal.outcome, refusal.dead, refusal.request.record.offset) == ("rejected", label, 20)
    assert says.replace("\\", "") in refusal.reason


@pytest.mark.parametrize("count", [1, 8])
def test_a_fault_of_ours_in_reading_records_refuses_those(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Raised, it would end this worker, and then the next one that reads them; eight alike are learned from, too."""

    def faulty(value: bytes, *more: Any) -> Any:
        if b"odd" in value:
            raise ZeroDivisionError
        return decode_state(value, *more)

    monkeypatch.setattr("topics.state_reader.decode_state", faulty)
    monkeypatch.setattr("workers.admit.decode_state", faulty)
    bad = [record(offset, f"agent-{offset}", kind="odd") for offset in range(count)]
    admitted = admit(*bad, *(record(offset, f"agent-{offset}") for offset in range(count, 64)))
    assert len(admitted.requests) == 64 - count
    found = {(refusal.outcome, refusal.dead, refusal.reason) for refusal in admitted.refusals}
    assert found == {("rejected", "undecodable", "this fleet cannot read the record: ZeroDivisionError")}
    assert [refusal.request.record for refusal in admitted.refusals] == bad


def test_a_rejection_still_knows_whom_to_answer() -> None:
    """Correlation ID and agent survive a value that cannot be read."""
    (refusal,) = admit(record(3, "agent-3", value=b"\xc1")).refusals
    assert refusal.request.headers == [("kafka_correlationId", b"c3")]
    assert refusal.request.agent == b"agent-3"


def test_a_rejection_never_goes_where_the_record_wished_in_vain() -> None:
    """It goes to the fleet's own topic, by the agent's key."""
    (refusal,) = admit(record(headers=[("kafka_replyTopic", b"secrets")])).refusals
    assert refusal.request.reply_topic == "f.actions"


def test_an_allowed_reply_topic_and_partition_are_used() -> None:
    """The agent named a partition of its own."""
    (request,) = admit(
        record(headers=[("kafka_replyTopic", b"others"), ("kafka_replyPartition", b"\0\0\0\x01")])
    ).requests
    assert (request.reply_topic, request.reply_partition, request.correlated) == ("others", 1, False)


def test_deadlines_are_translated_to_the_workers_clock() -> None:
    """Unix time on the wire, monotonic time inside."""
    (request,) = admit(record(deadline_us=1_060_000, sent_us=1_040_000)).requests
    assert (request.deadline_us, request.sent_us) == (60_000, 40_000)


def test_a_state_that_comes_too_late_is_answered_expired_at_once() -> None:
    """It never sees a lane, and is no dead letter: nothing is wrong with it."""
    admitted = admit(record(deadline_us=1_049_000))
    assert admitted.requests == []
    (refusal,) = admitted.refusals
    assert (refusal.outcome, refusal.dead) == ("expired", None)
    assert "1.0 ms" in refusal.reason


@pytest.mark.parametrize("deadline_us", [2**63 - 1, 2**64 - 1])
def test_an_absurd_deadline_is_no_deadline(deadline_us: int) -> None:
    """Numbers at the edge of their type do no harm."""
    (request,) = admit(record(deadline_us=deadline_us)).requests
    assert request.deadline_us == NEVER


def test_an_absurd_sent_time_gives_way_to_kafkas_own() -> None:
    """An agent whose clock is a year off does not spoil the latency histogram."""
    (request,) = admit(record(sent_us=2**60)).requests
    assert request.sent_us == 1_000 * 1000 - 1_000_000


@pytest.mark.parametrize("timestamp_ms", [-(2**63), -(2**60), 2**60, 2**63 - 1])
def test_an_absurd_kafka_time_harms_nobody(timestamp_ms: int) -> None:
    """Producers set it to what they like, in good states and in bad ones; it once ended every worker that read it."""
    absurd = [replace(record(at, "a", **more), timestamp=timestamp_ms) for at, more in enumerate(({}, {"value": b""}))]
    admitted = admit(absurd[0], record(2), absurd[1])
    assert len(admitted.requests) == 2 and len(admitted.refusals) == 1
    sent = [admitted.requests[0].sent_us, admitted.refusals[0].request.sent_us]
    assert {abs(NOW.now_us - sent_us) for sent_us in sent} == {SENT_MAX_AGE_US}
    assert admitted.requests[1].sent_us == 0


def test_a_fault_of_ours_with_one_record_leaves_its_neighbours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong while a poll is read together: each is then read alone."""

    def fault(*_: object) -> None:
        raise OverflowError("a number nobody thought of")

    monkeypatch.setattr("workers.admit._monotonic", fault)
    admitted = admit(record(0), record(1, value=b""), record(2))
    assert [request.record.offset for request in admitted.requests] == [0, 2]
    assert [refusal.dead for refusal in admitted.refusals] == ["undecodable"]


def test_plain_lists_are_served_and_remembered_as_plain() -> None:
    """A client without tensors is answered without tensors."""
    (request,) = admit(record(value=msgpack.packb({"v": 1, "observation": [1, 2, 3, 4], "seq": 9}))).requests
    assert request.plain and request.seq == 9
    assert bytes(request.rows[0]) == np.array([1, 2, 3, 4], np.float32).tobytes()


def test_many_records_are_admitted_as_each_would_be_alone() -> None:
    """Deadlines, wrong clocks, no times at all, agents met for the first time and again: read together or one by one,
    the same requests and the same refusals."""
    records = [
        record(n, f"agent-{n % 5}", seq=n, **times)
        for n, times in enumerate(
            [{}, {"sent_us": 1_020_000}, {"sent_us": 10**15}, {"deadline_us": 1_000_000}, {"deadline_us": 1_900_000}]
            * 8
        )
    ]
    topics = ReplyTopics({"f.actions": 12})
    admission = Admission([SPEC], topics, Limits())
    offsets = PartitionOffsets(TOPIC, 0)
    together = [admission.admit("normal", [(offsets, records)], NOW) for _ in range(2)][1]  # layouts and agents known
    alone = [admission.admit("normal", [(offsets, [one])], NOW) for one in records]
    assert [_facts(one) for one in together.requests] == [_facts(one) for each in alone for one in each.requests]
    refused = [(_facts(one.request), one.outcome) for each in alone for one in each.refusals]
    assert [(_facts(one.request), one.outcome) for one in together.refusals] == refused and refused


def _facts(request: Any) -> tuple[Any, ...]:
    names = ("record", "lane", "agent", "received_us", "sent_us", "reply_topic", "reply_partition", "headers")
    return tuple(getattr(request, name) for name in (*names, "correlated", "seq", "deadline_us", "rows", "plain"))

"""Step 2, admit: what one poll brought becomes requests for the lanes, and refusals for what cannot be served.

Takes Kafka records, gives `Request`s whose rows fit the model's inputs. A bad record gives a refusal with outcome
`rejected` and never touches its neighbours. No I/O, no clock: the times of the poll are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from aiokafka.structs import ConsumerRecord

from topics.errors import DecodeError, RecordError, ReplyTopicError, TooLarge
from topics.headers import Routing, only_correlated, read
from topics.names import Lane
from topics.observations import is_plain
from topics.partitions import MAX_REMEMBERED_KEY_BYTES, Partitioner
from topics.state_reader import ABSENT, StateColumns, StateReader
from topics.tensors import TensorSpec
from topics.wire import Limits, decode_state
from workers.logs import get_logger
from workers.offsets import PartitionOffsets
from workers.requests import NEVER, Refusal, Request

log = get_logger(__name__)

Record: TypeAlias = ConsumerRecord

MAX_AGENT_BYTES = 1024
"""An agent's ID is kept in several tables, so its size is bounded."""

MAX_KNOWN_AGENTS = 65_536
"""Agents whose place is remembered; when full, all are forgotten and looked up anew."""

SENT_MAX_AGE_US = 86_400_000_000
"""A `sent_us` further away than a day is a wrong clock: the record's own Kafka timestamp is used instead."""


@dataclass(frozen=True, slots=True)
class PollTime:
    """When a poll returned: µs on the monotonic clock, and what to add to Unix µs to get onto it."""

    now_us: int
    from_unix_us: int


@dataclass(slots=True)
class Admitted:
    """The outcome of one poll of one lane."""

    requests: list[Request] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


class ReplyTopics:
    """The allow-list of reply topics with their partition counts; the first is the fleet's default.

    `all_to_default`: whatever a state wishes, its answer goes there.
    """

    def __init__(self, partitions: Mapping[str, int], *, all_to_default: bool = False) -> None:
        self._all_to_default = all_to_default
        self._partitioners = {topic: Partitioner(count) for topic, count in partitions.items()}
        self._counts = dict(partitions)
        self.default = next(iter(partitions))
        self._partitioner = self._partitioners[self.default]
        self.known: dict[bytes, tuple[str, int]] = {}
        """agent → `by_agent`, for agents whose IDs admission has found to be good."""

    def place(self, routing: Routing, agent: bytes) -> tuple[str, int]:
        """Topic and partition of the reply; `ReplyTopicError` if the record may not have it there."""
        if self._all_to_default or (routing.reply_topic is None and routing.reply_partition is None):
            return self.by_agent(agent)
        topic = routing.reply_topic if routing.reply_topic is not None else self.default
        if topic not in self._counts:
            raise ReplyTopicError(f"reply topic {topic!r:.100} is not one of {', '.join(self._counts)}")
        if routing.reply_partition is None:
            return topic, self._partitioners[topic](agent)
        if routing.reply_partition >= self._counts[topic]:
            found = f"reply partition {routing.reply_partition} of {topic} does not exist"
            raise ReplyTopicError(f"{found}: it has partitions 0 to {self._counts[topic] - 1}")
        return topic, routing.reply_partition

    def by_agent(self, agent: bytes | None) -> tuple[str, int]:
        """Where a reply goes if the record wishes nothing: the agent's own partition of the default topic."""
        return self.default, self._partitioner(agent or b"")

    def remember(self, agent: bytes) -> None:
        """A good agent ID: the next record of the agent finds its place in `known`."""
        if len(self.known) >= MAX_KNOWN_AGENTS:
            self.known.clear()
        if len(agent) <= MAX_REMEMBERED_KEY_BYTES:
            self.known[agent] = self.by_agent(agent)


class Admission:
    """Admits the records of one model's fleet."""

    def __init__(self, inputs: Sequence[TensorSpec], reply_topics: ReplyTopics, limits: Limits) -> None:
        self._states = StateReader(inputs, limits)
        self._rows = self._states.observations.rows
        self._reply_topics = reply_topics
        self._limits = limits

    def admit(
        self, lane: Lane, polled: Sequence[tuple[PartitionOffsets, Sequence[Record]]], time: PollTime
    ) -> Admitted:
        """Sort the records of one poll into requests and refusals, in their order."""
        records = [record for _, ours in polled for record in ours]
        owners = [offsets for offsets, ours in polled for _ in ours]
        admitted, known, now_us = Admitted(), self._reply_topics.known, time.now_us
        try:
            states = self._states.read_alike([record.value or b"" for record in records])
            sent_us, deadline_us = _monotonic(states, records, time)
        except Exception:  # a fault of ours, with one of them: alone it harms nobody else
            log.exception("admission_fault", lane=lane, records=len(records))
            for record, offsets in zip(records, owners, strict=True):
                self._admit_alone(lane, record, offsets, time, admitted)
            return admitted
        columns = (records, owners, states.rows, states.seq.tolist(), sent_us, deadline_us)
        for record, offsets, row, seq, sent, deadline in zip(*columns, strict=True):
            agent, headers = record.key, record.headers
            place = known.get(agent)
            if row is None or place is None or not only_correlated(headers):
                self._admit_alone(lane, record, offsets, time, admitted)
            else:  # the hot path: everything about the state is known
                topic, partition = place
                echoed = list(headers)
                request = Request(
                    record, offsets, lane, agent, now_us, sent, topic, partition, echoed, True, seq, deadline, row
                )
                if deadline <= now_us:
                    admitted.refusals.append(Refusal(request, "expired", _late(request, now_us)))
                else:
                    admitted.requests.append(request)
        return admitted

    def _admit_alone(
        self, lane: Lane, record: Record, offsets: PartitionOffsets, time: PollTime, admitted: Admitted
    ) -> None:
        """A record that was not read together with others, or whose agent or headers are not the usual ones."""
        try:
            request = self._request(lane, record, offsets, time)
        except RecordError as error:
            request = self._unserved(lane, record, offsets, time)
            admitted.refusals.append(Refusal(request, "rejected", str(error), dead=error.reason))
            return
        except Exception as error:  # a fault of ours; unanswered, it would end one worker after the other
            log.exception("admission_fault", topic=record.topic, partition=record.partition, offset=record.offset)
            request = self._unserved(lane, record, offsets, time)
            reason = f"this fleet cannot read the record: {type(error).__name__}"
            admitted.refusals.append(Refusal(request, "rejected", reason, dead=DecodeError.reason))
            return
        if request.deadline_us <= time.now_us:
            admitted.refusals.append(Refusal(request, "expired", _late(request, time.now_us)))
        else:
            admitted.requests.append(request)

    def _request(self, lane: Lane, record: Record, offsets: PartitionOffsets, time: PollTime) -> Request:
        """Everything about one record. Raises `RecordError`."""
        agent, value = record.key, record.value
        routing = read(record.headers)
        topic, partition = self._reply_topics.place(routing, agent)
        if not agent or value is None or len(agent) > MAX_AGENT_BYTES or len(value) > self._limits.max_bytes:
            raise self._unfit(agent, value)
        state = self._states.read(value)
        rows = self._rows(state.observation)
        self._reply_topics.remember(agent)
        now_us, from_unix_us = time.now_us, time.from_unix_us
        sent_us = None if state.sent_us is None else state.sent_us + from_unix_us
        if sent_us is None or abs(now_us - sent_us) >= SENT_MAX_AGE_US:
            sent_us = _kafka_us(record, time)
        deadline_us = NEVER if state.deadline_us is None else min(state.deadline_us + from_unix_us, NEVER)
        return Request(
            record,
            offsets,
            lane,
            agent,
            now_us,
            sent_us,
            topic,
            partition,
            routing.echoed,
            routing.correlated,
            state.seq,
            deadline_us,
            rows,
            plain=type(state.observation) is not tuple and is_plain(state.observation),
        )

    def _unserved(self, lane: Lane, record: Record, offsets: PartitionOffsets, time: PollTime) -> Request:
        """As much of a bad record as can be trusted, so that its rejection reaches whoever asked."""
        agent = record.key or b""
        topic, partition = self._reply_topics.by_agent(agent)
        request = Request(record, offsets, lane, agent, time.now_us, _kafka_us(record, time), topic, partition)
        with suppress(RecordError):
            routing = read(record.headers)
            request.headers, request.correlated = routing.echoed, routing.correlated
            request.reply_topic, request.reply_partition = self._reply_topics.place(routing, agent)
        with suppress(Exception):
            request.seq = decode_state(record.value or b"", self._limits).seq
        return request

    def _unfit(self, agent: bytes | None, value: bytes | None) -> RecordError:
        if not agent:
            return DecodeError("record has no key, expected the agent's ID in UTF-8")
        if len(agent) > MAX_AGENT_BYTES:
            return TooLarge(f"agent ID has {len(agent)} bytes, the limit is {MAX_AGENT_BYTES}")
        if value is None:
            return DecodeError("record has no value, expected a MessagePack map")
        return TooLarge(f"record has {len(value)} bytes, the limit is {self._limits.max_bytes}")


def _monotonic(states: StateColumns, records: Sequence[Record], time: PollTime) -> tuple[list[int], list[int]]:
    """When the states were sent and by when they need an answer, in µs on the monotonic clock."""
    sent_us = states.sent_us + time.from_unix_us
    unknown = (states.sent_us == ABSENT) | (np.abs(time.now_us - sent_us) >= SENT_MAX_AGE_US)
    for at in np.flatnonzero(unknown).tolist():
        sent_us[at] = _kafka_us(records[at], time)
    deadline_us = np.where(states.deadline_us == ABSENT, NEVER, states.deadline_us + time.from_unix_us)
    return sent_us.tolist(), deadline_us.tolist()


def _kafka_us(record: Record, time: PollTime) -> int:
    """The record's own Kafka time. Agents may set it to anything: what is further away than a day counts as a day."""
    age_us: int = time.now_us - (record.timestamp * 1000 + time.from_unix_us)
    return time.now_us - min(max(age_us, -SENT_MAX_AGE_US), SENT_MAX_AGE_US)


def _late(request: Request, now_us: int) -> str:
    return f"deadline passed {(now_us - request.deadline_us) / 1000:.1f} ms before it could run"

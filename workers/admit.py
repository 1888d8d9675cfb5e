"""Step 2, admit: what one poll brought becomes requests for the lanes, and refusals for what cannot be served.

Takes Kafka records, gives `Request`s whose rows fit the model's inputs. A bad record gives a refusal with outcome
`rejected` and never touches its neighbours. No I/O, no clock: the times of the poll are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aiokafka.structs import ConsumerRecord

from topics import headers
from topics.errors import DecodeError, RecordError, ReplyTopicError, TooLarge
from topics.names import Lane
from topics.observations import Observations, is_plain
from topics.partitions import Partitioner
from topics.records import State
from topics.wire import Limits, decode_state
from workers.offsets import PartitionOffsets
from workers.requests import NEVER, Refusal, Request

Record: TypeAlias = ConsumerRecord

MAX_AGENT_BYTES = 1024
"""An agent's ID is kept in several tables, so its size is bounded."""

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
    """The allow-list of reply topics with their partition counts; the first is the fleet's default."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitioners = {topic: Partitioner(count) for topic, count in partitions.items()}
        self._counts = dict(partitions)
        self.default = next(iter(partitions))
        self._by_agent = self._partitioners[self.default]

    def place(self, routing: headers.Routing, agent: bytes) -> tuple[str, int]:
        """Topic and partition of the reply; `ReplyTopicError` if the record may not have it there."""
        if routing.reply_topic is None and routing.reply_partition is None:
            return self.default, self._by_agent(agent)
        topic = routing.reply_topic if routing.reply_topic is not None else self.default
        if topic not in self._counts:
            raise ReplyTopicError(f"reply topic {topic!r:.100} is not one of {', '.join(self._counts)}")
        if routing.reply_partition is None:
            return topic, self._partitioners[topic](agent)
        if routing.reply_partition >= self._counts[topic]:
            found = f"reply partition {routing.reply_partition} of {topic} does not exist"
            raise ReplyTopicError(f"{found}: it has partitions 0 to {self._counts[topic] - 1}")
        return topic, routing.reply_partition

    def fallback(self, agent: bytes) -> tuple[str, int]:
        """Where a rejection goes when the record's own wish cannot be granted."""
        return self.default, self._by_agent(agent)


class Admission:
    """Admits the records of one model's fleet."""

    def __init__(self, observations: Observations, reply_topics: ReplyTopics, limits: Limits) -> None:
        self._observations = observations
        self._reply_topics = reply_topics
        self._limits = limits

    def admit(self, lane: Lane, records: Sequence[Record], offsets: PartitionOffsets, time: PollTime) -> Admitted:
        """Sort the records of one partition into requests and refusals, in their order."""
        admitted = Admitted()
        for record in records:
            request = self._request(lane, record, offsets, time)
            try:
                self._read(record, request, time)
                if request.deadline_us <= time.now_us:
                    admitted.refusals.append(Refusal(request, "expired", _late(request, time.now_us)))
                else:
                    admitted.requests.append(request)
            except RecordError as error:
                admitted.refusals.append(Refusal(request, "rejected", str(error), dead=error.reason))
        return admitted

    def _request(self, lane: Lane, record: Record, offsets: PartitionOffsets, time: PollTime) -> Request:
        """The request as far as it is known before anything of the record was believed."""
        agent = record.key or b""
        topic, partition = self._reply_topics.fallback(agent)
        sent_us = record.timestamp * 1000 + time.from_unix_us
        return Request(record, offsets, lane, agent, time.now_us, sent_us, topic, partition)

    def _read(self, record: Record, request: Request, time: PollTime) -> None:
        """Headers first, so that a rejection of the value still reaches its asker."""
        routing = headers.read(record.headers)
        request.headers, request.correlated = routing.echoed, routing.correlated
        if routing.reply_topic is not None or routing.reply_partition is not None:
            request.reply_topic, request.reply_partition = self._reply_topics.place(routing, request.agent)
        if not record.key:
            raise DecodeError("record has no key, expected the agent's ID in UTF-8")
        if len(record.key) > MAX_AGENT_BYTES:
            raise TooLarge(f"agent ID has {len(record.key)} bytes, the limit is {MAX_AGENT_BYTES}")
        if record.value is None:
            raise DecodeError("record has no value, expected a MessagePack map")
        if len(record.value) > self._limits.max_bytes:
            raise TooLarge(f"record has {len(record.value)} bytes, the limit is {self._limits.max_bytes}")
        state = decode_state(record.value, self._limits, self._observations.ext_hook)
        self._apply(state, request, time)
        observation = state.observation
        request.rows = self._observations.rows(observation)
        request.plain = type(observation) is not memoryview and is_plain(observation)

    @staticmethod
    def _apply(state: State, request: Request, time: PollTime) -> None:
        request.seq = state.seq
        if state.deadline_us is not None:
            request.deadline_us = min(state.deadline_us + time.from_unix_us, NEVER)
        if state.sent_us is not None:
            sent_us = state.sent_us + time.from_unix_us
            if abs(time.now_us - sent_us) < SENT_MAX_AGE_US:
                request.sent_us = sent_us


def _late(request: Request, now_us: int) -> str:
    return f"deadline passed {(now_us - request.deadline_us) / 1000:.1f} ms before it could run"

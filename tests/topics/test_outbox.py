"""Outbox: what is refused for its size is found record by record, and nothing else is lost, doubled or out of order."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.admin import NewTopic
from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition

from topics.kafka import make_admin, make_consumer, make_producer, started
from topics.outbox import Outbox, RecordsTooLarge
from topics.settings import KafkaSettings

pytestmark = pytest.mark.broker

LIMIT_BYTES = 2_000


@pytest.fixture
async def topic(kafka: KafkaSettings, fleet_name: str) -> str:
    """Two partitions that take batches of 2,000 bytes."""
    async with started(make_admin(kafka, client_id="test"), kafka) as admin:
        wanted = NewTopic(fleet_name, 2, 1, topic_configs={"max.message.bytes": str(LIMIT_BYTES)})
        answer = await admin.create_topics([wanted])
        assert not for_code(answer.topic_errors[0][1]).errno
    return fleet_name


async def read(kafka: KafkaSettings, topic: str, partition: int, n: int) -> list[Any]:
    consumer = make_consumer(kafka, client_id="test", auto_offset_reset="earliest")
    found: list[Any] = []
    async with started(consumer, kafka):
        consumer.assign([TopicPartition(topic, partition)])
        while len(found) < n:
            polled = await consumer.getmany(timeout_ms=5_000)
            assert polled, f"only {len(found)} of {n} records came"
            found += [record for records in polled.values() for record in records]
        return found + [record for records in (await consumer.getmany(timeout_ms=300)).values() for record in records]


async def test_a_refused_batch_arrives_in_halves_and_the_producer_goes_on(kafka: KafkaSettings, topic: str) -> None:
    """aiokafka's sequence numbers are ahead after a refusal: without a new identity the next batch would be refused."""
    values = [b"%03d" % n + b"v" * (3_000 if n in (17, 64) else 100) for n in range(100)]
    headers = [("kafka_correlationId", b"c")]
    async with started(make_producer(kafka, client_id="test"), kafka) as producer:
        outbox = Outbox(producer)
        outbox.add(topic, 0, b"a", b"first", [])
        await outbox.flush(10.0)
        for value in values:
            outbox.add(topic, 0, b"a", value, headers)
        outbox.add(topic, 1, b"b", b"neighbour", headers)
        with pytest.raises(
            RecordsTooLarge, match=r"\(and 1 more\) is larger than topic .* max\.message\.bytes"
        ) as found:
            await outbox.flush(10.0)
        assert [record.value for record in found.value.records] == [values[17], values[64]]
        assert found.value.records[0].headers == (("kafka_correlationId", b"c"),)
        assert found.value.records[0].size_bytes > LIMIT_BYTES
        outbox.add(topic, 0, b"a", b"last", [])
        await outbox.flush(10.0)
    fitting = [value for n, value in enumerate(values) if n not in (17, 64)]
    came = await read(kafka, topic, 0, 100)
    assert [record.value for record in came] == [b"first", *fitting, b"last"]
    assert came[1].headers == (("kafka_correlationId", b"c"),) and came[1].key == b"a"
    assert [record.value for record in await read(kafka, topic, 1, 1)] == [b"neighbour"]


async def test_full_batches_that_are_refused_keep_their_order(kafka: KafkaSettings, topic: str) -> None:
    """A partition's next batch leaves only when the one before has ended, in halves or whole."""
    small = kafka.model_copy(update={"max_batch_bytes": 4_000})
    async with started(make_producer(small, client_id="test"), small) as producer:
        outbox = Outbox(producer)
        for n in range(200):
            outbox.add(topic, 0, b"a", b"%03d" % n + b"v" * 100, [])
        await outbox.flush(10.0)
    assert [int(record.value[:3]) for record in await read(kafka, topic, 0, 200)] == list(range(200))

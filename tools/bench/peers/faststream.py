"""FastStream on aiokafka: a batch subscriber that publishes its answers in batches.

Batches of up to 1,024 records (`batch=True`), one `publish_batch` per partition: FastStream's fastest way out. It gives
all records of a batch the same headers, and those must be text, so the correlation ID, which is any 16 bytes, travels
in the action record. For the same reason the parser is ours: FastStream's own reads headers as UTF-8. No validation
(`apply_types=False`), no compression, its default commits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Any

from faststream import FastStream
from faststream.kafka import KafkaBroker, KafkaPublishMessage
from faststream.kafka.message import KafkaMessage

from tools.bench.peers.job import MAX_BATCH, Job, place

where = place()
job = Job(where.model, "faststream")
broker = KafkaBroker(where.servers, apply_types=False, acks="all", max_batch_size=1 << 20, log_level=logging.DEBUG)
app = FastStream(broker)


async def parse(records: tuple[Any, ...], _: Any) -> Any:
    """The records of a poll as one message, headers untouched."""
    return KafkaMessage(records, body=[record.value for record in records], consumer=None)


async def decode(message: Any) -> Any:
    """Nothing to decode here: the job does that."""
    return message.raw_message


@broker.subscriber(
    where.states,
    batch=True,
    max_records=MAX_BATCH,
    batch_timeout_ms=20,
    group_id=where.group,
    auto_offset_reset="earliest",
    parser=parse,
    decoder=decode,
)
async def decide(records: tuple[Any, ...]) -> None:
    """One forward pass for the poll, then one batch of answers for each partition, all on their way at once."""
    answers = job.answer([record.value for record in records], [record.headers[0][1] for record in records])
    parts: defaultdict[int, list[Any]] = defaultdict(list)
    for record, answer in zip(records, answers, strict=True):
        parts[record.partition].append(KafkaPublishMessage(answer, key=record.key))
    await asyncio.gather(
        *(broker.publish_batch(*part, topic=where.actions, partition=number) for number, part in parts.items())
    )


if __name__ == "__main__":
    asyncio.run(app.run())

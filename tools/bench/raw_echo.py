"""A raw aiokafka echo: what one round trip costs before anything is decided, a process of its own.

Takes each record of the high lane and sends its bytes, key and headers to the actions topic, in the partition with
the same number. Same clients and settings as a worker's.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

from aiokafka.structs import TopicPartition

from topics.errors import FleetError
from topics.kafka import make_consumer, make_producer, quiet_library_logs, start
from topics.settings import load_settings
from workers.settings import Settings

READY: Final = "raw echo is ready"


async def serve(settings: Settings) -> None:
    """Echo for ever."""
    quiet_library_logs()
    acks: Any = "all" if settings.reply.acks == "all" else 1
    producer = make_producer(settings.kafka, client_id=settings.worker, acks=acks)
    consumer = make_consumer(settings.kafka, client_id=settings.worker)
    await start(producer, settings.kafka)
    await start(consumer, settings.kafka)
    states, actions = settings.names.states("high"), settings.names.actions
    partitions = [TopicPartition(states, number) for number in await producer.partitions_for(states)]
    consumer.assign(partitions)
    await consumer.seek_to_end(*partitions)
    for partition in partitions:
        await consumer.position(partition)
    sys.stderr.write(READY + "\n")
    sys.stderr.flush()
    async for record in consumer:
        await producer.send(actions, record.value, record.key, partition=record.partition, headers=list(record.headers))


def main() -> None:
    """Settings come from where a worker's come from; the process ends by a signal."""
    try:
        asyncio.run(serve(load_settings(Settings)))
    except FleetError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

"""The bare loop: the floor that the benchmarks set a worker against, a process of its own.

    poll ─▶ unpack ─▶ stack ─▶ one forward ─▶ pack ─▶ append ─▶ send_batch

It reads and writes the very bytes of wire version 1 (every field of an action, the correlation ID in its header),
runs the same weights with the same backend and one thread, and uses the same clients with the same settings as a
worker: acknowledgements and idempotence are on. It is as fast as its author knew to make it: whole polls of up to
1,024 records in one forward pass, replies in one record batch per partition, the next poll taken while the last
one's answers are on their way, Python's collector told to look rarely.

What it leaves out is what a worker is for: lanes and their order, deadlines, the batch bounds, limits against
hostile bytes, checks of shape and dtype, NaN checks, the reply topic or partition that a state may name, plain
observations, dead letters, offsets and commits, groups and rebalances, back-pressure, draining, metrics, probes and
logs. A bad record ends it, and it must see the fleet's usual states: one tensor like the model's one input, a
correlation ID as the only header, an answer in the partition with the state's own number.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgpack
import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import ConsumerRecord, TopicPartition

from topics.errors import FleetError
from topics.kafka import make_consumer, make_producer, quiet_library_logs, start
from topics.names import LANES, Lane
from topics.settings import load_settings
from topics.tensors import TENSOR_EXT
from workers.models.load import load_unproven
from workers.models.model import Model
from workers.models.package import Manifest, read_manifest
from workers.models.simulated import SIMULATED, Device, SimulatedModel
from workers.settings import Settings

READY: Final = "bare loop is ready"
"""The line on stderr after which every state that is sent will be answered."""
MAX_RECORDS: Final = 1024
"""Per poll and forward pass, as many as a worker takes from its consumer at once."""
BUCKETS: Final = (1, 8, 32, 128, 256, 512, MAX_RECORDS)
POLL_MS: Final = 200
GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Python's (700, 10, 10) would look at a poll's records again and again; they form no cycles."""


class Loop:
    """One model between one consumer and one producer."""

    def __init__(
        self, settings: Settings, model: Model, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer
    ) -> None:
        self._model = model
        self._consumer = consumer
        self._producer = producer
        self._actions = settings.names.actions
        self._lanes: dict[str, Lane] = {settings.names.states(lane): lane for lane in LANES}
        self._common = {
            "v": 1,
            "outcome": "action",
            "model": str(model.manifest),
            "worker": settings.worker,
            "epoch": 1,
        }
        self._input = model.manifest.inputs[0]
        self._outputs = model.manifest.outputs
        self._pack = msgpack.Packer().pack
        self._travelling: list[asyncio.Future[Any]] = []

    async def run(self) -> None:
        """Answer until the process is ended."""
        while True:
            polled = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS)
            if polled:
                await self._answer(polled)

    async def _answer(self, polled: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        polled_ns, start_at = time.monotonic_ns(), len(self._input.header)

        def raw(_: int, data: bytes) -> bytes:
            return data[start_at:]

        unpack = msgpack.unpackb
        states = [unpack(record.value, ext_hook=raw) for records in polled.values() for record in records]
        joined = b"".join([state["observation"] for state in states])
        inputs = np.frombuffer(joined, self._input.numpy).reshape(len(states), *self._input.shape)
        started_ns = time.monotonic_ns()
        outputs = self._model.predict({self._input.name: inputs})
        timing = {
            "wait_us": (started_ns - polled_ns) // 1000,
            "predict_us": (time.monotonic_ns() - started_ns) // 1000,
            "batch_size": len(states),
        }
        columns = [self._column(outputs[spec.name], spec.header) for spec in self._outputs]
        travelling, first = [], 0
        for partition, records in polled.items():
            behind = first + len(records)
            rows = [column[first:behind] for column in columns]
            for batch in self._batches(records, self._lanes[partition.topic], states[first:behind], rows, timing):
                sent = await self._producer.send_batch(batch, self._actions, partition=partition.partition)
                travelling.append(sent)
            first = behind
        await asyncio.gather(*self._travelling)  # of the poll before: at most two polls' answers are on their way
        self._travelling = travelling

    @staticmethod
    def _column(array: Any, header: bytes) -> list[msgpack.ExtType]:
        """The tensors of one output, row by row."""
        raw, size = array.tobytes(), array.nbytes // len(array)
        return [msgpack.ExtType(TENSOR_EXT, header + raw[at : at + size]) for at in range(0, len(raw), size)]

    def _batches(
        self,
        records: Sequence[ConsumerRecord],
        lane: Lane,
        states: Sequence[dict[str, Any]],
        columns: Sequence[Sequence[msgpack.ExtType]],
        timing: dict[str, int],
    ) -> list[Any]:
        """The answers to one partition's records, in as few record batches as they fit in."""
        pack, common, now_ms = self._pack, {**self._common, "lane": lane, "timing": timing}, time.time_ns() // 1_000_000
        names = [spec.name for spec in self._outputs[1:]]
        batches = [self._producer.create_batch()]
        for record, state, action, *others in zip(records, states, *columns, strict=True):
            fields = {**common, "seq": state["seq"], "action": action}
            if names:
                fields["extras"] = dict(zip(names, others, strict=True))
            value, headers = pack(fields), list(record.headers)
            if batches[-1].append(timestamp=now_ms, key=record.key, value=value, headers=headers) is None:
                batches.append(self._producer.create_batch())
                batches[-1].append(timestamp=now_ms, key=record.key, value=value, headers=headers)
        return batches


def load_bare(manifest: Manifest, settings: Settings) -> Model:
    """The package's module in buckets as large as a poll, warm; on the simulated device if the worker's is one."""
    whole = replace(manifest, buckets=BUCKETS)
    (first, *_) = settings.predictors
    if first.device == SIMULATED:
        return SimulatedModel(whole, Device(**first.simulated.model_dump()))
    model = load_unproven(settings.model.path, whole, device="cpu", factories=settings.model.factories, threads=1)
    model.warm_up()
    return model


async def serve(settings: Settings, *, backlog: bool) -> None:
    """Answer every state of the fleet from now on, or with `backlog` from the first one in its topics."""
    quiet_library_logs()
    model = load_bare(read_manifest(settings.model.path), settings)
    acks: Any = "all" if settings.reply.acks == "all" else 1
    producer = make_producer(settings.kafka, client_id=settings.worker, acks=acks)
    consumer = make_consumer(settings.kafka, client_id=settings.worker)
    await start(producer, settings.kafka)
    await start(consumer, settings.kafka)
    partitions = [
        TopicPartition(settings.names.states(lane), number)
        for lane in LANES
        for number in sorted(await producer.partitions_for(settings.names.states(lane)))
    ]
    consumer.assign(partitions)
    await (consumer.seek_to_beginning(*partitions) if backlog else consumer.seek_to_end(*partitions))
    for partition in partitions:
        await consumer.position(partition)
    gc.collect()
    gc.freeze()  # torch's hundreds of thousands of objects stay
    gc.set_threshold(*GC_THRESHOLDS)
    sys.stderr.write(READY + "\n")
    sys.stderr.flush()
    await Loop(settings, model, consumer, producer).run()


def main() -> None:
    """Settings come from where a worker's come from; the process ends by a signal."""
    parser = argparse.ArgumentParser(description="The bare loop, for `fleet bench`.")
    parser.add_argument("--backlog", action="store_true", help="start at the first state, not at the next one")
    backlog = parser.parse_args().backlog
    try:
        asyncio.run(serve(load_settings(Settings), backlog=backlog))
    except FleetError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

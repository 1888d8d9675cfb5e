"""Quix Streams: a batching sink that runs the model and produces the answers.

A streaming dataframe handles one record at a time; its sinks are where Quix gathers records, until each checkpoint.
Raw bytes on both sides, librdkafka's producer with a linger, no compression.
"""

from __future__ import annotations

from typing import Any

from quixstreams import Application
from quixstreams.sinks import BatchingSink

from tools.bench.peers.job import MAX_BATCH, Job, place

where = place()
job = Job(where.model, "quix")
app = Application(
    where.servers,
    consumer_group=where.group,
    auto_offset_reset="earliest",
    commit_every=4 * MAX_BATCH,
    commit_interval=0.5,
    auto_create_topics=False,
    consumer_extra_config={"fetch.wait.max.ms": 20},
    producer_extra_config={"linger.ms": 5, "acks": "all", "compression.type": "none"},
    loglevel="WARNING",
)


class Decide(BatchingSink):
    """Answers what came since the last checkpoint, in batches."""

    def setup(self) -> None:
        """A producer of its own: a sink's output is outside of the dataframe."""
        self._producer = app.get_producer()

    def write(self, batch: Any) -> None:
        """One partition's records."""
        for items in batch.iter_chunks(MAX_BATCH):
            answers = job.answer([item.value for item in items])
            for item, answer in zip(items, answers, strict=True):
                self._producer.produce(where.actions, answer, item.key, headers=item.headers, partition=batch.partition)

    def flush(self) -> None:
        """All answers are acknowledged before the offsets are committed."""
        super().flush()
        self._producer.flush()


if __name__ == "__main__":
    states = app.topic(where.states, key_deserializer="bytes", value_deserializer="bytes")
    app.dataframe(states).sink(Decide())
    app.run()

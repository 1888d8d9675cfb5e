"""faust-streaming: an agent that takes events in batches and sends the answers without waiting for each.

`take_events` is Faust's batching. Raw bytes on both sides, no tables, no web server, no compression, a producer with
a linger and large batches.
"""

from __future__ import annotations

import logging
from typing import Any

import faust

from tools.bench.peers.job import MAX_BATCH, Job, place

for name in ("faust", "mode", "aiokafka"):
    logging.getLogger(name).setLevel(logging.WARNING)  # else a debug line is made for every record, and thrown away
where = place()
job = Job(where.model, "faust")
app = faust.App(
    where.group,
    broker=f"kafka://{where.servers}",
    key_serializer="raw",
    value_serializer="raw",
    web_enabled=False,
    topic_disable_leader=True,
    topic_allow_declare=False,
    consumer_auto_offset_reset="earliest",
    broker_max_poll_records=MAX_BATCH,
    stream_buffer_maxsize=4 * MAX_BATCH,
    producer_acks=-1,
    producer_linger=0.005,
    producer_max_batch_size=1 << 20,
)
states = app.topic(where.states, internal=False)
actions = app.topic(where.actions, internal=False)


@app.agent(states)
async def decide(stream: Any) -> None:
    """One forward pass for what came within 20 ms, at most 1,024 states."""
    async for events in stream.take_events(MAX_BATCH, within=0.02):
        answers = job.answer([event.value for event in events])
        for event, answer in zip(events, answers, strict=True):
            message = event.message
            await actions.send(key=event.key, value=answer, partition=message.partition, headers=event.headers)


if __name__ == "__main__":
    faust.Worker(app, loglevel="warning").execute_from_commandline()

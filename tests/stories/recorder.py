"""What stories about `fleet record` share: the process, traffic of all kinds, and a look into the recording."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from aiokafka.structs import TopicPartition

from tests.stories.fleet import Fleet
from tools.recording.read import Recording
from tools.recording.recorded import Recorded, RecordingError
from topics.kafka import log_ends, make_producer, started
from topics.outbox import Outbox

COMMAND = [sys.executable, "-c", "from tools.cli import main; main()", "record"]
ENDED_WITHIN_S = 60.0

_started: list[subprocess.Popen[str]] = []

Id = tuple[str, int, int]
"""Topic, partition, offset."""


def start(fleet: Fleet, path: Path, *words: str) -> subprocess.Popen[str]:
    """A recorder of this fleet."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    at = ("--fleet", fleet.settings.name, "--bootstrap-servers", fleet.settings.kafka.bootstrap_servers)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    _started.append(subprocess.Popen([*COMMAND, str(path), *words, *at], env=variables | {"COLUMNS": "200"}, **pipes))
    return _started[-1]


def kill_started() -> None:
    """What a story that failed has left."""
    while _started:
        process = _started.pop()
        process.kill()
        process.communicate()


async def ended(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    """What it printed, once it has ended."""
    out, err = await asyncio.to_thread(process.communicate, timeout=ENDED_WITHIN_S)
    assert process.returncode == code, (process.returncode, out, err)
    return out, err


async def record(fleet: Fleet, path: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """The summary of `fleet record … --json`."""
    out, _ = await ended(start(fleet, path, *words, "--json"), code)
    summary: dict[str, Any] = json.loads(out)
    return summary


async def telling(process: subprocess.Popen[str], words: str) -> None:
    """Wait until it says this. After "recording …" it reads: what is sent from then on belongs to the recording."""
    assert process.stderr is not None
    give_up = asyncio.get_running_loop().time() + ENDED_WITHIN_S
    said = ""
    while words not in said:
        line = await asyncio.wait_for(asyncio.to_thread(process.stderr.readline), ENDED_WITHIN_S)
        said += line
        assert line and asyncio.get_running_loop().time() < give_up, f"it did not say {words!r}, but: {said}"


async def write(fleet: Fleet, number: int, first: int = 0) -> None:
    """Records into every topic and several partitions, from plain to odd ones."""
    names, partitions = fleet.names, fleet.settings.topics.partitions
    async with started(make_producer(fleet.settings.kafka, client_id="story"), fleet.settings.kafka) as producer:
        outbox = Outbox(producer)
        for at in range(first, first + number):
            agent = b"agent-%d" % (at % 7)
            headers: list[tuple[str, Any]] = [("kafka_correlationId", b"%08d" % at), ("twice", b"1"), ("twice", None)]
            for topic in (*names.state_topics(), names.actions):
                outbox.add(topic, at % partitions, agent, b"value %d" % at, headers)
            outbox.add(names.dead, 0, None if at % 2 else agent, None if at % 3 else b"", [])
        await outbox.flush(30.0)


async def in_kafka(fleet: Fleet) -> dict[Id, Recorded]:
    """Every record that the fleet's topics hold and transactions have committed."""
    found: dict[Id, Recorded] = {}
    async with fleet.reader(fleet.names.all_topics()) as consumer:
        ends = await log_ends(consumer, consumer.assignment())
        while any([await consumer.position(TopicPartition(*place)) < end for place, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for one in records:
                    found[one.topic, one.partition, one.offset] = Recorded(
                        one.topic,
                        one.partition,
                        one.offset,
                        one.timestamp,
                        one.timestamp_type,
                        one.key,
                        one.value,
                        one.headers,
                    )
    return found


def in_recording(path: Path) -> list[Recorded]:
    """Every record of it, in the order it gives them."""
    return [record for records in Recording.open(path).records() for record in records]


async def holding(path: Path, number: int) -> None:
    """Wait until a recorder that runs has so many records on the disk."""
    give_up = asyncio.get_running_loop().time() + ENDED_WITHIN_S
    while (found := await asyncio.to_thread(_held, path)) < number:
        assert asyncio.get_running_loop().time() < give_up, f"{path} holds {found} records, expected {number}"
        await asyncio.sleep(0.1)


def _held(path: Path) -> int:
    try:
        return len(in_recording(path))
    except RecordingError:  # nothing is written yet
        return 0


def ids(records: list[Recorded]) -> list[Id]:
    """In order, with whatever is there twice."""
    return sorted((record.topic, record.partition, record.offset) for record in records)

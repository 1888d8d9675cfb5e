"""A fleet for stories: topics on the embedded broker, worker processes, and a reader of all answers.

Everything is real: `fleet worker` processes get real signals, states go through Kafka, answers are read from it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from aiokafka.structs import TopicPartition

from tests.stories.models import FACTORY
from topics.kafka import make_admin, make_consumer, make_producer, started
from topics.names import Lane
from topics.outbox import Outbox
from topics.partitions import Partitioner
from topics.records import Action, State
from topics.settings import FleetSettings
from topics.wire import decode_action, encode_state

COMMAND = [sys.executable, "-c", "from tools.cli import main; main()", "worker"]
SIGNALLED = [sys.executable, "-c", "import tests.stories.commit_signals; from tools.cli import main; main()", "worker"]
"""A worker that gets `COMMIT_SIGNAL` in front of a commit."""

READY_WITHIN_S = 40.0
"""A worker imports torch, warms up and joins three groups; on two busy cores that takes seconds."""


class WorkerProcess:
    """One `fleet worker`, with its log in a file."""

    def __init__(self, settings: FleetSettings, model: Path, log: Path, **variables: str) -> None:
        self.log = log
        command = SIGNALLED if "COMMIT_SIGNAL" in variables else COMMAND
        environment = {
            **os.environ,
            "FLEET_NAME": settings.name,
            "FLEET_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            "FLEET_MODEL__PATH": str(model),
            "FLEET_MODEL__FACTORIES": json.dumps([FACTORY]),
            "FLEET_HTTP__PORT": "0",
            "FLEET_LOG__FORMAT": "json",
            **variables,
        }
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The worker's log events called `name`."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    async def ready(self) -> WorkerProcess:
        """Wait until it serves; says what its log says if it ended instead."""
        give_up = time.monotonic() + READY_WITHIN_S
        while not self.events("ready"):
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError(f"worker did not become ready: {self.log.read_text()[-2000:]}")
            await asyncio.sleep(0.05)
        return self

    def probe(self, path: str) -> tuple[int, str]:
        """Status and body of one of its HTTP pages."""
        url = self.events("starting")[-1]["probes"] + path
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within_s: float = 30.0) -> int:
        """Its exit code."""
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), within_s)

    def kill(self) -> None:
        """SIGKILL, whatever state it is in."""
        self.process.kill()
        self.process.wait()


class Fleet:
    """Topics of one story, its workers, and everything that was asked and answered."""

    def __init__(self, settings: FleetSettings, folder: Path) -> None:
        self.settings = settings
        self.names = settings.names
        self._folder = folder
        self._workers: list[WorkerProcess] = []
        self._asked = 0

    def worker(self, model: Path, **variables: str) -> WorkerProcess:
        """Start a worker; `variables` are more `FLEET_…` settings."""
        log = self._folder / f"worker-{len(self._workers)}.log"
        self._workers.append(WorkerProcess(self.settings, model, log, **variables))
        return self._workers[-1]

    def close(self) -> None:
        """Kill what still runs."""
        for worker in self._workers:
            worker.kill()

    async def ask(self, states: Sequence[tuple[str, Any]], lane: Lane = "normal") -> dict[bytes, str]:
        """Send (agent, State or raw bytes) pairs; gives correlation ID → agent."""
        partitioner = Partitioner(self.settings.topics.partitions)
        asked: dict[bytes, str] = {}
        async with started(make_producer(self.settings.kafka, client_id="story"), self.settings.kafka) as producer:
            outbox = Outbox(producer)
            for agent, state in states:
                correlation = b"%08d" % self._asked
                self._asked += 1
                asked[correlation] = agent
                value = state if isinstance(state, bytes) else encode_state(state)
                key = agent.encode()
                headers = [("kafka_correlationId", correlation)]
                outbox.add(self.names.states(lane), partitioner(key), key, value, headers)
            await outbox.flush(30.0)
        return asked

    async def answers(self, asked: dict[bytes, str], within_s: float = 40.0, *, extra_s: float = 0.0) -> Answers:
        """Read the actions topic from its beginning until all `asked` are answered, and `extra_s` longer."""
        found = Answers()
        async with self.reader([self.names.actions]) as consumer:
            loop = asyncio.get_running_loop()
            give_up = loop.time() + within_s
            while not asked.keys() <= found.keys() and loop.time() < give_up:
                found.read(await consumer.getmany(timeout_ms=100))
            until = loop.time() + extra_s
            while loop.time() < until:
                found.read(await consumer.getmany(timeout_ms=100))
        return found

    def reader(self, topics: Sequence[str], **special: str) -> Any:
        """A started consumer of all partitions of `topics`, from their beginning, as an async context manager."""
        consumer = make_consumer(self.settings.kafka, client_id="story-reader", auto_offset_reset="earliest", **special)
        counts = {self.names.dead: self.settings.topics.dead_partitions}
        consumer.assign(
            [TopicPartition(t, p) for t in topics for p in range(counts.get(t, self.settings.topics.partitions))]
        )
        return started(consumer, self.settings.kafka)

    async def dead_letters(self, n: int, within_s: float = 20.0) -> list[Any]:
        """The first `n` records of the dead-letter topic, and whatever comes within a second after them."""
        found: list[Any] = []
        async with self.reader([self.names.dead]) as consumer:
            loop = asyncio.get_running_loop()
            give_up = loop.time() + within_s
            while len(found) < n and loop.time() < give_up:
                found += [record for records in (await consumer.getmany(timeout_ms=100)).values() for record in records]
            found += [record for records in (await consumer.getmany(timeout_ms=1000)).values() for record in records]
        return found

    async def committed(self) -> dict[Lane, int]:
        """Sum of the committed offsets of each lane's group."""
        sums: dict[Lane, int] = {}
        for lane in ("high", "normal", "low"):
            consumer = make_consumer(self.settings.kafka, client_id="story", group_id=self.names.group(lane))
            async with started(consumer, self.settings.kafka):
                parts = [TopicPartition(self.names.states(lane), p) for p in range(self.settings.topics.partitions)]
                sums[lane] = sum([await consumer.committed(part) or 0 for part in parts])
        return sums

    async def group_state(self, lane: Lane) -> str:
        """Kafka's name for the state of a lane's group, "Stable" or "PreparingRebalance" for example."""
        async with started(make_admin(self.settings.kafka, client_id="story"), self.settings.kafka) as admin:
            ((described,),) = [found.groups for found in await admin.describe_consumer_groups([self.names.group(lane)])]
            return str(described[2])


class Answers(dict[bytes, list[Action]]):
    """correlation ID → every action record that carries it, in the order they were read."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_of: dict[bytes, bytes] = {}
        self.order: dict[bytes, list[bytes]] = defaultdict(list)

    def read(self, polled: dict[TopicPartition, list[Any]]) -> None:
        for records in polled.values():
            for record in records:
                correlation = dict(record.headers).get("kafka_correlationId", b"")
                self.setdefault(correlation, []).append(decode_action(record.value))
                self.keys_of[correlation] = record.key
                self.order[record.key].append(correlation)

    @property
    def doubled(self) -> int:
        """Answers beyond the first."""
        return sum(len(actions) - 1 for actions in self.values())


def observation(value: float) -> Any:
    """An observation that the probe answers with itself."""
    return np.array([value, value + 0.25, value + 0.5, value + 0.75], np.float32)


def states(agents: int, steps: int, **fields: Any) -> list[tuple[str, State]]:
    """`steps` states of each of `agents`, interleaved; each observation is different."""
    return [
        (f"agent-{agent}", State(observation(step * agents + agent), seq=step, **fields))
        for step in range(steps)
        for agent in range(agents)
    ]

"""The start-up archive: classes as Java has loaded and profiled them once, so that later starts need not.

With it Kafka is ready in about 1.2 s instead of 3 s, for 2 s of CPU instead of 5 s (measured on two cores), and as
fast afterwards. Making it takes one broker that is started, used a little and stopped: about 10 s, once per Kafka
and Java. Java checks that the archive fits and starts without it if not; an empty file remembers a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from pathlib import Path

from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError
from rich.console import Console

from tools.broker.errors import BrokerDied
from tools.broker.folders import locked_folder, new_id
from tools.broker.install import Installation
from tools.broker.java import OLDEST_FOR_ARCHIVE
from tools.broker.launch import launch_node
from tools.broker.paths import kafka_folder
from tools.broker.ports import free_ports
from tools.broker.processes import Process
from tools.broker.properties import NodePlan
from tools.broker.ready import wait_ready
from tools.broker.threads import run_apart
from topics.errors import FleetError
from topics.kafka import make_admin, make_consumer, make_producer, started
from topics.settings import KafkaSettings

READY_WITHIN_S = 60.0
WRITTEN_WITHIN_S = 90.0


def archive_flags(installation: Installation, console: Console) -> list[str]:
    """The JVM's flags for a quick start; none where Java is too old or making the archive has failed."""
    java = installation.java
    if java.version < OLDEST_FOR_ARCHIVE:
        return []
    archive = kafka_folder() / f"startup-java-{java.release}.aot"
    with locked_folder(kafka_folder()):
        if not archive.exists():
            console.print("Preparing Kafka for quick starts (about 10 s, once)")
            _make(archive, installation)
    return [f"-XX:AOTCache={archive}", "-Xlog:aot*=off"] if archive.stat().st_size else []


def forget_archive() -> None:
    """Make the next start build it anew."""
    for archive in kafka_folder().glob("startup-*"):
        archive.unlink(missing_ok=True)


def _make(archive: Path, installation: Installation) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".training-") as scratch:
        made = Path(scratch, "archive")
        port, controller_port = free_ports(2)
        plan = NodePlan(1, port, controller_port, Path(scratch))
        flags = [f"-XX:AOTCacheOutput={made}"]
        process = launch_node(installation, plan, [plan], new_id(), detached=False, flags=flags)
        try:
            run_apart(_use, port, process)
            process.signal(signal.SIGTERM)
            process.wait(WRITTEN_WITHIN_S)
        except (KafkaError, FleetError, OSError, TimeoutError):
            pass  # without an archive Kafka starts all the same
        finally:
            process.kill()
        if not made.exists():
            made.touch()
        made.replace(archive)


async def _use(port: int, process: Process) -> None:
    def check() -> None:
        if not process.is_alive:
            raise BrokerDied("died in training")

    await wait_ready([port], READY_WITHIN_S, check)
    await _produce_and_consume(KafkaSettings(bootstrap_servers=f"127.0.0.1:{port}", connect_timeout_s=5.0))


async def _produce_and_consume(kafka: KafkaSettings) -> None:
    """What a fleet does, so that the code for it is in the archive: idempotent batches, a group, commits."""
    client_id, topic = "fleet-broker", "training"
    async with asyncio.timeout(READY_WITHIN_S), contextlib.AsyncExitStack() as stack:
        admin = await stack.enter_async_context(started(make_admin(kafka, client_id=client_id), kafka))
        await admin.create_topics([NewTopic(topic, 4, 1)])
        producer = await stack.enter_async_context(started(make_producer(kafka, client_id=client_id), kafka))
        consumer = make_consumer(kafka, client_id=client_id, group_id="training")
        await stack.enter_async_context(started(consumer, kafka))
        consumer.subscribe([topic])
        for _ in range(200):
            await asyncio.gather(*[producer.send_and_wait(topic, bytes(200), partition=n) for n in range(4)])
        taken = 0
        while taken < 800:
            taken += sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
            await consumer.commit()

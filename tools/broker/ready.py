"""Is the cluster ready? Only when a record goes in and comes out again, and a group finds its coordinator.

An open port is not enough: Kafka accepts connections before it can create a topic, and the first group would
meet "coordinator not available" while the topic of group offsets is being made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tools.broker.errors import BrokerDied
from tools.broker.ports import accepts
from tools.broker.properties import replication
from tools.broker.security import BrokerSecurity
from topics.errors import FleetError
from topics.kafka import make_admin, make_consumer, make_producer, started
from topics.settings import KafkaSettings

POLL_S = 0.02
RETRY_S = 0.05
STEP_S = 5.0
CLIENT_ID = "fleet-broker"


async def wait_ready(
    ports: list[int], within_s: float, check: Callable[[], None], security: BrokerSecurity | None = None
) -> None:
    """Return once the nodes listening on `ports` serve records; `check` raises when one of them is dead.

    Raises:
        BrokerDied: not ready in time. Whatever `check` raises.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + within_s
    problem: object = "its port does not open"
    with _library_silence():
        while loop.time() < give_up_at:
            check()
            if not all(accepts(port) for port in ports):
                await asyncio.sleep(POLL_S)
                continue
            try:
                return await round_trip(ports, security)
            except (KafkaError, FleetError, OSError, TimeoutError) as err:
                problem = err or type(err).__name__
                await asyncio.sleep(RETRY_S)
    raise BrokerDied(f"Kafka is not ready after {within_s:.0f} s: {problem}")


async def round_trip(ports: list[int], security: BrokerSecurity | None = None) -> None:
    """One record through a topic of its own, then deleted. Raises KafkaError, OSError or TimeoutError."""
    login = security.login(mechanism="PLAIN") if security else {}
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    kafka = KafkaSettings(bootstrap_servers=servers, connect_timeout_s=STEP_S, retry_backoff_ms=20, **login)
    topic = f"fleet-ready-{uuid.uuid4().hex[:8]}"
    async with started(make_admin(kafka, client_id=CLIENT_ID), kafka) as admin:
        await _all_registered(admin, len(ports))
        await _create(admin, topic, replication(len(ports))[0])
        try:
            await _in_and_out(kafka, topic)
            await admin.find_coordinator("fleet-ready")
        finally:
            with contextlib.suppress(KafkaError, OSError):
                await admin.delete_topics([topic])


async def _all_registered(admin: AIOKafkaAdminClient, nodes: int) -> None:
    found = len((await admin.describe_cluster())["brokers"])
    if found < nodes:
        raise TimeoutError(f"{found} of {nodes} nodes have joined the cluster")


async def _create(admin: AIOKafkaAdminClient, topic: str, copies: int) -> None:
    answer = await admin.create_topics([NewTopic(topic, 1, copies)])
    name, code, *text = answer.topic_errors[0]
    if code:
        raise TimeoutError(f"topic {name} cannot be created: {text[0] if text and text[0] else f'error {code}'}")


async def _in_and_out(kafka: KafkaSettings, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    producer = make_producer(kafka, client_id=CLIENT_ID, idempotent=False)
    consumer = make_consumer(kafka, client_id=CLIENT_ID)
    async with asyncio.timeout(STEP_S), started(producer, kafka), started(consumer, kafka):
        sent = await producer.send_and_wait(topic, b"ready?", partition=0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        if (await consumer.getone(partition)).value != b"ready?":
            raise TimeoutError(f"topic {topic} gave back another record than it got")


@contextlib.contextmanager
def _library_silence() -> Iterator[None]:
    """aiokafka's complaints about a cluster that is still starting are no news."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)

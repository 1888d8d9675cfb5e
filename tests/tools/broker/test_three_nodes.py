"""Three nodes: what fault tests stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from tools.broker import Cluster, start_broker
from topics.kafka import make_admin, make_producer, started
from topics.settings import KafkaSettings


@pytest.fixture(scope="module")
def three(broker: Cluster) -> Iterator[Cluster]:
    cluster = start_broker(nodes=3)
    yield cluster
    cluster.stop()


def settings(cluster: Cluster) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)


async def send(producer: AIOKafkaProducer, topic: str) -> int:
    """Offset of one record that two replicas have."""
    async with asyncio.timeout(40):
        sent = await producer.send_and_wait(topic, b"record", partition=0)
    return int(sent.offset)


async def test_one_of_three_nodes_may_be_killed(three: Cluster) -> None:
    """Replication 3 with 2 in sync: writes go on without a node, and it comes back."""
    kafka = settings(three)
    async with started(make_admin(kafka, client_id="test"), kafka) as admin:
        answer = await admin.create_topics([NewTopic("copied", 1, 3)])
        assert answer.topic_errors[0][1] == 0, answer
    async with started(make_producer(kafka, client_id="test"), kafka) as producer:
        assert await send(producer, "copied") == 0
        victim = three.nodes[1]
        victim.kill()
        assert not victim.is_alive
        assert [await send(producer, "copied") for _ in range(5)] == [1, 2, 3, 4, 5]
        victim.start()
        await asyncio.to_thread(three.wait_ready)
        assert await send(producer, "copied") == 6


async def test_a_paused_node_goes_on_where_it_was(three: Cluster) -> None:
    """SIGSTOP is a machine that hangs: the process lives, but does nothing."""
    node = three.nodes[2]
    node.pause()
    assert node.is_alive
    node.resume()
    await asyncio.to_thread(three.wait_ready)

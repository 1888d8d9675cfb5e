"""Agent → partition."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner

from topics.partitions import Partitioner

# From org.apache.kafka.common.utils.UtilsTest.testMurmur2 (Apache Kafka), as signed 32-bit numbers.
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "java_hash"), JAVA_MURMUR2.items())
def test_agrees_with_the_java_client(key: bytes, java_hash: int) -> None:
    """Clients in any language put an agent on the same partition."""
    for partitions in (1, 3, 12, 100):
        assert Partitioner(partitions)(key) == (java_hash & 0x7FFFFFFF) % partitions


def test_agrees_with_aiokafka() -> None:
    """Records sent with aiokafka's own partitioner land where we say."""
    theirs, ours = DefaultPartitioner(), Partitioner(12)
    for number in range(200):
        key = f"agent-{number}".encode()
        assert ours(key) == theirs(key, list(range(12)), list(range(12)))


def test_remembers_a_bounded_number_of_keys() -> None:
    """A fleet whose agent IDs never repeat does not grow the worker's memory."""
    partitioner = Partitioner(12, max_remembered=10)
    first = [partitioner(str(number).encode()) for number in range(100)]
    assert len(partitioner._known) <= 10
    assert first == [partitioner(str(number).encode()) for number in range(100)]


def test_refuses_a_topic_without_partitions() -> None:
    """Zero partitions is a bug of the caller."""
    with pytest.raises(ValueError, match="at least one partition"):
        Partitioner(0)

"""Kafka clients: built with our options, started and stopped within bounds, one line when they cannot be."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewTopic, RecordsToDelete
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.record import default_records
from aiokafka.structs import TopicPartition

from tests.topics.fake_kafka import (
    API_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    api_versions,
    fake_kafka,
    handshake,
    metadata,
    refused_login,
)
from topics import diagnose
from topics.errors import BrokerUnavailable, FleetError, SettingsError, TopicMissing
from topics.kafka import (
    Client,
    assert_fast_records,
    client_options,
    make_admin,
    make_consumer,
    make_producer,
    positions,
    quiet_library_logs,
    require_topics,
    start,
    started,
    stop,
)
from topics.settings import KafkaSettings

MAKERS: list[Callable[[KafkaSettings], Any]] = [
    lambda kafka: make_consumer(kafka, client_id="test", group_id="test"),
    lambda kafka: make_consumer(kafka, client_id="test"),
    lambda kafka: make_producer(kafka, client_id="test"),
    lambda kafka: make_admin(kafka, client_id="test"),
]
CLIENTS = pytest.mark.parametrize("make", MAKERS, ids=["group consumer", "reader", "producer", "admin"])
SASL = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "me", "sasl_password": "hunter2"}


@pytest.fixture(autouse=True)
async def no_noise(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Nothing is logged, nothing left unclosed, no exception lost."""
    quiet_library_logs()
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    gc.collect()
    await asyncio.sleep(0.01)
    assert complaints == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def settings(port: int, **more: Any) -> KafkaSettings:
    """127.0.0.1:port, given up after half a second."""
    return KafkaSettings(**{"bootstrap_servers": f"127.0.0.1:{port}", "connect_timeout_s": 0.5, **more})


async def free_port() -> int:
    """A port that nobody listens on."""
    async with fake_kafka({}) as port:
        return port


async def refusal(client: Client, kafka: KafkaSettings) -> str:
    """The one line that a start fails with."""
    with pytest.raises(BrokerUnavailable) as failure:
        await start(client, kafka)
    assert "\n" not in str(failure.value)
    return str(failure.value)


@CLIENTS
async def test_without_a_broker_the_line_names_the_address_and_what_to_do(make: Callable[..., Any]) -> None:
    """At once, whatever the time-out."""
    kafka = settings(await free_port(), connect_timeout_s=60.0)
    line = await refusal(make(kafka), kafka)
    assert f"{kafka.bootstrap_servers} (connection refused)" in line
    assert "`fleet broker start`" in line
    assert "FLEET_KAFKA__BOOTSTRAP_SERVERS" in line


@CLIENTS
async def test_an_address_that_never_answers_is_given_up(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """connect_timeout_s bounds the wait; the diagnosis has its own small bound."""
    monkeypatch.setattr("topics.kafka.DIAGNOSIS_S", 0.2)
    async with fake_kafka({}) as port:
        kafka = settings(port)
        began = time.monotonic()
        assert "timed out" in await refusal(make(kafka), kafka)
        assert time.monotonic() - began < 5  # far below request_timeout_ms


async def test_a_wrong_password_is_told_from_an_absent_broker() -> None:
    """Also when another address of the list does not answer at all."""
    answers = {
        API_VERSIONS: api_versions(),
        SASL_HANDSHAKE: handshake("PLAIN"),
        SASL_AUTHENTICATE: refused_login(),
    }
    async with fake_kafka(answers) as port:
        kafka = settings(port, bootstrap_servers=f"127.0.0.1:{await free_port()},127.0.0.1:{port}", **SASL)
        line = await refusal(make_producer(kafka, client_id="test"), kafka)
    assert f"127.0.0.1:{port} refuses user 'me' (PLAIN): check kafka.sasl_username" in line
    assert "hunter2" not in line


async def test_a_mechanism_that_is_not_offered_is_named() -> None:
    """Then the user may be right and the mechanism wrong."""
    answers = {API_VERSIONS: api_versions(), SASL_HANDSHAKE: handshake("SCRAM-SHA-512", error_code=33)}
    async with fake_kafka(answers) as port:
        kafka = settings(port, **SASL)
        line = await refusal(make_producer(kafka, client_id="test"), kafka)
    assert "does not offer kafka.sasl_mechanism=PLAIN" in line


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (ssl.SSLCertVerificationError(1, "self-signed"), ("is not trusted", "kafka.ssl_cafile")),
        (ssl.SSLError(1, "wrong version number"), ("TLS with the broker", "kafka.security_protocol=SSL")),
        (ConnectionResetError(104, "reset"), ("closes the connection", "kafka.security_protocol=SSL")),
    ],
)
async def test_failures_of_tls_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, error: Exception, parts: tuple[str, ...]
) -> None:
    """An unknown authority, a listener without TLS."""

    async def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(diagnose, "create_conn", refuse)
    line = await diagnose.why_unreachable(client_options(settings(9092, security_protocol="SSL")), within_s=1)
    assert all(part in line for part in ("127.0.0.1:9092", *parts)), line


@CLIENTS
async def test_a_cluster_that_names_unreachable_addresses_is_diagnosed(make: Callable[..., Any]) -> None:
    """The classic mistake with advertised.listeners."""
    ghost = await free_port()
    async with fake_kafka({API_VERSIONS: api_versions(), METADATA: metadata(ghost)}) as port:
        kafka = settings(port)
        line = await refusal(make(kafka), kafka)
    assert f"127.0.0.1:{port} answers, but its broker at 127.0.0.1:{ghost} cannot be reached" in line


async def test_a_certificate_file_that_cannot_be_read_is_a_setting_to_mend(tmp_path: Path) -> None:
    """The key and the file are named."""
    missing = tmp_path / "ca.pem"
    with pytest.raises(SettingsError, match=r"kafka\.ssl_cafile=.*ca\.pem cannot be used: No such file"):
        client_options(settings(9092, security_protocol="SSL", ssl_cafile=str(missing)))
    missing.write_text("not a certificate")
    with pytest.raises(SettingsError, match=r"kafka\.ssl_cafile="):
        client_options(settings(9092, security_protocol="SSL", ssl_cafile=str(missing)))


@CLIENTS
async def test_a_client_that_never_started_stops_silently(make: Callable[..., Any]) -> None:
    """Whoever built three clients and failed with the first can stop all three."""
    client = make(settings(await free_port()))
    assert await stop(client, within_s=1)
    assert await stop(client, within_s=1)


async def test_stop_is_bounded_when_the_broker_stays_silent() -> None:
    """aiokafka waits for ever for batches that are never acknowledged."""
    answers: dict[int, Any] = {API_VERSIONS: api_versions()}
    async with fake_kafka(answers) as port:
        answers[METADATA] = metadata(port, "fleet.actions")
        kafka = settings(port)
        producer = make_producer(kafka, client_id="test", acks=1)
        await start(producer, kafka)
        pending = await producer.send("fleet.actions", b"value", partition=0)
        began = time.monotonic()
        assert not await stop(producer, within_s=0.2)
        assert time.monotonic() - began < 5
        pending.cancel()
    running = {getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
    assert not [name for name in running if name.startswith(("Sender", "MessageAccumulator", "AIOKafkaClient"))]


async def test_a_cancelled_start_leaves_nothing_behind() -> None:
    """Ctrl-C while connecting."""
    async with fake_kafka({}) as port:
        kafka = settings(port, connect_timeout_s=60.0)
        starting = asyncio.ensure_future(start(make_producer(kafka, client_id="test"), kafka))
        await asyncio.sleep(0.05)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting


async def test_consumers_have_the_options_that_our_promises_need() -> None:
    """No auto commit, Range alone, no reset to the end for a group."""
    consumer = make_consumer(settings(9092), client_id="w", group_id="fleet.high", fetch_max_wait_ms=100)
    assert consumer._enable_auto_commit is False
    assert consumer._partition_assignment_strategy == (RangePartitionAssignor,)
    assert (consumer._auto_offset_reset, consumer._fetch_max_wait_ms) == ("earliest", 100)
    assert consumer._rebalance_timeout_ms == 30_000
    assert consumer._key_deserializer is None
    assert consumer._value_deserializer is None
    assert consumer._group_instance_id is None
    await stop(consumer, 1)


async def test_producers_are_durable_unless_told_otherwise() -> None:
    """acks=all with idempotence; acks=1 cannot have it."""
    durable = make_producer(settings(9092), client_id="w")
    quick = make_producer(settings(9092), client_id="w", acks=1)
    assert durable._txn_manager is not None
    assert (durable._sender._acks, quick._sender._acks) == (-1, 1)
    assert quick._txn_manager is None
    await stop(durable, 1)
    await stop(quick, 1)


async def test_a_consumer_of_a_missing_topic_gives_up() -> None:
    """If it subscribed before it was started, its start waits for the topic: not for ever."""
    answers: dict[int, Any] = {API_VERSIONS: api_versions()}
    async with fake_kafka(answers) as port:
        answers[METADATA] = metadata(port, "other.topic")
        kafka = settings(port, request_timeout_ms=300, rebalance_timeout_ms=200)
        consumer = make_consumer(kafka, client_id="test", group_id="fleet.high")
        consumer.subscribe(["fleet.states.high"])
        with pytest.raises(TopicMissing, match="fleet topics apply"):
            await start(consumer, kafka)


def test_the_compiled_record_code_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it everything works, ten times slower: nobody would notice why."""
    assert_fast_records()
    python_one = default_records._DefaultRecordBatchBuilderPy
    monkeypatch.setattr(default_records, "DefaultRecordBatchBuilder", python_one)
    with pytest.raises(FleetError, match="compiled record code"):
        assert_fast_records()


@pytest.mark.broker
@CLIENTS
async def test_every_client_starts_and_stops_on_a_real_broker(make: Callable[..., Any], kafka: KafkaSettings) -> None:
    """Without a word."""
    client = make(kafka)
    await start(client, kafka)
    assert await stop(client, within_s=5)


@pytest.mark.broker
async def test_a_missing_topic_is_named_and_not_created(kafka: KafkaSettings, fleet_name: str) -> None:
    """With the command that creates it."""
    topics = [f"{fleet_name}.states.high", f"{fleet_name}.dead"]
    async with started(make_admin(kafka, client_id="test"), kafka) as admin:
        with pytest.raises(TopicMissing) as failure:
            await require_topics(admin, topics)
        assert not set(topics) & set(await admin.list_topics())
    assert f"topic {topics[0]} (and 1 more) is missing on {kafka.bootstrap_servers}" in str(failure.value)
    assert "`fleet topics apply`" in str(failure.value)


@pytest.mark.broker
async def test_a_position_passes_what_no_poll_brings(kafka: KafkaSettings, fleet_name: str) -> None:
    """Deleted records and the marker that ends a transaction. A worker that took them for records it does not get
    would be restarted again and again."""
    place = TopicPartition(fleet_name, 0)
    writer = make_producer(kafka, client_id="test", transactional_id=fleet_name)
    reader = make_consumer(kafka, client_id="test", auto_offset_reset="earliest")
    async with started(make_admin(kafka, client_id="test"), kafka) as admin:
        await admin.create_topics([NewTopic(fleet_name, 1, 1)])
        async with started(writer, kafka), writer.transaction():
            for value in (b"a", b"b", b"c"):
                await writer.send_and_wait(fleet_name, value, partition=0)
        await admin.delete_records({place: RecordsToDelete(before_offset=2)})
        async with started(reader, kafka), asyncio.timeout(10):
            assert positions(reader) == {}
            reader.assign([place])
            reader.seek(place, 0)
            values: list[bytes | None] = []
            while positions(reader) != {place: 4}:
                values += [record.value for record in (await reader.getmany(timeout_ms=100)).get(place, [])]
            assert values == [b"c"]
        await admin.delete_topics([fleet_name])


def owned(members: dict[str, str], topic: str) -> dict[str, list[int]]:
    """Member's worker → partitions of `topic` by Range, as the group's leader would assign 12 of them."""
    cluster = ClusterMetadata()
    cluster._partitions = {topic: dict.fromkeys(range(12))}
    metadata_of = {member: RangePartitionAssignor.metadata({topic}) for member in members}
    assignment = RangePartitionAssignor.assign(cluster, metadata_of)
    return {members[member]: owns.assignment[0][1] for member, owns in assignment.items()}


async def test_one_client_id_gets_the_same_partitions_in_every_lane() -> None:
    """A member ID is the client's ID and random hex digits: the random part must not decide the order."""
    workers = ["w-2", "w-10", "w-1", "gpu-12", "gpu-12-7", "gpu"]
    consumers = {worker: make_consumer(settings(9092), client_id=worker, group_id="f.high") for worker in workers}
    lanes = [
        owned(
            {f"{consumer._client._client_id}-{uuid.uuid4()}": worker for worker, consumer in consumers.items()}, topic
        )
        for topic in ("f.states.high", "f.states.normal", "f.states.low")
        for _ in range(20)
    ]
    for consumer in consumers.values():
        await stop(consumer, 1)
    assert all(lane == lanes[0] for lane in lanes)
    assert sorted(number for numbers in lanes[0].values() for number in numbers) == list(range(12))

"""Kafka clients: the only place that builds, starts and stops aiokafka's consumers, producers and admins.

Takes `KafkaSettings`, gives clients with the options that docs/decisions/0002 explains. Serialises nothing:
keys and values are bytes. Says in one line why a cluster cannot be reached (`diagnose` finds out), and keeps
the library's own log lines from people.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record import _crecords, default_records
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from topics.closing import network_of, stop
from topics.diagnose import why_unreachable
from topics.errors import BrokerUnavailable, FleetError, SettingsError, TopicMissing
from topics.settings import KafkaSettings

__all__ = [
    "Client",
    "Member",
    "assert_fast_records",
    "client_options",
    "hidden_topics",
    "is_member",
    "make_admin",
    "make_consumer",
    "make_producer",
    "member_id",
    "members_named",
    "positions",
    "quiet_library_logs",
    "renew_identity",
    "require_topics",
    "start",
    "started",
    "stop",
]

Client: TypeAlias = AIOKafkaConsumer | AIOKafkaProducer | AIOKafkaAdminClient
C = TypeVar("C")

# Range sorts the members of a group by member ID, which is the client_id, "-" and random digits. This ends a client_id
# where another may go on ("gpu-12" and "gpu-12-7"), or the random digits would decide, differently in each lane.
MEMBER_END = "~"
# On top of `connect_timeout_s`: closing what had begun, then finding out why it failed.
DIAGNOSIS_S = 3.0
CLOSE_S = 2.0
# A new topic reaches every broker within tens of ms (more under load); a missing one is reported after this.
TOPIC_APPEARS_WITHIN_S = 2.0
ACLS = "`fleet topics acls` lists what each role needs"


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Options that every aiokafka client takes: address, security, time limits.

    Raises:
        SettingsError: a certificate or key file cannot be read.
    """
    password = kafka.sasl_password
    return {
        "bootstrap_servers": kafka.bootstrap_servers,
        "security_protocol": kafka.security_protocol,
        "ssl_context": _ssl_context(kafka) if kafka.security_protocol.endswith("SSL") else None,
        "sasl_mechanism": kafka.sasl_mechanism,
        "sasl_plain_username": kafka.sasl_username,
        "sasl_plain_password": password.get_secret_value() if password else None,
        "request_timeout_ms": kafka.request_timeout_ms,
        "retry_backoff_ms": kafka.retry_backoff_ms,
        "metadata_max_age_ms": kafka.metadata_max_age_ms,
        "connections_max_idle_ms": kafka.connections_max_idle_ms,
    }


def make_consumer(
    kafka: KafkaSettings, *, client_id: str, group_id: str | None = None, **special: Any
) -> AIOKafkaConsumer:
    """A consumer that is not started and subscribes to nothing; `special` overrides single options.

    In a group, consumers with one `client_id` in groups of equal topics get equal partitions (decisions/0002).
    Without a group it is a reader for `assign()`. Start it before `subscribe()`: then `start` returns as soon
    as the cluster has answered, and `require_topics` can look before anything waits for a missing topic.
    """
    options: dict[str, Any] = {
        "group_id": group_id,
        "enable_auto_commit": False,  # it would commit what was handed out, not what is answered
        "auto_offset_reset": "earliest" if group_id else "latest",
        # Readers of answers and letters never see those of an aborted transaction, whatever `delivery` says; where
        # there are no transactions it makes no difference.
        "isolation_level": "read_uncommitted" if group_id else "read_committed",
        "partition_assignment_strategy": (RangePartitionAssignor,),  # two send two JoinGroups a rejoin
        "session_timeout_ms": kafka.session_timeout_ms,
        "heartbeat_interval_ms": kafka.heartbeat_interval_ms,
        "rebalance_timeout_ms": kafka.rebalance_timeout_ms,
        "max_poll_interval_ms": kafka.max_poll_interval_ms,
        "fetch_max_wait_ms": kafka.fetch_max_wait_ms,
        "fetch_min_bytes": kafka.fetch_min_bytes,
        "fetch_max_bytes": kafka.fetch_max_bytes,
        "max_partition_fetch_bytes": kafka.max_partition_fetch_bytes,
    }
    member = client_id + MEMBER_END if group_id else client_id
    return AIOKafkaConsumer(client_id=member, **client_options(kafka), **(options | special))


def make_producer(
    kafka: KafkaSettings,
    *,
    client_id: str,
    acks: Literal["all", 0, 1] = "all",
    idempotent: bool = True,
    **special: Any,
) -> AIOKafkaProducer:
    """A producer that is not started; `special` overrides single options.

    With `acks` 0 or 1 there is no idempotence, whatever `idempotent` says: Kafka has it for "all" only.
    """
    options: dict[str, Any] = {
        "acks": acks,
        "enable_idempotence": idempotent and acks == "all",
        "linger_ms": kafka.linger_ms,
        "max_batch_size": kafka.max_batch_bytes,
        "compression_type": None if kafka.compression == "none" else kafka.compression,
    }
    return AIOKafkaProducer(client_id=client_id, **client_options(kafka), **(options | special))


def make_admin(kafka: KafkaSettings, *, client_id: str) -> AIOKafkaAdminClient:
    """An admin client that is not started."""
    return AIOKafkaAdminClient(client_id=client_id, **client_options(kafka))


async def start(client: Client, kafka: KafkaSettings) -> None:
    """Connect `client`, or close it and say in one line why it could not be connected.

    Takes `connect_timeout_s` at most (plus the group's rebalance, if the consumer has subscribed before), and
    5 s more to close and to find out why. An address that refuses connections fails at once.

    Raises:
        BrokerUnavailable: nobody answers, or TLS or SASL fail; the line names the address and what to do.
        TopicMissing: the consumer has subscribed to a topic that is not there.
    """
    try:
        async with asyncio.timeout(_start_bound_s(client, kafka)):
            await client.start()
            await _reach_a_broker(network_of(client))
    except (KafkaError, OSError, TimeoutError) as err:
        await stop(client, CLOSE_S)
        raise await _translated(err, kafka) from None
    except BaseException:
        await asyncio.shield(stop(client, CLOSE_S))
        raise


@contextlib.asynccontextmanager
async def started(client: C, kafka: KafkaSettings, *, stop_within_s: float = CLOSE_S) -> AsyncIterator[C]:
    """`async with started(make_admin(…), kafka) as admin:` for clients that live as long as a block."""
    await start(client, kafka)
    try:
        yield client
    finally:
        await asyncio.shield(stop(client, stop_within_s))


async def require_topics(client: Client, names: Iterable[str]) -> None:
    """Check on the cluster that every topic is there; creates none, also where brokers would by themselves.

    Raises:
        TopicMissing: the first missing topic, the cluster's address and the command that creates it.
        BrokerUnavailable: the cluster does not answer, or hides the topic from us.
    """
    wanted = list(names)
    network = network_of(client)
    give_up_at = asyncio.get_running_loop().time() + TOPIC_APPEARS_WITHIN_S
    while missing := await _missing(network, wanted):
        if asyncio.get_running_loop().time() > give_up_at:
            raise await _why_missing(network, missing)
        await asyncio.sleep(0.1)


async def read_commits(
    consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What the consumer's group has committed, with the metadata that `consumer.committed` leaves out."""
    found: dict[TopicPartition, OffsetAndMetadata] = await consumer._coordinator.fetch_committed_offsets(
        list(partitions)
    )
    return {partition: commit for partition, commit in found.items() if commit.offset >= 0}


class Member(NamedTuple):
    """One member of a consumer group."""

    member_id: str
    host: str


async def members_named(kafka: KafkaSettings, group_id: str, client_id: str) -> list[Member]:
    """The members of a group that `make_consumer` gave this `client_id`, ours among them.

    Raises:
        KafkaError: the coordinator refuses to tell.
        BrokerUnavailable: nobody answers.
    """
    async with started(make_admin(kafka, client_id=client_id), kafka) as admin:
        ((described,),) = [response.groups for response in await admin.describe_consumer_groups([group_id])]
        error_code, members = described[0], described[5]
        if error_code:
            raise for_code(error_code)(f"describing group {group_id}")
        return [Member(found[0], found[2].lstrip("/")) for found in members if found[1] == client_id + MEMBER_END]


def member_id(consumer: AIOKafkaConsumer) -> str:
    """The consumer's own ID in its group; "" while it has none."""
    found: str = consumer._coordinator.member_id
    return found


def is_member(consumer: AIOKafkaConsumer) -> bool:
    """Whether the consumer is a member of its group, as far as it knows; a fenced one is not until it rejoins."""
    generation: int = consumer._coordinator.generation
    return generation >= 0


def positions(consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
    """The offsets that the consumer reads next, where it knows them. `consumer.position` would wait for the others.

    They pass what is never handed out: markers of transactions, and what retention has deleted.
    """
    subscription = consumer._subscription
    owned = subscription.assigned_partitions()
    states = {partition: subscription.subscription.assignment.state_value(partition) for partition in owned}
    return {partition: state.position for partition, state in states.items() if state.has_valid_position}


def renew_identity(producer: AIOKafkaProducer) -> None:
    """Let an idempotent producer take a new producer ID before it sends again; nothing of it may be in flight.

    After a batch that the broker refused, aiokafka's sequence numbers are ahead of the broker's, which would refuse
    all later batches of that partition.
    """
    manager = producer._txn_manager
    if manager is not None and manager.transactional_id is None:
        manager.__init__(None, manager.transaction_timeout_ms)


def hidden_topics(client: Client) -> set[str]:
    """Topics that the client uses and on which it has no rights (any more), as of its last look at the cluster."""
    return set(network_of(client).cluster.unauthorized_topics)


async def log_ends(consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offsets that the next records will get. `consumer.end_offsets` of a reader stops in front of the first
    transaction that is still open, and would hide what is acknowledged behind it."""
    fetcher = copy.copy(consumer._fetcher)
    fetcher._isolation_level = READ_UNCOMMITTED
    found: dict[TopicPartition, int] = await fetcher.end_offsets(list(partitions), None)
    return found


def assert_fast_records() -> None:
    """aiokafka's compiled record code is in use; the pure Python one is ten times slower.

    Raises:
        FleetError: it is not.
    """
    if default_records.DefaultRecordBatchBuilder is not _crecords.DefaultRecordBatchBuilder:
        raise FleetError(
            "aiokafka runs without its compiled record code: "
            "unset AIOKAFKA_NO_EXTENSIONS or reinstall aiokafka from a wheel"
        )


def quiet_library_logs() -> None:
    """aiokafka logs nothing to people: what matters of it is raised or counted by us."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def _ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    password = kafka.ssl_key_password
    key, path = "ssl_cafile", kafka.ssl_cafile
    try:
        context = ssl.create_default_context(cafile=path)
        context.check_hostname = kafka.ssl_check_hostname
        if path := kafka.ssl_certfile:
            key = "ssl_certfile"
            secret = password.get_secret_value() if password else ""
            context.load_cert_chain(path, kafka.ssl_keyfile, secret)
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise SettingsError(f"kafka.{key}={path} cannot be used: {reason}") from None
    return context


def _start_bound_s(client: Client, kafka: KafkaSettings) -> float:
    joins = isinstance(client, AIOKafkaConsumer) and bool(client.subscription())
    return kafka.connect_timeout_s + (kafka.rebalance_timeout_ms / 1000 if joins else 0.0)


async def _reach_a_broker(network: Any) -> None:
    """The bootstrap address has answered; the addresses that the cluster itself names may still be wrong."""
    for broker in network.cluster.brokers():
        if await network.ready(broker.nodeId):
            return
    raise KafkaConnectionError("no broker that the cluster names can be reached")


async def _translated(err: Exception, kafka: KafkaSettings) -> FleetError:
    if isinstance(err, UnknownTopicOrPartitionError):
        return TopicMissing(f"a topic is missing on {kafka.bootstrap_servers}: create it with `fleet topics apply`")
    if isinstance(
        err, ClusterAuthorizationFailedError
    ):  # what an idempotent producer of somebody who may write nothing gets
        return BrokerUnavailable(
            f"{_who(kafka.sasl_username)} may write to no topic of {kafka.bootstrap_servers}: {ACLS}"
        )
    if isinstance(err, TransactionalIdAuthorizationFailed):
        ids = ", ".join(map(str, err.args))
        return BrokerUnavailable(f"{_who(kafka.sasl_username)} may not use transactional ID {ids}: {ACLS}")
    return BrokerUnavailable(await why_unreachable(client_options(kafka), within_s=DIAGNOSIS_S))


async def _why_missing(network: Any, missing: list[str]) -> FleetError:
    """A topic on which we have no rights is missing in the list too; asked for by name, the cluster says so."""
    where = network._bootstrap_servers
    request = MetadataRequest(missing, allow_auto_topic_creation=False)
    try:
        answer = await network.send(network.get_random_node(), request)
    except (KafkaError, OSError, TimeoutError) as err:
        return BrokerUnavailable(f"the cluster at {where} does not list its topics ({err!r}): look at its brokers")
    hidden = sorted(topic[1] for topic in answer.topics if topic[0] == TopicAuthorizationFailedError.errno)
    more = f" (and {len(hidden or missing) - 1} more)" if len(hidden or missing) > 1 else ""
    if hidden:
        who = _who(network._sasl_plain_username)
        return BrokerUnavailable(f"{who} has no rights on topic {hidden[0]}{more} of {where}: {ACLS}")
    return TopicMissing(f"topic {missing[0]}{more} is missing on {where}: create it with `fleet topics apply`")


def _who(user: str | None) -> str:
    return f"user {user!r}" if user else "this client"


async def _missing(network: Any, wanted: list[str]) -> list[str]:
    try:
        there = (await network.fetch_all_metadata()).topics()
    except (KafkaError, OSError, TimeoutError) as err:
        raise BrokerUnavailable(
            f"the cluster at {network._bootstrap_servers} does not list its topics ({err!r}): look at its brokers"
        ) from err
    return [name for name in wanted if name not in there]

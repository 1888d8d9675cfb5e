"""A broker with TLS, users and ACLs for stories, its certificates, and probes of what a user may do there."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka.admin import NewTopic
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.structs import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.conftest import BROKER_REQUIRED
from tools.broker import BrokerFault, BrokerSecurity, Cluster, start_broker
from topics.acls import ROLES, Acl, acls_of
from topics.closing import network_of
from topics.kafka import make_admin, make_consumer, make_producer, started
from topics.names import FleetNames
from topics.settings import KafkaSettings

USERS = ("admin", "agent", "worker", "tools", "stranger")
REFUSED = (TopicAuthorizationFailedError, GroupAuthorizationFailedError, ClusterAuthorizationFailedError)


@dataclass(frozen=True, slots=True)
class Secured:
    """The running broker and ways to connect to it."""

    cluster: Cluster
    security: BrokerSecurity

    def kafka(self, user: str, **changes: Any) -> KafkaSettings:
        """Settings with which `user` connects."""
        fields = self.security.login(user) | {"bootstrap_servers": self.cluster.bootstrap_servers}
        return KafkaSettings(**(fields | changes))

    def variables(self, user: str, folder: Path) -> dict[str, str]:
        """The same as `FLEET_KAFKA__…` variables, as an operator gives them: the password lies in a file."""
        fields = self.security.login(user) | {"bootstrap_servers": self.cluster.bootstrap_servers}
        secret = folder / f"{user}.password"
        secret.write_text(fields.pop("sasl_password") + "\n")
        named = {f"FLEET_KAFKA__{key.upper()}": str(value) for key, value in fields.items()}
        return {**named, "FLEET_KAFKA__SASL_PASSWORD_FILE": str(secret)}

    def grant(self, acls: Sequence[Acl]) -> None:
        """Give these rights, and wait until the broker knows them."""
        admin, wanted = self._admin(), {_binding(acl) for acl in acls}
        for created in admin.create_acls(list(wanted)).values():
            created.result(20)
        _wait_for(lambda: wanted <= set(admin.describe_acls(_EVERYTHING).result(20)))

    def withdraw(self, acls: Sequence[Acl]) -> None:
        """Take these rights away, and wait until the broker has forgotten them."""
        admin, unwanted = self._admin(), {_binding(acl) for acl in acls}
        filters = [AclBindingFilter(*(getattr(one, name) for name in _FIELDS)) for one in unwanted]
        for deleted in admin.delete_acls(filters).values():
            deleted.result(20)
        _wait_for(lambda: not unwanted & set(admin.describe_acls(_EVERYTHING).result(20)))

    def _admin(self) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": self.security.admin,
                "sasl.password": self.security.users[self.security.admin],
                "ssl.ca.location": str(self.security.ca),
            }
        )


def make_security(folder: Path) -> BrokerSecurity:
    """An authority, a certificate for 127.0.0.1 and a random password for each user."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    # Kafka reads private keys in PKCS#8 only.
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    keystore = folder / "broker.pem"
    keystore.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    )
    return BrokerSecurity(keystore, folder / "ca.pem", {user: secrets.token_urlsafe(18) for user in USERS})


def _wait_for(done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not done():
        assert time.monotonic() < give_up, "the broker does not show the ACLs as they should be"
        time.sleep(0.05)


@contextlib.contextmanager
def secured_broker(names: FleetNames) -> Iterator[Secured]:
    """A broker with the rights that `fleet topics acls` lists for a fleet and no others; skips where it cannot run."""
    with tempfile.TemporaryDirectory() as folder:
        security = make_security(Path(folder))
        try:
            cluster = start_broker(security=security)
        except BrokerFault as fault:
            if BROKER_REQUIRED:
                raise
            pytest.skip(f"no embedded broker on this machine: {fault}")
        secured = Secured(cluster, security)
        secured.grant([acl for role in ROLES for acl in acls_of(role, f"User:{role}", names)])
        yield secured
        cluster.stop()


_FIELDS = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
_EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def _binding(acl: Acl) -> AclBinding:
    operation = re.sub("(?<=[a-z])(?=[A-Z])", "_", acl.operation).upper()
    return AclBinding(
        ResourceType[acl.resource.upper().replace("-", "_")],
        acl.name,
        ResourcePatternType.LITERAL,
        acl.principal,
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


async def may(attempt: Awaitable[None]) -> bool:
    """Whether the broker lets it happen."""
    try:
        await asyncio.wait_for(attempt, 20)
    except REFUSED:
        return False
    return True


async def write(kafka: KafkaSettings, topic: str) -> None:
    """Put a record into a topic."""
    async with started(make_producer(kafka, client_id="probe"), kafka) as producer:
        await producer.send_and_wait(topic, b"probe", key=b"probe", partition=0)


async def read(kafka: KafkaSettings, topic: str) -> None:
    """Get the first record of a topic that has one."""
    consumer = make_consumer(kafka, client_id="probe", auto_offset_reset="earliest")
    async with started(consumer, kafka):
        consumer.assign([TopicPartition(topic, 0)])
        while not await consumer.getmany(timeout_ms=100):
            if topic in network_of(consumer).cluster.unauthorized_topics:  # aiokafka knows, and waits on in silence
                raise TopicAuthorizationFailedError(topic)


async def commit(kafka: KafkaSettings, group: str, topic: str) -> None:
    """Move a group that nobody is in."""
    consumer = make_consumer(kafka, client_id="probe", group_id=group)
    async with started(consumer, kafka):
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.commit({TopicPartition(topic, 0): 0})


async def create(kafka: KafkaSettings, topic: str) -> None:
    """Make a topic."""
    async with started(make_admin(kafka, client_id="probe"), kafka) as admin:
        _raise_code((await admin.create_topics([NewTopic(topic, 1, 1)])).topic_errors[0][1])


async def delete(kafka: KafkaSettings, topic: str) -> None:
    """Remove a topic."""
    async with started(make_admin(kafka, client_id="probe"), kafka) as admin:
        _raise_code((await admin.delete_topics([topic])).topic_error_codes[0][1])


def _raise_code(code: int) -> None:
    if code:
        raise for_code(code)

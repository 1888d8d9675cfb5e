"""A broker with TLS, users and ACLs, and the certificates for it: made here, valid for minutes' worth of tests."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tools.broker import BrokerSecurity, Cluster
from topics.settings import KafkaSettings

USERS = ("admin", "agent", "worker", "tools", "stranger")


@dataclass(frozen=True, slots=True)
class Secured:
    """The running broker and ways to connect to it."""

    cluster: Cluster
    security: BrokerSecurity
    other_ca: Path
    """An authority that has signed nothing here."""

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

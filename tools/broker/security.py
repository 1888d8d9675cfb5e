"""TLS, log-in and access control for an embedded broker: for tests and local trials.

Takes certificates and users that the caller made, gives Kafka's properties and the arguments of its storage tool.
Clients and the nodes themselves meet on SASL_SSL listeners only; nobody may do anything without an ACL, except the
admin, as whom the nodes talk to each other.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tools.broker.errors import BrokerFault

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SCRAM: dict[Mechanism, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SCRAM_ITERATIONS = 4096
"""The least that Kafka takes."""

_LOGIN = "org.apache.kafka.common.security"
# In a JAAS line, a properties file and an argument of the storage tool nothing else needs quoting.
_SAFE = re.compile(r"[A-Za-z0-9._~-]+")


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """Who may log in, and the certificates. Every user may use PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512."""

    keystore: Path
    """PEM: the private key (PKCS#8, not encrypted) and after it the certificate chain; valid for 127.0.0.1."""
    ca: Path
    """PEM: the authority that clients and nodes trust."""
    users: Mapping[str, str]
    """Name → password, of letters, digits and ._~- only."""
    admin: str = "admin"
    """The one user whom no ACL binds."""

    def __post_init__(self) -> None:
        for user, password in self.users.items():
            if not (_SAFE.fullmatch(user) and _SAFE.fullmatch(password)):
                raise BrokerFault(f"user {user!r}: name and password take letters, digits and ._~-, choose others")
        if self.admin not in self.users:
            raise BrokerFault(f"the admin {self.admin!r} must be one of the users: {', '.join(self.users) or 'none'}")

    def __repr__(self) -> str:
        return f"<BrokerSecurity users {' '.join(self.users)}, admin {self.admin}>"

    def properties(self) -> dict[str, object]:
        """What server.properties says besides the addresses; it holds passwords."""
        plain = f'{_LOGIN}.plain.PlainLoginModule required username="{self.admin}" password="{self.users[self.admin]}"'
        plain += "".join(f' user_{name}="{password}"' for name, password in self.users.items()) + ";"
        scram = f"{_LOGIN}.scram.ScramLoginModule required;"
        return {
            "listener.security.protocol.map": "BROKER:SASL_SSL,CONTROLLER:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.broker.sasl.enabled.mechanisms": ",".join(["PLAIN", *SCRAM]),
            "listener.name.broker.plain.sasl.jaas.config": plain,
            **{f"listener.name.broker.{mechanism.lower()}.sasl.jaas.config": scram for mechanism in SCRAM},
            # The nodes use PLAIN: SCRAM's secrets lie in the metadata that they have only once they have met.
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": plain,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{self.admin}",
        }

    def format_arguments(self) -> list[str]:
        """What makes Kafka's storage tool write the SCRAM users; salted, so that `ps` shows no password."""
        return [
            argument
            for name, password in self.users.items()
            for mechanism in SCRAM
            for argument in ("--add-scram", _scram(mechanism, name, password))
        ]

    def login(self, user: str | None = None, mechanism: Mechanism = "SCRAM-SHA-512") -> dict[str, Any]:
        """Fields of `KafkaSettings` with which `user` (the admin, if none is named) connects."""
        name = user or self.admin
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_username": name,
            "sasl_password": self.users[name],
            "ssl_cafile": str(self.ca),
        }


def _scram(mechanism: Mechanism, name: str, password: str) -> str:
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(SCRAM[mechanism], password.encode(), salt, SCRAM_ITERATIONS)
    shown = f'salt="{_base64(salt)}",saltedpassword="{_base64(salted)}"'
    return f"{mechanism}=[name={name},iterations={SCRAM_ITERATIONS},{shown}]"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()

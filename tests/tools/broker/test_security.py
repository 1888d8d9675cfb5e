"""What a broker with access control is told."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from tools.broker import BrokerFault, BrokerSecurity
from tools.broker.properties import NodePlan, server_properties
from topics.settings import KafkaSettings

PLAN = NodePlan(1, 9092, 20000, Path("/data/node-1"))


def security(**users: str) -> BrokerSecurity:
    return BrokerSecurity(Path("/tls/broker.pem"), Path("/tls/ca.pem"), {"admin": "root-pw", **users})


def test_every_listener_wants_tls_and_a_login() -> None:
    """Also the controllers': nobody gets in by another door."""
    text = server_properties(PLAN, [PLAN], security(alice="alice-pw"))
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["listener.security.protocol.map"] == "BROKER:SASL_SSL,CONTROLLER:SASL_SSL"
    assert "PLAINTEXT" not in text.replace("PlainLoginModule", "")
    assert settings["authorizer.class.name"].endswith("StandardAuthorizer")
    assert settings["super.users"] == "User:admin"
    assert "allow.everyone.if.no.acl.found" not in settings
    assert 'user_alice="alice-pw"' in settings["listener.name.broker.plain.sasl.jaas.config"]


def test_without_security_nothing_changes() -> None:
    """The broker of a newcomer needs no certificate."""
    assert "BROKER:PLAINTEXT" in server_properties(PLAN, [PLAN]) and "ssl" not in server_properties(PLAN, [PLAN])


def test_scram_users_are_given_salted() -> None:
    """The list of processes shows what the storage tool is told."""
    arguments = security(alice="alice-pw").format_arguments()
    assert arguments[::2] == ["--add-scram"] * 4 and "-pw" not in "".join(arguments)
    found = re.fullmatch(
        r'SCRAM-SHA-512=\[name=alice,iterations=4096,salt="(.+)",saltedpassword="(.+)"\]', arguments[-1]
    )
    assert found
    salt, salted = map(base64.b64decode, found.groups())
    assert salted == hashlib.pbkdf2_hmac("sha512", b"alice-pw", salt, 4096)


def test_a_user_logs_in_with_what_the_broker_was_told() -> None:
    """As Kafka settings take it."""
    kafka = KafkaSettings(**security(alice="alice-pw").login("alice"))
    assert kafka.sasl_password and kafka.sasl_password.get_secret_value() == "alice-pw"
    assert (kafka.security_protocol, kafka.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")


def test_passwords_are_not_shown() -> None:
    """Tests print what they hold when they fail."""
    assert "-pw" not in repr(security(alice="alice-pw"))


@pytest.mark.parametrize("users", [{"alice": 'a"b'}, {"al;ice": "x"}, {"alice": ""}])
def test_names_that_would_need_quoting_are_refused(users: dict[str, str]) -> None:
    """They would end up in three formats with three ways to quote; the password is not in the text."""
    with pytest.raises(BrokerFault, match="letters, digits") as failure:
        security(**users)
    assert 'a"b' not in str(failure.value)


def test_the_admin_is_one_of_the_users() -> None:
    """The nodes themselves log in as the admin."""
    with pytest.raises(BrokerFault, match="'root' must be one of the users: admin"):
        BrokerSecurity(Path("k"), Path("c"), {"admin": "x"}, admin="root")

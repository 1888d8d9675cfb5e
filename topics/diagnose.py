"""Why a cluster cannot be reached, in one line for a person.

Called after a client failed to start: aiokafka logs the reason and raises a bare "unable to bootstrap". This
asks each address once more, with the same options, and gives the most telling answer. Changes nothing on the
cluster.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

_CONNECTION_OPTIONS = (
    "security_protocol",
    "ssl_context",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
)


class Finding(NamedTuple):
    """What one address said. The highest rank is told: "wrong password" says more than "nobody there"."""

    rank: int
    text: str


async def why_unreachable(options: Mapping[str, Any], *, within_s: float) -> str:
    """One line: the address, what happened there, what to do. `options` are `kafka.client_options(…)`."""
    hosts = collect_hosts(options["bootstrap_servers"], randomize=False)
    findings = await asyncio.gather(*(_ask(host, port, options, within_s) for host, port, _ in hosts))
    return max(findings, key=lambda finding: finding.rank).text


async def _ask(host: str, port: int, options: Mapping[str, Any], within_s: float) -> Finding:
    try:
        async with asyncio.timeout(within_s):
            brokers = await _brokers(host, port, options)
            for broker_host, broker_port in brokers:
                if (broker_host, broker_port) != (host, port):
                    await _advertised(broker_host, broker_port)
    except (KafkaError, OSError, TimeoutError, ValueError) as err:
        return _finding(f"{host}:{port}", err, options)
    return Finding(2, f"the cluster at {host}:{port} answers, but was not ready in time: try again")


async def _brokers(host: str, port: int, options: Mapping[str, Any]) -> list[tuple[str, int]]:
    connection = await create_conn(host, port, **{key: options[key] for key in _CONNECTION_OPTIONS})
    try:
        metadata = await connection.send(MetadataRequest([]))
    finally:
        connection.close()
    return [(broker[1], broker[2]) for broker in metadata.brokers]


class _Unadvertised(OSError):
    """The cluster names an address of its own that cannot be reached."""


async def _advertised(host: str, port: int) -> None:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as err:
        raise _Unadvertised(f"{host}:{port}") from err
    writer.close()


def _finding(address: str, err: Exception, options: Mapping[str, Any]) -> Finding:
    """Most particular class first: TLS errors are OSErrors, SASL errors are KafkaErrors."""
    protocol, mechanism = options["security_protocol"], options["sasl_mechanism"]
    user = options["sasl_plain_username"]
    match err:
        case UnsupportedSaslMechanismError():
            return Finding(
                9, f"the broker at {address} does not offer kafka.sasl_mechanism={mechanism}: choose one that it does"
            )
        case SaslAuthenticationFailed() | AuthenticationFailedError():
            return Finding(
                9,
                f"the broker at {address} refuses user {user!r} ({mechanism}): "
                "check kafka.sasl_username and kafka.sasl_password",
            )
        case IllegalSaslStateError():
            return Finding(8, f"the broker at {address} has no SASL: check kafka.security_protocol={protocol}")
        case ssl.SSLCertVerificationError():
            return Finding(
                8,
                f"the certificate of the broker at {address} is not trusted ({_reason(err)}): check kafka.ssl_cafile",
            )
        case ssl.SSLError():
            return Finding(7, f"TLS with the broker at {address} fails ({_reason(err)}): {_check(protocol)}")
        case _Unadvertised():
            return Finding(
                6,
                f"the cluster at {address} answers, but its broker at {err} cannot be reached: "
                "check its advertised.listeners",
            )
        case KafkaError() | ConnectionResetError() | ValueError():
            return Finding(5, f"the broker at {address} closes the connection: {_check(protocol)}")
    return Finding(
        1,
        f"no Kafka broker answers at {options['bootstrap_servers']} ({_reason(err)}): "
        "start one with `fleet broker start` or set FLEET_KAFKA__BOOTSTRAP_SERVERS",
    )


def _check(protocol: str) -> str:
    return f"check kafka.security_protocol={protocol} against the listener's"


def _reason(err: Exception) -> str:
    if isinstance(err, TimeoutError):
        return "timed out"
    if isinstance(err, ConnectionRefusedError):
        return "connection refused"
    for name in ("verify_message", "reason", "strerror"):
        if said := getattr(err, name, None):
            return str(said)
    return str(err) or type(err).__name__

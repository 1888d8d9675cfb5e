"""Just enough of a Kafka broker to refuse in the ways that a real one refuses; it stores nothing."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiokafka.protocol.admin import (
    ApiVersionResponse_v0,
    SaslAuthenticateResponse_v0,
    SaslHandShakeResponse_v1,
)
from aiokafka.protocol.metadata import MetadataResponse_v1

PRODUCE, METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 0, 3, 17, 18, 36
VERSIONS = [
    (API_VERSIONS, 0, 0),
    (METADATA, 1, 1),
    (SASL_HANDSHAKE, 1, 1),
    (SASL_AUTHENTICATE, 0, 0),
    (PRODUCE, 3, 3),
]

Answers = Mapping[int, Any]
"""api key → response; a request that is not among them is never answered."""


def api_versions() -> Any:
    """What every connection asks first."""
    return ApiVersionResponse_v0(0, VERSIONS)


def metadata(port: int, *topics: str) -> Any:
    """A cluster of one broker at 127.0.0.1:`port`, with topics of one partition."""
    return MetadataResponse_v1(
        [(1, "127.0.0.1", port, None)], 1, [(0, topic, False, [(0, 0, 1, [1], [1])]) for topic in topics]
    )


def handshake(*mechanisms: str, error_code: int = 0) -> Any:
    """Which SASL mechanisms are offered."""
    return SaslHandShakeResponse_v1(error_code, list(mechanisms))


def refused_login() -> Any:
    """SASL_AUTHENTICATION_FAILED."""
    return SaslAuthenticateResponse_v0(58, "Authentication failed", b"")


@contextlib.asynccontextmanager
async def fake_kafka(answers: Answers, port: int = 0) -> AsyncIterator[int]:
    """Listen on `port` (0: a free one); gives the port."""
    connections: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                api_key, _, correlation = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
                if api_key in answers:
                    body = struct.pack(">i", correlation) + answers[api_key].encode()
                    writer.write(struct.pack(">i", len(body)) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in connections:
            writer.close()
        await asyncio.sleep(0)

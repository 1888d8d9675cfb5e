"""The load on the systems behind HTTP, against a small server of our own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgpack
import numpy as np
import pytest

from tools.bench.peers.load import BadAnswer, answers, is_whole, play, request
from tools.bench.serving import Window

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"action":1}'


class NoProcess:
    """Stands where a server's process would."""

    def cpu_s(self) -> float:
        return 0.0

    def require_alive(self) -> None:
        return


@asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Gives `answer` to every request; its port, and the requests' bodies."""
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                bodies.append(await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0])))
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1], bodies


def window(seconds: float) -> Window:
    return Window([NoProcess()], seconds)  # type: ignore[list-item]


async def test_every_agent_asks_until_the_window_closes() -> None:
    """Each its own observation over one connection; what was measured is what came while it was open."""
    async with server(OK) as (port, bodies):
        questions = [request([number, 0.5], port, binary=False) for number in range(8)]
        run = await play(port, questions, window(0.2), 0.05, lambda seconds: None)
    asked = [json.loads(body)["observation"][0] for body in bodies]
    assert set(asked) == set(range(8))
    measured = run.lanes["normal"]
    assert 8 < measured.answered < len(bodies)
    assert run.decisions_per_s == pytest.approx(measured.answered / 0.2, rel=0.5)
    assert np.all(measured.latencies_s[0] > 0)


async def test_a_refusal_ends_the_run_with_its_words() -> None:
    """A system that sheds load must not look fast."""
    async with server(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull") as (port, _):
        question = request([1.0], port, binary=False)
        assert not await answers(port, question)
        with pytest.raises(BadAnswer, match=r"found 'HTTP/1.1 503 Service Unavailable': full"):
            await play(port, [question] * 3, window(0.1), 0.0, lambda seconds: None)


async def test_a_server_is_ready_when_it_gives_an_action() -> None:
    """Not before it listens."""
    async with server(OK) as (port, _):
        assert await answers(port, request([1.0], port, binary=False))
    assert not await answers(port, b"")


def test_a_request_carries_its_observation() -> None:
    """As JSON or as MessagePack, its length said."""
    for binary, read in ((False, json.loads), (True, msgpack.unpackb)):
        head, _, body = request([1.5, -2.0], 80, binary=binary).partition(b"\r\n\r\n")
        assert read(body) == {"observation": [1.5, -2.0]}
        assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (OK, True),
        (OK[:-1], False),
        (OK[:20], False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n7\r\n", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n7\r\n0\r\n\r\n", True),
    ],
)
def test_an_answer_is_whole_when_all_of_it_is_there(answer: bytes, whole: bool) -> None:
    """By its length, or by its last chunk."""
    assert is_whole(answer) is whole

"""512 agents behind HTTP, each with a connection of its own that stays open, asking again as soon as it is answered.

A bare client on asyncio's protocols: it must cost little, because it shares the machine with what it measures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgpack
import numpy as np

from tools.bench.results import Run
from tools.bench.serving import TIMEOUT_S, Window
from topics.errors import FleetError

PATH: Final = "/act"
LONGEST_BODY: Final = 65_536
OnSecond = Callable[[float], None]


class BadAnswer(FleetError):
    """A server answered something other than an action."""


def request(observation: Sequence[Any], port: int, *, binary: bool) -> bytes:
    """The bytes of one agent's POST: JSON, or with `binary` MessagePack."""
    fields = {"observation": observation}
    body = msgpack.packb(fields) if binary else json.dumps(fields, separators=(",", ":")).encode()
    kind = "application/msgpack" if binary else "application/json"
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + bytes(body)


def is_whole(answer: bytes) -> bool:
    """Whether `answer` holds a whole response.

    Raises:
        BadAnswer: it is not a 200, or longer than an action can be.
    """
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200 ") or len(body) > LONGEST_BODY:
        status = head.partition(b"\r\n")[0].decode(errors="replace")
        raise BadAnswer(f"expected an action, found {status!r}: {body[:100].decode(errors='replace')}")
    _, found, length = head.lower().partition(b"content-length:")
    if found:
        return len(body) >= int(length.split(b"\r\n", 1)[0])
    return body.endswith(b"0\r\n\r\n")  # chunked


class Agent(asyncio.Protocol):
    """One agent: asks, waits, asks again."""

    def __init__(self, question: bytes, window: Window, latencies_s: list[float]) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._question = question
        self._window = window
        self._latencies_s = latencies_s
        self._answer = b""
        self._asked_s = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Note how long the answer took, and ask again."""
        self._answer += data
        try:
            if not is_whole(self._answer):
                return
        except BadAnswer as error:
            self._end(error)
            return
        if self._window.is_open:
            self._latencies_s.append(time.monotonic() - self._asked_s)
        if self._window.is_over:
            self._end(None)
        else:
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody hangs up on us but by mistake."""
        self._end(BadAnswer(f"the server hung up: {error or 'without a word'}"))

    def hang_up(self) -> None:
        """It is over for this agent, whatever it waits for."""
        if not self.over.done():
            self.over.cancel()
        elif not self.over.cancelled():
            self.over.exception()  # looked at: another agent's error was told
        if self._transport:
            self._transport.close()

    def _ask(self) -> None:
        self._answer = b""
        self._asked_s = time.monotonic()
        assert self._transport
        self._transport.write(self._question)

    def _end(self, error: BadAnswer | None) -> None:
        if not self.over.done():
            self.over.set_exception(error) if error else self.over.set_result(None)
        if self._transport:
            self._transport.close()


async def play(port: int, questions: Sequence[bytes], window: Window, warm_s: float, on_second: OnSecond) -> Run:
    """One agent for each of `questions`, for as long as `window` says.

    Raises:
        BadAnswer: a server refused one, or hung up.
        ChildFailed: it ended.
    """
    latencies_s: list[float] = []
    loop = asyncio.get_running_loop()
    agents = [Agent(question, window, latencies_s) for question in questions]
    try:
        for agent in agents:
            await loop.create_connection(lambda agent=agent: agent, "127.0.0.1", port)  # type: ignore[misc]
        await window.run(warm_s, on_second)
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(agent.over for agent in agents))
    except TimeoutError as error:
        raise BadAnswer(f"an agent waited more than {TIMEOUT_S:g} s for its last answer") from error
    finally:
        for agent in agents:
            agent.hang_up()
    run = Run()
    run.lane("normal").add(np.array(latencies_s))
    return window.finish(run)


async def answers(port: int, question: bytes) -> bool:
    """Whether the server answers `question` with an action by now."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(question)
                answer = b""
                while not is_whole(answer):
                    if not (data := await reader.read(LONGEST_BODY)):
                        return False
                    answer += data
                return True
            finally:
                writer.close()
    except (OSError, TimeoutError, BadAnswer):
        return False

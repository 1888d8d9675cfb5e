"""The answers' process (`answers`) as the replay holds it: started, told what was sent, listened to, ended."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterable
from typing import Final

from tools.replay.answers import Found, Wanted, main
from topics.errors import FleetError

READY_WITHIN_S: Final = 60.0
"""A fresh Python with numpy and the Kafka client, on a busy machine."""
STOP_WITHIN_S: Final = 20.0
"""It finishes its file."""
POLL_S: Final = 0.05


class AnswersProcess:
    """`states` and `answered` are what it has read back so far; `found` is its last word."""

    def __init__(self, wanted: Wanted) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would take the event loop and its sockets along
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=main, args=(wanted, theirs), name="answers", daemon=True)
        self._process.start()
        theirs.close()
        self.is_ready = False
        self.states = 0
        self.answered = 0
        self.found: Found | None = None

    def __repr__(self) -> str:
        return f"<AnswersProcess pid {self._process.pid}, {self.answered} answered>"

    async def ready(self) -> None:
        """Until it reads. Raises `FleetError` if it ends before, or takes longer."""
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                while not self.is_ready and self.found is None:
                    self.listen()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise FleetError(f"the answers' process is not ready after {READY_WITHIN_S:g} s") from None
        if self.found is not None:
            raise FleetError(f"answers cannot be recorded: {self.found.error}")

    def listen(self) -> None:
        """Take in what it told; never waits. A process that died without a word gets one."""
        has_ended = self._process.exitcode is not None  # looked at before listening: its last words count
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                told = self._pipe.recv()
                if isinstance(told, Found):
                    self.found = told
                else:
                    self.is_ready = True
                    self.states, self.answered = told
        if has_ended and self.found is None:
            self.found = Found(self.states, self.answered, error=f"its process ended ({self._process.exitcode})")

    def sent(self, total: int, left_out: Iterable[int]) -> None:
        """All is sent: numbers below `total`, without those."""
        self._tell((total, frozenset(left_out)))

    def stop(self) -> None:
        """Wait for no more answers."""
        self._tell(None)

    def _tell(self, order: tuple[int, frozenset[int]] | None) -> None:
        with contextlib.suppress(OSError):  # it is dead, which `listen` finds out
            self._pipe.send(order)

    async def close(self) -> None:
        """End it: it finishes its file, or is killed."""
        self._pipe.close()
        await asyncio.to_thread(self._process.join, STOP_WITHIN_S)
        if self._process.exitcode is None:
            self._process.kill()

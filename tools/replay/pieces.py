"""The reading process: unpacks the recording and rewrites its states, so that the sender's loop never waits for that.

A process of its own, because in a thread each chunk that is unpacked holds the interpreter for ms, and states would be
late. It hears over the pipe when the first state is due, then gives pieces, and between them and at last `Heard`. Both
sides wait for the other when the pipe is full or empty, so memory is bounded.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tools.recording.read import Recording
from tools.recording.selection import Selection
from tools.replay.ahead import short_pauses
from tools.replay.outgoing import Outgoing, Unsendable
from tools.replay.send import Piece
from topics.errors import FleetError

STOP_WITHIN_S: Final = 5.0
"""It notices the closed pipe at its next piece."""


@dataclass(frozen=True, slots=True)
class Heard:
    """How many numbers there are (None: there is more to come), what cannot be sent, and what went wrong."""

    total: int | None
    unsendable: list[Unsendable]
    error: str | None = None


class PiecesProcess:
    """Iterate `pieces` once, in a thread: it waits. `total` is there when all came."""

    def __init__(self, recording: Path, selection: Selection, outgoing: Outgoing) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        words = (recording, selection, outgoing, theirs)
        self._process = spawn.Process(target=_main, args=words, name="reading", daemon=True)
        self._process.start()
        theirs.close()
        self.unsendable: list[Unsendable] = []
        self.total: int | None = None

    def __repr__(self) -> str:
        return f"<PiecesProcess pid {self._process.pid}>"

    def wait_ready(self) -> None:
        """Until the recording is open. Raises `FleetError` if it cannot be."""
        self._hear()

    def pieces(self, begin_us: int) -> Iterator[Piece]:
        """The first state is due at `begin_us`, Unix µs. Raises `FleetError` where the recording is damaged."""
        self._pipe.send(begin_us)
        while self.total is None:
            if isinstance(heard := self._hear(), Piece):
                yield heard

    def _hear(self) -> Piece | Heard:
        try:
            heard: Piece | Heard = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(STOP_WITHIN_S)
            raise FleetError(f"the process that reads the recording ended ({self._process.exitcode})") from None
        if isinstance(heard, Heard):
            self.total = heard.total
            self.unsendable += heard.unsendable
            if heard.error is not None:
                raise FleetError(heard.error)
        return heard

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.join(STOP_WITHIN_S)
        if self._process.exitcode is None:
            self._process.kill()


def _main(recording: Path, selection: Selection, outgoing: Outgoing, pipe: Connection) -> None:
    """The process. Ctrl-C is for the replay, which then closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with short_pauses(), contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
        try:
            opened = Recording.open(recording)
            pipe.send(Heard(None, []))
            for piece in outgoing.pieces(lambda: opened.records(selection), pipe.recv()):
                pipe.send(piece)
                if outgoing.unsendable:
                    pipe.send(Heard(None, outgoing.unsendable))
                    outgoing.unsendable.clear()
        except FleetError as error:
            pipe.send(Heard(None, outgoing.unsendable, str(error)))
        else:
            pipe.send(Heard(outgoing.total, outgoing.unsendable))

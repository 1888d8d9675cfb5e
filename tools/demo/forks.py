"""The nursery as the demo holds it: started early, asked for warm processes later."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias

from tools.demo.child import Child, ProcessEnded, launch, stop

Role: TypeAlias = Literal["worker", "local"]
TOLD_BYTES: Final = 1 << 16
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's library would start threads at import, and a process with threads must not fork."""


class Forks:
    """Starts processes that have torch imported already."""

    def __init__(self, folder: Path) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = ["-m", "tools.demo.nursery", str(theirs.fileno())]
        with theirs:
            self._child = launch("nursery", words, folder, fds=(theirs.fileno(),), environment=ONE_THREAD)
        self._exits: dict[int, int] = {}
        self._is_warm = False

    def wait_warm(self) -> None:
        """Until torch is imported. Raises ProcessEnded."""
        while not self._is_warm:
            self._hear(wait=True)

    def start(self, name: str, role: Role, words: Sequence[str], folder: Path) -> Child:
        """A worker or a local player, as the program `words`; what it writes to standard error goes to its log.

        Raises:
            ProcessEnded: the nursery has ended.
        """
        self.wait_warm()
        log = folder / f"{name}.log"
        ask = json.dumps({"role": role, "words": list(words)}).encode()
        their_input, our_input = os.pipe()
        our_output, their_output = os.pipe()
        errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            socket.send_fds(self._channel, [ask], [their_input, their_output, errors])
        except OSError:
            raise ProcessEnded(self._child) from None
        finally:
            for stream in (their_input, their_output, errors):
                os.close(stream)
        while (pid := self._hear(wait=True)) is None:
            pass
        return Child(name, log, Fork(self, pid, os.fdopen(our_input, "wb"), os.fdopen(our_output, "rb")))

    def exit_of(self, pid: int) -> int | None:
        """None while it runs. With the nursery gone its forks are going too: they count as ended by SIGTERM."""
        if pid not in self._exits and self._child.exit_code is not None:
            self._exits[pid] = -signal.SIGTERM
        while pid not in self._exits:
            before = len(self._exits)
            self._hear(wait=False)
            if len(self._exits) == before:
                return None
        return self._exits[pid]

    def close(self) -> None:
        """End the nursery, and with it whatever fork is left."""
        stop([self._child], within_s=0.0)
        self._channel.close()

    def _hear(self, *, wait: bool) -> int | None:
        """Take in one thing that the nursery tells; the pid, if it is about a new fork."""
        try:
            told = self._channel.recv(TOLD_BYTES, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            told = b""
        if not told:
            if wait:
                raise ProcessEnded(self._child)
            return None
        return self._understand(json.loads(told))

    def _understand(self, told: dict[str, Any]) -> int | None:
        if "warm" in told:
            self._is_warm = True
        elif "exit" in told:
            self._exits[told["pid"]] = told["exit"]
        else:
            return int(told["pid"])
        return None


class Fork:
    """What `Child` needs of a process, for one that is not our child but the nursery's."""

    def __init__(self, forks: Forks, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._forks = forks
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout

    def poll(self) -> int | None:
        return self._forks.exit_of(self.pid)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

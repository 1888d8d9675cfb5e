"""A process of the demo: started with us as its life line, heard line by line, stopped by pid in bounded time.

Each has a session of its own, so Ctrl-C reaches the demo alone, which then stops them in the right order.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tools.broker import die_with_parent
from tools.broker.diagnose import tail
from topics.errors import FleetError

TAIL_BYTES: Final = 64 * 1024
AFTER_SIGKILL_S: Final = 2.0
"""The kernel takes some ms to end a process of 500 MB."""
POLL_S: Final = 0.02
STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
READ_BYTES: Final = 1 << 20


class Child:
    """`python <words>`; what it writes to standard error goes to `log`."""

    def __init__(self, name: str, words: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._rest = b""
        command = [sys.executable, *words]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *command]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def give_turn(self, servers: str) -> None:
        """It may go on: the cluster is there, at `servers`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead, which `exit_code` tells
            self._process.stdin.write(f"{servers}\n".encode())
            self._process.stdin.flush()

    def heard(self) -> list[dict[str, Any]]:
        """What it told since the last call; never waits."""
        assert self._process.stdout is not None
        while part := self._read():
            self._rest += part
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        try:
            return os.read(self._process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return b""

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.exit_code is None:
            self._process.send_signal(number)

    def last_words(self) -> str:
        """Why it ended, in one line: its last `error: …`, else the last line of its log, else how it ended."""
        lines = [line.strip() for line in tail(self.log, TAIL_BYTES).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        if errors:
            return errors[-1].removeprefix("error: ")
        code = self.exit_code
        how = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return f"{how}; {lines[-1][:200]}" if lines and (code or 0) > 0 else how

    def __repr__(self) -> str:
        return f"<Child {self.name} pid {self.pid} {'runs' if self.exit_code is None else self.exit_code}>"


class ProcessEnded(FleetError):
    """A process of the demo ended although it was needed; its log is kept."""

    def __init__(self, child: Child) -> None:
        super().__init__(f"{child.name} ended: {child.last_words()} (log: {child.log})")


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block has ended: a process that is started here is also written down.

    Handlers, not a mask or SIG_IGN: those the process that is started would inherit.
    """
    received: list[int] = []
    before = {one: signal.signal(one, lambda number, _: received.append(number)) for one in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


def stop(children: Iterable[Child], within_s: float) -> list[Child]:
    """SIGTERM to all at once, SIGKILL after that time; those that had to be killed."""
    asked = list(children)
    for child in asked:
        child.signal(signal.SIGTERM)
    _wait(asked, within_s)
    killed = [child for child in asked if child.exit_code is None]
    for child in killed:
        child.signal(signal.SIGKILL)
    _wait(killed, AFTER_SIGKILL_S)
    return killed


def _wait(children: Sequence[Child], within_s: float) -> None:
    """Until all have ended, or the time is over."""
    give_up_at = time.monotonic() + within_s
    while any(child.exit_code is None for child in children) and time.monotonic() < give_up_at:
        time.sleep(POLL_S)

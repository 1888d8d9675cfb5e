"""The processes under test: started for one measurement, watched, and ended by their pid whatever happens.

Each is a fresh Python with its log in a file. On Linux it also ends when the bench is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

import tools.broker.die_with_parent as die_with_parent
from topics.errors import FleetError

START_WITHIN_S: Final = 60.0
"""torch from a cold disk takes 20 s on a slow machine."""
STOP_WITHIN_S: Final = 25.0
"""Longer than a worker's drain."""
POLL_S: Final = 0.05


class ChildFailed(FleetError):
    """A process under test ended, or did not get ready."""


class Child:
    """One process; `name` is what people know it by, `python` runs `command`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        python: str | Path = sys.executable,
    ) -> None:
        self.name = name
        self.log = log
        words = [str(python), *command]
        if sys.platform == "linux":
            script = str(die_with_parent.__file__)
            words = [sys.executable, "-I", "-S", script, str(os.getpid()), *words]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | environment,
                start_new_session=True,  # Ctrl-C is for the bench, which then ends it
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(STOP_WITHIN_S if kind is None else 3.0)

    def cpu_s(self) -> float:
        """CPU seconds used so far, all threads together."""
        self.require_alive()
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def require_alive(self) -> None:
        """Raises ChildFailed with the last thing that the process said, if it has ended."""
        if (code := self._process.poll()) is not None:
            raise ChildFailed(f"the {self.name} ended with code {code}: {last_words(self.log)} (log: {self.log})")

    async def ready(self, is_ready: Callable[[], bool], within_s: float = START_WITHIN_S) -> None:
        """Wait until `is_ready`. Raises ChildFailed if the process ends before, or takes longer."""
        give_up_at = time.monotonic() + within_s
        while True:
            self.require_alive()
            if await asyncio.to_thread(is_ready):
                return
            if time.monotonic() > give_up_at:
                said = last_words(self.log)
                raise ChildFailed(f"the {self.name} is not ready after {within_s:g} s: {said} (log: {self.log})")
            await asyncio.sleep(POLL_S)

    async def ended(self, within_s: float) -> str:
        """The last line of what it said, once it has ended by itself. Raises ChildFailed."""
        try:
            code = await asyncio.to_thread(self._process.wait, within_s)
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"the {self.name} goes on after {within_s:g} s (log: {self.log})") from None
        said = self.log.read_text(errors="replace").strip().splitlines()
        if code != 0 or not said:
            raise ChildFailed(f"the {self.name} ended with code {code}: {last_words(self.log)} (log: {self.log})")
        return said[-1]

    def stop(self, within_s: float = STOP_WITHIN_S) -> bool:
        """SIGTERM, and SIGKILL after `within_s`. Whether it ended by itself."""
        self._process.terminate()
        try:
            self._process.wait(within_s)
            return True
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False

    def __repr__(self) -> str:
        return f"<Child {self.name} pid {self.pid}>"


def last_words(log: Path) -> str:
    """The last line of a log that says something, the text of a JSON line rather than its braces."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "it said nothing"
    try:
        fields = json.loads(lines[-1])
        return str(fields.get("error") or fields.get("event") or lines[-1])[:300]
    except (ValueError, AttributeError):
        return lines[-1][:300]

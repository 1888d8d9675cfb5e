"""A peer's process, and whatever processes it starts itself: known by pid, ended with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from tools.bench.children import STOP_WITHIN_S, Child
from tools.bench.peers.environment import lend, log_of
from tools.bench.peers.job import Place
from tools.bench.peers.systems import System

QUIET: Final = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONSAFEPATH": "1",  # the folder that one runs it in is not for its imports
    "DO_NOT_TRACK": "1",
    "BENTOML_DO_NOT_TRACK": "True",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing is sent to anybody."""
END_WITHIN_S: Final = 3.0


class Peer(Child):
    """The process of one system, and those that it starts."""

    def cpu_s(self) -> float:
        """CPU seconds of all of them that run, so far."""
        return super().cpu_s() + sum(_cpu_s(process) for process in self._others())

    def stop(self, within_s: float = STOP_WITHIN_S) -> bool:
        """End the first one, which ends the others; then those that are still there."""
        others = self._others()
        ended = super().stop(within_s)
        left = [process for process in {*others, *self._others()} if process.is_running()]
        for process in left:
            _signal(process, kill=False)
        for process in psutil.wait_procs(left, END_WITHIN_S)[1]:
            _signal(process, kill=True)
        return ended

    def _others(self) -> list[psutil.Process]:
        """Its descendants, and what else runs in its session: nobody but us began either."""
        found: set[psutil.Process] = set()
        if psutil.pid_exists(self.pid):
            found.update(psutil.Process(self.pid).children(recursive=True))
        found.update(process for process in psutil.process_iter() if _session(process) == self.pid)
        return [process for process in found if process.pid != self.pid]


@contextmanager
def running(system: System, python: Path, place: Place) -> Iterator[Peer]:
    """The system at work."""
    with tempfile.TemporaryDirectory(prefix=f"fleet-peer-{system.name}-") as lent:
        lend(python, Path(lent))
        environment = {**QUIET, **place.environment(), "PYTHONPATH": lent}
        with Peer(f"{system.name} process", ("-m", system.module), environment, log_of(system), python) as peer:
            yield peer


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except OSError:
        return 0


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
        return float(times.user + times.system)
    except psutil.Error:
        return 0.0


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        process.kill() if kill else process.terminate()
    except psutil.Error:
        return

"""JVM processes: started with or without us as their life line, known by pid and start time, ended in bounds."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

POLL_S = 0.02
AFTER_SIGKILL_S = 5.0
_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_HAS_PROC = Path("/proc/self/stat").exists()

# Linux ties "die with the parent" to the *thread* that started the child: this one lives as long as we do.
_starter = ThreadPoolExecutor(1, thread_name_prefix="broker-starter")
_children: set[int] = set()


@dataclass(frozen=True, slots=True)
class Process:
    """A process and when it began: a recycled pid is another process."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has `pid` now; `began` is empty where there is none."""
        return cls(pid, _began(pid))

    @property
    def is_alive(self) -> bool:
        _reap(self.pid)
        return bool(self.began) and _began(self.pid) == self.began

    def signal(self, number: int) -> bool:
        """Send a signal, if the process is still the one that we mean."""
        if not self.is_alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return True

    def wait(self, within_s: float) -> bool:
        """Whether it ended within that time."""
        give_up_at = time.monotonic() + within_s
        while self.is_alive:
            if time.monotonic() > give_up_at:
                return False
            time.sleep(POLL_S)
        return True

    def kill(self) -> bool:
        """SIGKILL, then wait for the end. False if even that did not end it (it is stuck in the kernel)."""
        self.signal(signal.SIGKILL)
        return self.wait(AFTER_SIGKILL_S)


NO_PROCESS = Process(0, "")
"""Of a node that was not started, or was stopped."""


def launch(command: Sequence[str | Path], log: Path, *, detached: bool) -> Process:
    """Start `command` in a session of its own (Ctrl-C does not reach it), its output going to `log`.

    Detached, it survives us; else it gets SIGTERM when we end, however we end (on Linux).
    """
    words = [str(word) for word in command]
    if not detached and sys.platform == "linux":
        words = [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *words]
    pid = _starter.submit(_launch, words, log).result()
    _children.add(pid)
    return Process.of(pid)


def _launch(words: list[str], log: Path) -> int:
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(words[0], words, os.environ, file_actions=files, setsid=True, setsigdef=[signal.SIGPIPE])


def _reap(pid: int) -> None:
    """Collect a dead child of ours, which would else look alive for ever."""
    if pid in _children:
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # somebody else has collected it
            ended = pid
        if ended:
            _children.discard(pid)


def _began(pid: int) -> str:
    """When the process began, in a form that no change of the clock alters; empty if there is none."""
    try:
        if _HAS_PROC:
            # The name in the second field may hold spaces and brackets; the fields after it do not.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                return ""
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            return f"{boot[:8]}-{fields[19]}"
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except (OSError, psutil.Error, IndexError):
        return ""

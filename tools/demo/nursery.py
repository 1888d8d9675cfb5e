"""A process that imports torch once and then forks into workers and local players, each ready at once.

Importing torch takes 2 s of a core, and the demo would need it in every worker and in every process of the proof: on a
small machine that is most of its start. `forks` starts this and asks through a socket:

    asked    {"role": "worker" or "local", "words": […]} with the fork's standard input, output and error
    told     {"warm": true} once, {"pid": 7} for every fork, {"pid": 7, "exit": 0} for its end

A fork has a session of its own and gets SIGTERM when this process ends.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

from tools.broker.die_with_parent import PR_SET_PDEATHSIG

STREAMS: Final = 3
REQUEST_BYTES: Final = 1 << 20
LOOK_EVERY_S: Final = 0.05
"""How soon the end of a fork is told."""


class Nursery:
    """Forks whenever it is asked, until the other end of `channel` closes."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._alive: set[int] = set()

    def run(self) -> None:
        """Import, then serve."""
        import workers.lifecycle
        import workers.models.torch_backend  # noqa: F401

        gc.freeze()  # no collector writes into what we share with the forks
        self._tell(warm=True)
        while True:
            asked, _, _ = select.select([self._channel], [], [], LOOK_EVERY_S if self._alive else None)
            if asked and not self._serve():
                return
            self._reap()

    def _serve(self) -> bool:
        """Answer one request; False if there will be no more."""
        asked, streams, _, _ = socket.recv_fds(self._channel, REQUEST_BYTES, STREAMS)
        if not asked:
            return False
        request = json.loads(asked)
        pid = os.fork()
        if pid == 0:
            self._channel.close()
            become(ROLES[request["role"]], request["words"], streams)
        for stream in streams:
            os.close(stream)
        self._alive.add(pid)
        self._tell(pid=pid)
        return True

    def _reap(self) -> None:
        for pid in list(self._alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._alive.discard(pid)
                self._tell(pid=pid, exit=os.waitstatus_to_exitcode(status))

    def _tell(self, **fields: Any) -> None:
        self._channel.send(json.dumps(fields).encode())


def worker() -> int:
    """`fleet worker …`, as the words say."""
    from tools.cli import main

    main()


def local() -> int:
    """Local play of the plan in the words."""
    from tools.demo.play_local import run

    return run()


ROLES: Final[dict[str, Callable[[], int]]] = {"worker": worker, "local": local}


def become(role: Callable[[], int], words: Sequence[str], streams: Sequence[int]) -> None:
    """Play this role as if it were the program `words`, with these standard streams. Never returns."""
    nursery = os.getppid()
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv = list(words)
    code = 1
    try:
        if os.getppid() == nursery:  # else it ended before we could ask
            code = _exit_code(role)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _exit_code(role: Callable[[], int]) -> int:
    """As the interpreter would give it."""
    try:
        return role()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    Nursery(socket.socket(fileno=int(sys.argv[1]))).run()

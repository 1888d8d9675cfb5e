"""A system's processes end with it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil

from tools.bench.peers.process import Peer

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PARENT = f"""
import subprocess, sys, time
for own_session in (False, True):
    child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=own_session)
    print(child.pid, flush=True)
time.sleep(60)
"""


def runs(pid: int) -> bool:
    """An ended orphan may stay in the table until somebody asks for it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_what_a_system_starts_itself_is_ended_too(tmp_path: Path) -> None:
    """Also in a session of its own, also if it does not listen to SIGTERM; and its CPU counts."""
    with Peer("ray process", ("-c", PARENT), {}, tmp_path / "log") as peer:
        await peer.ready(lambda: peer.log.read_text().count("up") == 2)
        pids = [int(word) for word in peer.log.read_text().split() if word.isdigit()]
        assert len(pids) == 2
        assert peer.cpu_s() >= sum(psutil.Process(pid).cpu_times().user for pid in pids)
        began_s = time.monotonic()
    while any(runs(pid) for pid in (peer.pid, *pids)):
        assert time.monotonic() - began_s < 40
        await asyncio.sleep(0.05)

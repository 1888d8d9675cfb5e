"""The demo from start to end: cluster, workers and agents start side by side, play, proof, everything stopped.

Every process is a child of this one and known by pid; whatever happens, `Demo.stop` ends them all within seconds.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from tools.demo.child import STOPPING, ProcessEnded
from tools.demo.cluster import choose_place
from tools.demo.demo import Demo
from tools.demo.options import Options
from tools.demo.packages import find_package
from tools.demo.result import Result
from topics.errors import FleetError
from workers.models.package import Manifest, read_manifest


def run(options: Options, console: Console) -> Result:
    """Play, prove, stop everything. Raises FleetError with one line when it cannot be played to its end."""
    model = (options.model or find_package(options.environment)).absolute()
    manifest = _playable(read_manifest(model))
    place = choose_place(options)
    folder = Path(tempfile.mkdtemp(prefix="fleet-demo-"))
    demo = Demo(options, console, place, model, manifest, folder)
    keeps_logs = False
    try:
        with _sigterm_like_ctrl_c():
            demo.start()
            result = demo.prove(demo.play())
        keeps_logs = bool(result.problems or result.warnings)
        return result
    except ProcessEnded:
        keeps_logs = True
        raise
    finally:
        with _deaf_to_signals():
            demo.stop()
        if not keeps_logs:
            shutil.rmtree(folder, ignore_errors=True)


def _playable(manifest: Manifest) -> Manifest:
    if len(manifest.inputs) != 1:
        names = ", ".join(spec.name for spec in manifest.inputs)
        raise FleetError(f"the demo plays models with one input, {manifest} takes {names}: choose another --model")
    return manifest


@contextlib.contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _deaf_to_signals() -> Iterator[None]:
    """Stopping is short and bounded: an impatient second Ctrl-C must not leave processes behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""A peer's virtual environment in the user's cache folder: made on demand, kept for the next time.

It holds the peer's pinned packages and nothing of ours. What the job itself needs (torch, numpy, our wire and models)
is lent to its processes by `lend`, so every system runs the very same model code.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from rich.console import Console

import tools
import topics
import workers
from tools.bench.children import last_words
from tools.bench.peers.systems import System
from tools.broker.folders import locked_folder
from tools.broker.paths import cache_folder
from topics.errors import FleetError

COMPLETE: Final = ".complete"
"""Written last: an environment without it was cut off and is made anew."""
INSTALL_WITHIN_S: Final = 900.0
LENT: Final = ("torch", "numpy", "msgpack", "ml_dtypes", "safetensors")
"""What the job imports. Installing torch once more for each peer would take gigabytes."""


class NotInstalled(FleetError):
    """A peer's packages cannot be installed here."""


def python_of(system: System, console: Console) -> Path:
    """The Python of its environment, which is made if it is not there.

    Raises:
        NotInstalled: with the installer's last line.
    """
    with locked_folder(cache_folder() / "peers" / system.folder) as folder:
        python = folder / "venv" / "bin" / "python"
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder / "venv", ignore_errors=True)
            _make(system, folder, python, console)
            (folder / COMPLETE).touch()
        return python


def log_of(system: System) -> Path:
    """Where its process writes; beside its environment, so that it is still there afterwards."""
    return cache_folder() / "peers" / system.folder / "last-run.log"


def _make(system: System, folder: Path, python: Path, console: Console) -> None:
    log, venv, pins = folder / "install.log", str(folder / "venv"), str(system.pins_file)
    if uv := shutil.which("uv"):
        create = [uv, "venv", "--python", sys.executable, venv]
        install = [uv, "pip", "install", "--python", str(python), "--requirement", pins]
    else:
        create = [sys.executable, "-m", "venv", venv]
        install = [str(python), "-m", "pip", "install", "--progress-bar", "off", "--requirement", pins]
    title = f"{system.package} {system.version}"
    console.print(f"Installing {title}, {len(system.pins())} packages, into {folder} (once)")
    with log.open("wb") as output, console.status(title) as status:
        for command in (create, install):
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            try:
                _wait(process, lambda: status.update(f"{title}: {last_words(log)[:60]}"))
            finally:
                process.kill()
                process.wait()
            if process.returncode:
                raise NotInstalled(f"{title} cannot be installed: {last_words(log)} (log: {log})")


def _wait(process: subprocess.Popen[bytes], on_second: Callable[[], None]) -> None:
    give_up_at = time.monotonic() + INSTALL_WITHIN_S
    while time.monotonic() < give_up_at:
        try:
            process.wait(1.0)
            return
        except subprocess.TimeoutExpired:
            on_second()


def lend(python: Path, folder: Path) -> None:
    """Fill `folder`, meant for PYTHONPATH, with links to our code and to what the job imports.

    What the environment has itself is left out: its own version wins.
    """
    theirs = next(python.parent.parent.glob("lib/python*/site-packages"))
    for package in (topics, workers, tools):
        (folder / package.__name__).symlink_to(Path(str(package.__file__)).parent)
    for lent in needed(LENT):
        for name in _top_names(lent):
            if not (theirs / name).exists() and not (folder / name).exists():
                (folder / name).symlink_to(Path(str(lent.locate_file(name))))


def needed(roots: Iterable[str]) -> list[Distribution]:
    """`roots` and everything they require here, directly or not; what is not installed is not needed."""
    found: dict[str, Distribution] = {}
    todo, seen = [Requirement(name) for name in roots], set()
    while todo:
        wanted = todo.pop()
        if (key := (wanted.name, *sorted(wanted.extras))) in seen:
            continue
        seen.add(key)
        try:
            found[wanted.name] = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        todo += [
            requirement
            for requirement in map(Requirement, found[wanted.name].requires or ())
            if requirement.marker is None
            or any(requirement.marker.evaluate({"extra": extra}) for extra in wanted.extras or {""})
        ]
    return list(found.values())


def _top_names(lent: Distribution) -> set[str]:
    """What the distribution put into site-packages: folders and files, not its scripts."""
    return {file.parts[0] for file in lent.files or () if file.parts[0] not in ("..", "__pycache__")}

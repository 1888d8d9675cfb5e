"""Everything that a broker needs before its first start, and that later starts find in the cache folder.

Java, the jars (fetched once, hashed on every start) and Kafka's bootstrap records. Two processes that start their
first broker at the same time wait for each other.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from tools.broker.errors import BrokerDied
from tools.broker.fetch import fetch
from tools.broker.folders import locked_folder
from tools.broker.jars import Jar, classpath, jar_folder, locked, missing
from tools.broker.java import Java, find_java
from tools.broker.paths import KAFKA_VERSION, kafka_folder
from tools.broker.properties import NodePlan, server_properties
from tools.broker.security import BrokerSecurity

FORMAT_WITHIN_S = 60


@dataclass(frozen=True, slots=True)
class Installation:
    """A Kafka that can be run: Java, class path, and the records that every new node begins with."""

    java: Java
    classpath: str
    bootstrap: Path

    def command(self, main_class: str, arguments: list[str], flags: list[str]) -> list[str]:
        return [str(self.java.path), *self.java.flags, *flags, "-cp", self.classpath, main_class, *arguments]


def install(console: Console) -> Installation:
    """What a start needs, fetched and made if it is not there.

    Raises:
        JavaUnusable, JarsUnavailable, DiskFull, BrokerDied: each one line.
    """
    java = find_java()
    jars = locked()
    with locked_folder(kafka_folder()) as folder:
        for unfinished in folder.glob(".*-*"):  # of a process that was killed: we alone hold the lock
            shutil.rmtree(unfinished, ignore_errors=True)
        if wrong := missing(jars, jar_folder()):
            _fetch(wrong, console)
            for stale in folder.glob("startup-*"):  # it would not fit the new files
                stale.unlink()
        installation = Installation(java, classpath(jars, jar_folder()), folder / "bootstrap.checkpoint")
        if not installation.bootstrap.exists():
            make_bootstrap(installation, installation.bootstrap)
    return installation


def _fetch(jars: list[Jar], console: Console) -> None:
    damaged = [jar.name for jar in jars if (jar_folder() / jar.name).exists()]
    if damaged:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        console.print(f"{damaged[0]}{more} in {jar_folder()} is damaged: fetching it again")
    total = sum(jar.size_bytes for jar in jars)
    console.print(f"Downloading Apache Kafka {KAFKA_VERSION} ({total / 1e6:.0f} MB, once)")
    columns = (TextColumn("  "), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=total)
        fetch(jars, jar_folder(), lambda size_bytes: progress.advance(bar, size_bytes))


def make_bootstrap(installation: Installation, made: Path, security: BrokerSecurity | None = None) -> None:
    """Let Kafka's own tool format a folder and keep, as `made`, the records that a node begins with: features, users.

    Raises:
        BrokerDied: the tool fails.
    """
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".format-") as scratch:
        plan = NodePlan(1, 1, 2, Path(scratch))
        properties = Path(scratch, "server.properties")
        properties.write_text(server_properties(plan, [plan]))
        arguments = ["format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA", "--config", str(properties)]
        arguments += security.format_arguments() if security else []
        command = installation.command("kafka.tools.StorageTool", arguments, [])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_WITHIN_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as err:
            raise BrokerDied(f"Kafka's storage tool cannot be run: {err}; FLEET_JAVA names another Java") from err
        written = plan.data / "bootstrap.checkpoint"
        if done.returncode or not written.exists():
            last = (done.stderr or done.stdout or "it said nothing").strip().splitlines()[-1][:200]
            raise BrokerDied(f"Kafka's storage tool failed: {last}")
        shutil.move(written, made)

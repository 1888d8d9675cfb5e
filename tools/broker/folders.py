"""A cluster's folder: who holds it, what lies in it, and whether there is room for more.

<data dir>/cluster.json     which cluster this is, and its processes while it runs
<data dir>/node-1/data/     Kafka's own files
<data dir>/node-1/broker.log, server.properties
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.broker.errors import BrokerFault, DiskFull
from tools.broker.processes import Process

RECORD = "cluster.json"
# What an empty cluster writes (index files are sparse but count up), and room to work with.
LEAST_FREE_MB = 500


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node as its cluster's file knows it; `pid` 0 and `began` empty where it was never started."""

    id: int
    port: int
    controller_port: int
    pid: int
    began: str

    @property
    def process(self) -> Process:
        return Process(self.pid, self.began)


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """What `cluster.json` holds: the cluster's identity, and what is needed to find its processes again."""

    cluster_id: str
    nodes: tuple[NodeRecord, ...]

    @classmethod
    def read(cls, folder: Path) -> ClusterRecord | None:
        """None where no cluster has been.

        Raises:
            BrokerFault: the file is there but cannot be understood.
        """
        path = folder / RECORD
        try:
            fields = json.loads(path.read_text())
            nodes = tuple(NodeRecord(**node) for node in fields["nodes"])
            return cls(fields["cluster_id"], nodes)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as err:
            raise BrokerFault(f"{path} cannot be read ({err}): move {folder} out of the way") from err

    def write(self, folder: Path) -> None:
        part = folder / f"{RECORD}.part"
        part.write_text(json.dumps(asdict(self), indent=2) + "\n")
        part.replace(folder / RECORD)


def new_id() -> str:
    """A random ID as Kafka writes them: 16 bytes, base64 without padding, no leading dash (a tool's flag)."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def format_node(data: Path, node_id: int, cluster_id: str, bootstrap: Path) -> None:
    """What Kafka's storage tool would write into an empty data folder. A formatted one is left alone."""
    meta = data / "meta.properties"
    if meta.exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(bootstrap, data / "bootstrap.checkpoint")
    # Last, because it is what marks the folder as formatted.
    meta.write_text(f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={new_id()}\n")


def require_space(folder: Path) -> None:
    """Raises DiskFull when there is too little room for a broker to work."""
    free_mb = shutil.disk_usage(folder).free // 1_000_000
    if free_mb < LEAST_FREE_MB:
        raise DiskFull(
            f"only {free_mb} MB are free for Kafka's data in {folder}, it needs {LEAST_FREE_MB}: "
            "free some space, or choose another place with --data-dir"
        )


def require_ours(folder: Path) -> None:
    """Raises BrokerFault for a folder that holds something else: Kafka's files do not belong there."""
    foreign = [path.name for path in folder.iterdir() if path.name not in (RECORD, ".lock")]
    if foreign and not (folder / RECORD).exists():
        raise BrokerFault(f"{folder} holds {foreign[0]} and no broker's data: choose another with --data-dir")


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """Make `folder` and hold it alone: a second starter waits here.

    Raises:
        BrokerFault: it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as err:
        raise BrokerFault(f"cannot write to {folder}: {err.strerror}; choose another with --data-dir") from err
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder

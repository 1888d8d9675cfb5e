"""What Kafka is told: the server.properties of one node. A pure function; reasons stand beside the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.broker.ports import LOOPBACK
from tools.broker.security import BrokerSecurity


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Where one node listens and stores. Every node is broker and controller."""

    id: int
    port: int
    controller_port: int
    folder: Path

    @property
    def data(self) -> Path:
        """Kafka's own files."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the JVM prints: warnings and errors."""
        return self.folder / "broker.log"


def replication(nodes: int) -> tuple[int, int]:
    """Replication factor and min in-sync replicas of a cluster: 3 and 2 from three nodes on, else 1 and 1."""
    return (3, 2) if nodes >= 3 else (1, 1)


def server_properties(node: NodePlan, cluster: Sequence[NodePlan], security: BrokerSecurity | None = None) -> str:
    """The text of server.properties for `node`, one of `cluster`; without `security` everybody may do everything."""
    settings = _addresses(node, cluster) | _replicated(len(cluster)) | _sized_for_one_machine()
    if security is not None:
        settings |= security.properties()
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _addresses(node: NodePlan, cluster: Sequence[NodePlan]) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "listeners": f"BROKER://{LOOPBACK}:{node.port},CONTROLLER://{LOOPBACK}:{node.controller_port}",
        "advertised.listeners": f"BROKER://{LOOPBACK}:{node.port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{one.id}@{LOOPBACK}:{one.controller_port}" for one in cluster),
        "log.dirs": node.data,
    }


def _replicated(nodes: int) -> dict[str, object]:
    copies, in_sync = replication(nodes)
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _sized_for_one_machine() -> dict[str, object]:
    return {
        "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a new topic
        "group.initial.rebalance.delay.ms": 0,  # a first worker has its partitions at once
        "group.min.session.timeout.ms": 1000,  # tests of a dead worker need not wait the usual 6 s
        # A killed node's partitions move, and a killed node may come back, after 4 s instead of 9 s.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 4000,
        # 50 partitions each by default, which is 50 folders and open files for a handful of groups.
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.num.partitions": 8,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "log.segment.bytes": 128 * 1024 * 1024,  # retention removes whole segments: 1 GiB ones live too long
        "log.segment.delete.delay.ms": 1000,
        "log.retention.check.interval.ms": 60_000,
        "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,  # the default, 128 MiB, is a quarter of our heap
    }

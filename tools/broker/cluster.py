"""A cluster of embedded brokers; each node is a process that can be stopped, killed, paused and started again.

All of it blocks; from a coroutine call it through `asyncio.to_thread` where the loop must go on meanwhile.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.broker.diagnose import why_it_died
from tools.broker.errors import BrokerDied, BrokerFault
from tools.broker.folders import ClusterRecord, NodeRecord
from tools.broker.ports import LOOPBACK
from tools.broker.processes import NO_PROCESS, Process
from tools.broker.properties import NodePlan
from tools.broker.ready import wait_ready
from tools.broker.security import BrokerSecurity
from tools.broker.threads import run_apart

STOP_WITHIN_S = 15.0
STOP_THROW_AWAY_WITHIN_S = 2.0
READY_WITHIN_S = 60.0
Launch = Callable[[NodePlan], Process]


class Node:
    """One broker process. A node that has ended keeps its last pid."""

    def __init__(self, plan: NodePlan, process: Process, launch: Launch) -> None:
        self.plan = plan
        self.process = process
        self._launch = launch

    @property
    def id(self) -> int:
        return self.plan.id

    @property
    def port(self) -> int:
        return self.plan.port

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> Path:
        return self.plan.log

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive

    def start(self) -> None:
        """Start the process unless it runs; the node is ready later (`Cluster.wait_ready`)."""
        if not self.is_alive:
            self.process = self._launch(self.plan)

    def stop(self, within_s: float = STOP_WITHIN_S) -> bool:
        """SIGTERM, and SIGKILL after that time. Whether it ended by itself."""
        self.resume()
        self.process.signal(signal.SIGTERM)
        if self.process.wait(within_s):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """SIGKILL, as when a machine fails.

        Raises:
            BrokerFault: the process does not end all the same.
        """
        if not self.process.kill():
            raise BrokerFault(f"Kafka's process {self.pid} does not end, not even by SIGKILL")

    def pause(self) -> None:
        """SIGSTOP, as when a machine hangs."""
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.signal(signal.SIGCONT)

    def require_alive(self) -> None:
        """Raises BrokerDied with the reason that the node's log gives."""
        if not self.is_alive:
            raise BrokerDied(f"Kafka has ended: {why_it_died(self.log)} (log: {self.log})")

    def record(self) -> NodeRecord:
        """This node for the cluster's file; without a process where none runs."""
        process = self.process if self.is_alive else NO_PROCESS
        return NodeRecord(self.id, self.port, self.plan.controller_port, process.pid, process.began)

    def __repr__(self) -> str:
        return f"<Node {self.id} port {self.port} pid {self.pid} {'alive' if self.is_alive else 'ended'}>"


class Cluster:
    """One to several nodes with one data directory, running or not."""

    def __init__(
        self,
        folder: Path,
        cluster_id: str,
        nodes: Sequence[Node],
        *,
        throw_away: bool = False,
        security: BrokerSecurity | None = None,
    ) -> None:
        self.folder = folder
        self.cluster_id = cluster_id
        self.nodes = tuple(nodes)
        self.security = security
        self._throw_away = throw_away

    @property
    def bootstrap_servers(self) -> str:
        """All nodes, as Kafka clients take them."""
        return ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)

    @property
    def is_alive(self) -> bool:
        """Whether any node runs."""
        return any(node.is_alive for node in self.nodes)

    def start(self) -> None:
        """Start the nodes that do not run. Not ready yet: `wait_ready`."""
        for node in self.nodes:
            node.start()
        self.save()

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        """Return once every node takes part and a record has gone in and come out.

        Raises:
            BrokerDied: a node has ended, or it takes too long.
        """

        def check() -> None:
            for node in self.nodes:
                node.require_alive()

        run_apart(wait_ready, [node.port for node in self.nodes], within_s, check, self.security)

    def stop(self, within_s: float = STOP_WITHIN_S) -> bool:
        """Stop all nodes at once, by force after that time. Whether all ended by themselves.

        One after the other would not do: the last one waits for a quorum that has gone. Even so the last of
        three takes 5 s, in which Kafka's Raft looks for a successor. Data that is thrown away is not waited for.
        """
        if self._throw_away:
            within_s = min(within_s, STOP_THROW_AWAY_WITHIN_S)
        for node in self.nodes:
            node.resume()  # a paused process would never see the signal
            node.process.signal(signal.SIGTERM)
        give_up_at = time.monotonic() + within_s
        clean = [node.process.wait(give_up_at - time.monotonic()) for node in self.nodes]
        for node in self.nodes:
            node.kill()
        if self._throw_away:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self.folder.exists():  # it may have been cleared away or unmounted since
            self.save()
        return all(clean)

    def save(self) -> None:
        """Write down the processes, so that another program finds them (`fleet broker stop`)."""
        ClusterRecord(self.cluster_id, tuple(node.record() for node in self.nodes)).write(self.folder)

    def __repr__(self) -> str:
        return f"<Cluster {self.bootstrap_servers} {' '.join(map(repr, self.nodes))}>"

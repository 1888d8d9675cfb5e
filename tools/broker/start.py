"""Starts a cluster, or finds one that was started before: what `fleet broker`, the demo and the tests call.

The order matters: what can go wrong without a process (folder, ports, space, Java, jars) is checked before one
runs.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tools.broker.archive import archive_flags, forget_archive
from tools.broker.cluster import READY_WITHIN_S, Cluster, Node
from tools.broker.diagnose import java_crashed
from tools.broker.errors import AlreadyRunning, BrokerDied, BrokerFault, PortTaken
from tools.broker.folders import ClusterRecord, locked_folder, new_id, require_ours, require_space
from tools.broker.install import install
from tools.broker.launch import launch_node
from tools.broker.paths import data_folder
from tools.broker.ports import LOOPBACK, free_ports, holder, is_taken
from tools.broker.processes import NO_PROCESS, Process
from tools.broker.properties import NodePlan
from tools.broker.security import BrokerSecurity

DEFAULT_PORT = 9092


def start_broker(
    *,
    port: int | None = None,
    nodes: int = 1,
    data_dir: Path | None = None,
    detached: bool = False,
    quiet: bool = True,
    ready_within_s: float = READY_WITHIN_S,
    security: BrokerSecurity | None = None,
) -> Cluster:
    """A running cluster that has passed a record through. Blocks 1–3 s, or until Kafka is fetched.

    Args:
        port: of the first node, the others follow it; None takes free ones.
        nodes: from three on, replication is 3 and 2 replicas must be in sync.
        data_dir: kept when the cluster stops. None: a folder of the port in the user's cache, or, without
            a port, a temporary one that goes with the cluster.
        detached: the cluster survives this process. Else it ends with it, however this process ends (Linux).
        quiet: say nothing; else downloads and the like are told on stderr.
        security: TLS, users and ACLs; the same whenever a data directory is used again.

    Raises:
        BrokerFault: one of its subclasses, one line: AlreadyRunning, PortTaken, DiskFull, JarsUnavailable,
            JavaUnusable, BrokerDied.
    """
    console = Console(stderr=True, quiet=quiet, highlight=False)
    throw_away = data_dir is None and port is None
    folder = _folder(port, data_dir)
    with locked_folder(folder):
        require_ours(folder)
        cluster = _planned(folder, port, nodes, console, security, detached=detached, throw_away=throw_away)
        try:
            cluster.start()
            cluster.wait_ready(ready_within_s)
        except BaseException as err:
            cluster.stop(within_s=2.0)
            if isinstance(err, BrokerDied) and any(java_crashed(node.log) for node in cluster.nodes):
                forget_archive()
            raise
    if not detached:
        _ending_with_us.add(cluster)
    return cluster


def find_broker(data_dir: Path) -> Cluster | None:
    """The cluster of a data directory, running or not; None if there has never been one.

    Raises:
        BrokerFault: what is in the folder cannot be understood.
    """
    record = ClusterRecord.read(data_dir)
    if record is None:
        return None
    nodes = [
        Node(_plan(data_dir, node.id, node.port, node.controller_port), node.process, _not_from_here)
        for node in record.nodes
    ]
    return Cluster(data_dir, record.cluster_id, nodes)


def _folder(port: int | None, data_dir: Path | None) -> Path:
    if data_dir is not None:
        return data_dir.expanduser().absolute()
    return Path(tempfile.mkdtemp(prefix="fleet-broker-")) if port is None else data_folder(port)


def _planned(
    folder: Path,
    port: int | None,
    nodes: int,
    console: Console,
    security: BrokerSecurity | None,
    *,
    detached: bool,
    throw_away: bool,
) -> Cluster:
    """A cluster whose nodes are not running yet, after everything that can be checked was checked."""
    before = find_broker(folder)
    if before and before.is_alive:
        pids = ", ".join(str(node.pid) for node in before.nodes if node.is_alive)
        raise AlreadyRunning(f"already running on {before.bootstrap_servers} (pid {pids}), data in {folder}")
    if before and len(before.nodes) != nodes:
        raise BrokerFault(
            f"{folder} holds a cluster of {len(before.nodes)} nodes, not {nodes}: "
            f"start it with --nodes {len(before.nodes)}, or choose another --data-dir"
        )
    plans = _plans(folder, port, nodes)
    require_space(folder)
    installation = install(console)
    flags = archive_flags(installation, console)
    cluster_id = before.cluster_id if before else new_id()

    def launch(plan: NodePlan) -> Process:
        return launch_node(installation, plan, plans, cluster_id, detached=detached, flags=flags, security=security)

    members = [Node(plan, NO_PROCESS, launch) for plan in plans]
    return Cluster(folder, cluster_id, members, throw_away=throw_away, security=security)


def _plans(folder: Path, port: int | None, nodes: int) -> list[NodePlan]:
    free = free_ports(2 * nodes)
    ports: Sequence[int] = free[nodes:] if port is None else range(port, port + nodes)
    for one in ports:
        if is_taken(one):
            raise PortTaken(
                f"port {one} is taken by {holder(one)}: stop it, choose another with --port, or, if it is a "
                f"Kafka that you want to use, set FLEET_KAFKA__BOOTSTRAP_SERVERS={LOOPBACK}:{one}"
            )
    return [_plan(folder, n + 1, ports[n], free[n]) for n in range(nodes)]


def _plan(folder: Path, node_id: int, port: int, controller_port: int) -> NodePlan:
    return NodePlan(node_id, port, controller_port, folder / f"node-{node_id}")


def _not_from_here(plan: NodePlan) -> Process:
    raise BrokerFault(f"node {plan.id} was started by another program, start it there")


_ending_with_us: weakref.WeakSet[Cluster] = weakref.WeakSet()
_our_pid = os.getpid()


@atexit.register
def _stop_all() -> None:
    """The brokers have their SIGTERM already (see processes); wait for them and clear their folders away."""
    if os.getpid() == _our_pid:
        for cluster in _ending_with_us:
            cluster.stop(within_s=5.0)

"""Starts one node: its folder formatted, its properties written, its log begun anew, its JVM running."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.broker.folders import format_node
from tools.broker.install import Installation, make_bootstrap
from tools.broker.processes import Process, launch
from tools.broker.properties import NodePlan, server_properties
from tools.broker.security import BrokerSecurity

HEAP_MB = 512
HEAP_MB_OF_MANY = 256
"""Per node, where several share the machine."""


def launch_node(
    installation: Installation,
    plan: NodePlan,
    cluster: Sequence[NodePlan],
    cluster_id: str,
    *,
    detached: bool,
    flags: Sequence[str] = (),
    security: BrokerSecurity | None = None,
) -> Process:
    """The started process of `plan`, one node of `cluster`; it is not ready yet."""
    format_node(plan.data, plan.id, cluster_id, _bootstrap(installation, plan, security))
    properties = plan.folder / "server.properties"
    properties.touch(mode=0o600)  # it may hold passwords
    properties.write_text(server_properties(plan, cluster, security))
    heap_mb = HEAP_MB if len(cluster) == 1 else HEAP_MB_OF_MANY
    memory = [f"-Xmx{heap_mb}m", f"-XX:ErrorFile={plan.folder}/java-crash.log"]
    command = installation.command("kafka.Kafka", [str(properties)], [*memory, *flags])
    return launch(command, _new_log(plan.log), detached=detached)


def _bootstrap(installation: Installation, plan: NodePlan, security: BrokerSecurity | None) -> Path:
    """Where no users are needed, the one that all share; else the node's own."""
    if security is None:
        return installation.bootstrap
    own = plan.folder / "bootstrap.checkpoint"
    if not own.exists():
        plan.folder.mkdir(parents=True, exist_ok=True)
        make_bootstrap(installation, own, security)
    return own


def _new_log(log: Path) -> Path:
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    return log

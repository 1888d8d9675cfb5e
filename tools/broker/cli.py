"""`fleet broker start|stop|status`: a real Apache Kafka on this machine, in the background until it is stopped.

Exit codes: 0 done, or already so; 3 not running (`status`), or it could not be started or stopped.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tools.broker.cluster import Cluster, Node
from tools.broker.diagnose import why_it_died
from tools.broker.errors import AlreadyRunning
from tools.broker.folders import locked_folder
from tools.broker.paths import KAFKA_VERSION, data_folder
from tools.broker.ports import free_ports, holder, is_taken
from tools.broker.start import DEFAULT_PORT, find_broker, start_broker

app = typer.Typer(no_args_is_help=True, help="Run a real Apache Kafka here: no Docker, no Java to install.")

Port = Annotated[int, typer.Option(help="Port of the first node; further nodes take the next ones.", min=0, max=65535)]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Where its data lies (default: a folder of the port in the user's cache).", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

NOT_RUNNING = 3
_console = Console(highlight=False, soft_wrap=True)


@app.command()
def start(
    port: Port = DEFAULT_PORT,
    data_dir: DataDir = None,
    nodes: Annotated[int, typer.Option(help="1, or 3 for replication 3 with 2 in sync.", min=1, max=9)] = 1,
    as_json: AsJson = False,
) -> None:
    """Start Kafka in the background; return when a record has gone in and come out.

    The first start fetches Kafka (45 MB); later ones work offline. Port 0 takes a free one.

    Example: fleet broker start --port 9192 --nodes 3
    """
    begin = time.monotonic()
    port = port or free_ports(1)[0]
    folder = _folder(port, data_dir)
    try:
        cluster = start_broker(port=port, nodes=nodes, data_dir=folder, detached=True, quiet=False)
        said = f"Kafka {KAFKA_VERSION} is ready on {cluster.bootstrap_servers} ({time.monotonic() - begin:.1f} s)"
    except AlreadyRunning as running:
        found, said = find_broker(folder), str(running)
        if found is None:
            raise
        cluster = found
    _report(cluster, said, as_json)


@app.command()
def stop(port: Port = DEFAULT_PORT, data_dir: DataDir = None) -> None:
    """Stop Kafka; its data stays. All is well if it does not run.

    Example: fleet broker stop --port 9192
    """
    folder = _folder(port, data_dir)
    cluster = _running(folder)
    if cluster is None:
        _console.print(_not_here(folder, port, data_dir))
        return
    with locked_folder(folder):
        clean = cluster.stop()
    _console.print(f"stopped {cluster.bootstrap_servers}{'' if clean else ' by force: it did not end in time'}")


@app.command()
def status(port: Port = DEFAULT_PORT, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Say whether Kafka runs here, where its data and log are. Exits 3 if it does not run.

    Example: fleet broker status --json
    """
    folder = _folder(port, data_dir)
    cluster = find_broker(folder)
    if cluster is None:
        if as_json:
            sys.stdout.write(json.dumps({"running": False, "data_dir": str(folder), "nodes": []}) + "\n")
        else:
            _console.print(_not_here(folder, port, data_dir))
        raise typer.Exit(NOT_RUNNING)
    state = "runs on" if cluster.is_alive else "does not run on"
    _report(cluster, f"Kafka {KAFKA_VERSION} {state} {cluster.bootstrap_servers}", as_json)
    if not cluster.is_alive:
        raise typer.Exit(NOT_RUNNING)


def _folder(port: int, data_dir: Path | None) -> Path:
    return data_dir.expanduser().absolute() if data_dir else data_folder(port)


def _running(folder: Path) -> Cluster | None:
    cluster = find_broker(folder)
    return cluster if cluster and cluster.is_alive else None


def _not_here(folder: Path, port: int, data_dir: Path | None) -> str:
    text = f"not running (data folder {folder})"
    if data_dir is None and is_taken(port):
        text += (
            f"; port {port} is taken by {holder(port)}: if that is a broker with data elsewhere, name its --data-dir"
        )
    return text


def _report(cluster: Cluster, said: str, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(_facts(cluster), indent=2) + "\n")
        return
    _console.print(said)
    _console.print(f"  data  {cluster.folder}")
    for node in cluster.nodes:
        _console.print(f"  node  {node.id}: port {node.port}, {_state(node)}, log {node.log}")


def _state(node: Node) -> str:
    if node.is_alive:
        return f"pid {node.pid}"
    return f"ended by itself: {why_it_died(node.log)}" if node.pid else "stopped"


def _facts(cluster: Cluster) -> dict[str, Any]:
    return {
        "running": cluster.is_alive,
        "bootstrap_servers": cluster.bootstrap_servers,
        "kafka": KAFKA_VERSION,
        "cluster_id": cluster.cluster_id,
        "data_dir": str(cluster.folder),
        "nodes": [
            {
                "id": node.id,
                "port": node.port,
                "pid": node.pid if node.is_alive else None,
                "log": str(node.log),
            }
            for node in cluster.nodes
        ],
    }

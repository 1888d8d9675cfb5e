"""`fleet broker` on a real Kafka: started, found, stopped, and clear about what stands in its way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import NewTopic
from rich.console import Console

from tools.broker import AlreadyRunning, BrokerDied, Cluster, PortTaken, find_broker, start_broker
from tools.broker.folders import RECORD, ClusterRecord, NodeRecord, format_node, new_id
from tools.broker.install import install
from tools.broker.jars import jar_folder, locked
from tools.broker.paths import kafka_folder
from tools.broker.ports import free_ports
from topics.kafka import make_admin, started
from topics.settings import KafkaSettings

pytestmark = pytest.mark.usefixtures("broker")  # what is fetched for it serves all the others


def fleet(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tools.cli import main; main()", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | environment, timeout=100, check=False
    )


@pytest.fixture
def own_cache(tmp_path: Path) -> Path:
    """A cache folder of its own, in which Kafka itself is there already."""
    cache = tmp_path / "cache"
    (cache / "kafka").mkdir(parents=True)
    (cache / "kafka" / kafka_folder().name).symlink_to(kafka_folder())
    return cache


@pytest.fixture(scope="module")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kept")
    yield folder
    if cluster := find_broker(folder):
        cluster.stop()


@pytest.fixture
def kept(kept_folder: Path) -> Cluster:
    """A running broker with a data directory that is kept; the one of the test before if that still runs."""
    found = find_broker(kept_folder)
    return found if found and found.is_alive else start_broker(data_dir=kept_folder)


def test_started_found_and_stopped_by_hand(own_cache: Path) -> None:
    """Every `fleet broker` command is a process of its own; the broker outlives the one that started it."""
    port = str(free_ports(1)[0])
    own = {"FLEET_CACHE_DIR": str(own_cache)}
    begun = fleet("broker", "start", "--port", port, **own)
    try:
        assert begun.returncode == 0, begun.stderr
        assert f"ready on 127.0.0.1:{port}" in begun.stdout

        again = fleet("broker", "start", "--port", port, **own)
        assert (again.returncode, again.stderr) == (0, "")
        assert "already running" in again.stdout

        facts = json.loads(fleet("broker", "status", "--port", port, "--json", **own).stdout)
        assert facts["running"]
        assert facts["bootstrap_servers"] == f"127.0.0.1:{port}"
        assert facts["data_dir"] == str(own_cache / "broker" / port)
        os.kill(facts["nodes"][0]["pid"], 0)
    finally:
        ended = fleet("broker", "stop", "--port", port, **own)
    assert (ended.returncode, ended.stdout) == (0, f"stopped 127.0.0.1:{port}\n")
    assert fleet("broker", "stop", "--port", port, **own).stdout.startswith("not running")
    assert fleet("broker", "status", "--port", port, **own).returncode == 3


def test_a_taken_port_is_named_with_its_holder(broker: Cluster) -> None:
    """One line on stderr, exit code 3, nothing started."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = fleet("broker", "start", "--port", str(port))
    assert found.returncode == 3
    assert found.stderr.startswith(f"error: port {port} is taken by ")
    assert f"(pid {os.getpid()})" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    with pytest.raises(PortTaken):
        start_broker(port=broker.nodes[0].port, data_dir=Path(broker.folder, "other"))


def test_one_data_directory_has_one_broker(kept: Cluster) -> None:
    """A second start says that the first one runs, and where."""
    with pytest.raises(AlreadyRunning, match=f"{kept.bootstrap_servers}.*{kept.nodes[0].pid}"):
        start_broker(data_dir=kept.folder)


def test_a_recycled_pid_is_not_taken_for_the_broker(kept: Cluster) -> None:
    """The machine was restarted, and another program has the old broker's pid: it is left alone."""
    kept.nodes[0].kill()
    path = kept.folder / RECORD
    record = json.loads(path.read_text())
    record["nodes"][0].update(pid=os.getpid(), began="before-the-restart")
    path.write_text(json.dumps(record))
    found = find_broker(kept.folder)
    assert found is not None
    assert not found.is_alive
    assert found.stop()  # sends no signal, else this test would end here
    assert start_broker(data_dir=kept.folder).is_alive


async def test_topics_outlive_a_restart(kept: Cluster) -> None:
    """The data directory holds them, whatever the port of the next start is."""
    await create_topic(kept, "lasting")
    assert kept.stop()
    again = start_broker(data_dir=kept.folder)
    kafka = KafkaSettings(bootstrap_servers=again.bootstrap_servers)
    async with started(make_admin(kafka, client_id="test"), kafka) as admin:
        assert "lasting" in await admin.list_topics()
    assert again.cluster_id == kept.cluster_id


async def create_topic(cluster: Cluster, name: str, copies: int = 1) -> None:
    kafka = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
    async with started(make_admin(kafka, client_id="test"), kafka) as admin:
        answer = await admin.create_topics([NewTopic(name, 1, copies)])
        assert answer.topic_errors[0][1] == 0, answer


def test_a_temporary_broker_leaves_nothing_behind() -> None:
    """Neither process nor folder, also when it is stopped twice."""
    cluster = start_broker()
    assert cluster.folder.exists()
    assert cluster.stop()
    assert cluster.stop()
    assert not cluster.is_alive
    assert not cluster.folder.exists()


def test_a_broker_that_dies_while_starting_says_why(tmp_path: Path) -> None:
    """Kafka's own reason in one line, and where the whole log is."""
    ClusterRecord(new_id(), (NodeRecord(1, 9092, 20000, 0, ""),)).write(tmp_path)
    format_node(tmp_path / "node-1" / "data", 7, new_id(), kafka_folder() / "bootstrap.checkpoint")
    with pytest.raises(BrokerDied, match=r"Kafka has ended: .*node.*\(log: .*broker\.log\)"):
        start_broker(data_dir=tmp_path)


def test_status_tells_of_a_broker_that_ended_by_itself(kept: Cluster) -> None:
    """Killed or crashed: somebody should look at the log."""
    kept.nodes[0].kill()
    found = fleet("broker", "status", "--data-dir", str(kept.folder))
    assert found.returncode == 3
    assert "ended by itself" in found.stdout


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A cache folder in which the last jar has lost its end."""
    cache = tmp_path / "cache"
    jars = cache / "kafka" / kafka_folder().name / "jars"
    jars.mkdir(parents=True)
    for jar in locked():
        (jars / jar.name).hardlink_to(jar_folder() / jar.name)
    (cache / "kafka" / kafka_folder().name / "bootstrap.checkpoint").hardlink_to(
        kafka_folder() / "bootstrap.checkpoint"
    )
    last = jars / locked()[-1].name
    content = last.read_bytes()
    last.unlink()
    last.write_bytes(content[:-100])
    return cache


def test_a_damaged_jar_without_a_connection_is_one_clear_line(damaged: Path, tmp_path: Path) -> None:
    """It is noticed before Kafka runs with it, and cannot be fetched through a proxy that is not there."""
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    offline = {"HTTPS_PROXY": nowhere, "https_proxy": nowhere, "M2_REPO": str(tmp_path / "none")}
    data = str(tmp_path / "data")
    found = fleet("broker", "start", "--port", "0", "--data-dir", data, FLEET_CACHE_DIR=str(damaged), **offline)
    name = locked()[-1].name
    assert found.returncode == 3, found.stderr
    assert f"{name} in " in found.stderr
    last = found.stderr.splitlines()[-1]
    assert last.startswith(f"error: cannot fetch {name} of Apache Kafka: the Maven repository cannot be reached")


def test_a_damaged_jar_is_fetched_again(damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Maven's own cache here, so that this test needs no connection; then all is as it should be."""
    jar = locked()[-1]
    maven = tmp_path / "m2"
    place = maven.joinpath(*jar.group.split("."), jar.artifact, jar.version, jar.name)
    place.parent.mkdir(parents=True)
    place.hardlink_to(jar_folder() / jar.name)
    monkeypatch.setenv("M2_REPO", str(maven))
    monkeypatch.setenv("FLEET_CACHE_DIR", str(damaged))
    assert not jar.is_at(jar_folder() / jar.name)
    install(Console(quiet=True))
    assert jar.is_at(jar_folder() / jar.name)

"""What a person gets wrong is told in one line, with a non-zero exit and without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.stories.fleet import COMMAND, Fleet
from tests.stories.models import FACTORY
from tools.broker.ports import free_ports
from topics.settings import KafkaSettings


def worker(*, flags: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    """`fleet worker` until it ends by itself."""
    environment = {
        **os.environ,
        "FLEET_HTTP__PORT": "0",
        "FLEET_LOG__LEVEL": "error",
        "FLEET_MODEL__FACTORIES": json.dumps([FACTORY]),
        **variables,
    }
    return subprocess.run([*COMMAND, *flags], env=environment, capture_output=True, text=True, timeout=60)


def assert_one_line(ended: subprocess.CompletedProcess[str], exit_code: int, *says: str) -> None:
    assert ended.returncode == exit_code, ended.stderr
    assert "Traceback" not in ended.stderr
    (line,) = ended.stderr.strip().splitlines()
    assert line.startswith("error: ")
    for text in says:
        assert text in line


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"FLEET_BATCH__MAX_BATCH": "many"}, ("batch.max_batch", "many", "FLEET_BATCH__MAX_BATCH")),
        ({"FLEET_BATCH__MAX_BACTH": "8"}, ("MAX_BACTH", "max_batch")),
        ({"FLEET_NAME": "my fleet"}, ("my fleet", "topic prefix")),
        ({"FLEET_DRAIN__REVOKE_TIMEOUT_S": "60"}, ("drain.revoke_timeout_s=60", "kafka.rebalance_timeout_ms=30000")),
    ],
)
def test_a_wrong_setting(variables: dict[str, str], says: tuple[str, ...]) -> None:
    """The line names the key, what was found and where it came from."""
    assert_one_line(worker(**variables), 2, *says)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    """The line names the directory that was looked at."""
    ended = worker(FLEET_MODEL__PATH=str(tmp_path / "nothing"))
    assert_one_line(ended, 4, str(tmp_path / "nothing"), "manifest.json")


def test_a_model_whose_weights_were_changed(probe: Path) -> None:
    """The hash in the manifest is checked."""
    (probe / "weights.safetensors").write_bytes(b"something else")
    assert_one_line(worker(FLEET_MODEL__PATH=str(probe)), 4, "weights.safetensors", "sha256")


def test_a_batch_that_the_model_cannot_take(probe: Path) -> None:
    """Settings and model contradict each other."""
    ended = worker(FLEET_MODEL__PATH=str(probe), FLEET_BATCH__MAX_BATCH="500")
    assert_one_line(ended, 2, "batch.max_batch=500", "at most 64", "probe v1")


def test_a_broker_that_is_not_there(probe: Path) -> None:
    """The line names the address and how to start one."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    ended = worker(FLEET_MODEL__PATH=str(probe), FLEET_KAFKA__BOOTSTRAP_SERVERS=address)
    assert_one_line(ended, 3, address, "fleet broker start")


@pytest.mark.broker
def test_topics_that_are_not_there(kafka: KafkaSettings, fleet_name: str, probe: Path) -> None:
    """The line names the topic and the command that creates it."""
    ended = worker(
        FLEET_MODEL__PATH=str(probe),
        FLEET_NAME=fleet_name,
        FLEET_KAFKA__BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
    )
    assert_one_line(ended, 3, f"{fleet_name}.states.high", "fleet topics apply")


@pytest.mark.broker
async def test_a_port_that_is_taken(fleet: Fleet, probe: Path) -> None:
    """Two workers on one machine need two ports for their probes."""
    first = await fleet.worker(probe).ready()
    port = first.events("starting")[0]["probes"].rsplit(":", 1)[1]
    ended = worker(
        FLEET_MODEL__PATH=str(probe),
        FLEET_NAME=fleet.settings.name,
        FLEET_KAFKA__BOOTSTRAP_SERVERS=fleet.settings.kafka.bootstrap_servers,
        FLEET_HTTP__PORT=port,
    )
    assert_one_line(ended, 1, port)

"""What all tests share: one embedded Kafka per session, a fleet name per test, settings for both.

A machine that cannot run the broker skips the tests that need it, unless CI or FLEET_REQUIRE_BROKER is set.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools.broker import BrokerFault, Cluster, start_broker
from topics.settings import KafkaSettings

# Taken out of the environment: the settings refuse variables of ours that they do not know.
_REQUIRED = [os.environ.pop("FLEET_REQUIRE_BROKER", None), os.environ.get("CI")]
BROKER_REQUIRED = any(value not in (None, "", "0", "false") for value in _REQUIRED)


# How long an example takes says something about the machine, which is shared, and nothing about the code.
settings.register_profile("fleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fleet")


@pytest.fixture(scope="session")
def broker() -> Iterator[Cluster]:
    """A Kafka on a port of its own, its data in a temporary folder; stopped by pid at the end."""
    try:
        cluster = start_broker(quiet=False)
    except BrokerFault as fault:
        if BROKER_REQUIRED:
            raise
        pytest.skip(f"no embedded broker on this machine: {fault}")
    yield cluster
    cluster.stop()


@pytest.fixture
def kafka(broker: Cluster) -> KafkaSettings:
    """Connection settings for the session's broker."""
    return KafkaSettings(bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def fleet_name() -> str:
    """A topic prefix that no other test uses."""
    return f"fleet-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no fleet.toml of the person who runs the tests counts; tables are 160 columns wide."""
    for name in os.environ:
        if name.startswith("FLEET_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

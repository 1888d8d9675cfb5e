"""`fleet topics`: tables for people, JSON and exit codes for programs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from tools.topics import app
from topics.errors import BrokerUnavailable, SettingsError
from topics.settings import KafkaSettings

pytestmark = pytest.mark.usefixtures("clean_environment")


def topics(*arguments: str) -> Result:
    """What `fleet topics …` prints and exits with; errors for the command line are raised."""
    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.broker
def test_plan_then_apply_then_check(kafka: KafkaSettings, fleet_name: str) -> None:
    """A newcomer's first three commands."""
    at = ("--fleet", fleet_name, "--bootstrap-servers", kafka.bootstrap_servers)
    plan = topics("plan", *at)
    assert plan.exit_code == 0
    assert all(f"{fleet_name}.{name}" in plan.stdout for name in ("states.high", "actions", "dead"))
    assert topics("check", *at).exit_code == 1
    applied = topics("apply", *at)
    assert (applied.exit_code, applied.stdout.count("created")) == (0, 5)
    checked = topics("check", *at)
    assert checked.exit_code == 0
    assert "are in order" in checked.stdout


@pytest.mark.broker
def test_programs_get_json_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings, fleet_name: str
) -> None:
    """What is left says why, so that a pipeline's log explains itself."""
    at = ("--fleet", fleet_name, "--bootstrap-servers", kafka.bootstrap_servers, "--json")
    assert topics("apply", *at).exit_code == 0
    monkeypatch.setenv("FLEET_TOPICS__PARTITIONS", "24")
    refused = topics("apply", *at)
    report = json.loads(refused.stdout)
    assert (refused.exit_code, report["in_order"], report["done"]) == (1, False, [])
    assert report["left"][0] == {
        "topic": f"{fleet_name}.states.high",
        "what": "partitions",
        "found": "12",
        "wanted": "24",
        "fix": "remap",
        "why": report["left"][0]["why"],
    }
    assert "--allow-remap" in report["left"][0]["why"]
    assert topics("apply", *at, "--allow-remap").exit_code == 0
    assert json.loads(topics("check", *at).stdout)["in_order"] is True


@pytest.mark.broker
def test_people_are_told_why_a_lane_does_not_grow(
    monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings, fleet_name: str
) -> None:
    """And which flag would do it."""
    at = ("--fleet", fleet_name, "--bootstrap-servers", kafka.bootstrap_servers)
    topics("apply", *at)
    monkeypatch.setenv("FLEET_TOPICS__PARTITIONS", "24")
    plan = topics("plan", *at)
    assert plan.exit_code == 0
    assert "needs --allow-remap" in plan.stdout
    assert "their order and their state break" in plan.stdout


def test_no_broker_is_one_line() -> None:
    """The command line prints it and exits with 3."""
    with pytest.raises(BrokerUnavailable, match=r"no Kafka broker answers at 127\.0\.0\.1:1 .*fleet broker start"):
        topics("check", "--bootstrap-servers", "127.0.0.1:1")


def test_bad_settings_are_one_line() -> None:
    """The command line prints it and exits with 2."""
    with pytest.raises(SettingsError, match="setting name is 'my fleet'"):
        topics("plan", "--fleet", "my fleet")

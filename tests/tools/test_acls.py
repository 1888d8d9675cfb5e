"""`fleet topics acls`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools.topics import app
from topics.acls import acls_of
from topics.errors import SettingsError
from topics.names import FleetNames

pytestmark = pytest.mark.usefixtures("clean_environment")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["acls", "--fleet", "game", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


def test_people_get_a_table_of_all_roles() -> None:
    """Without a cluster."""
    text = printed()
    assert all(f"User:{role}" in text for role in ("agent", "worker", "tools"))
    assert "game.states.high" in text and "game.dead" in text


def test_programs_get_the_rights_of_the_principals_they_name() -> None:
    """Several of one role too."""
    found = json.loads(printed("--json", "--principal", "agent=a", "--principal", "agent=User:b"))
    expected = [acl for user in ("User:a", "User:b") for acl in acls_of("agent", user, FleetNames("game"))]
    assert found == [acl._asdict() for acl in expected]


def test_commands_can_be_run_as_they_are() -> None:
    """One per line, and a comment that says whose login they need."""
    comment, *lines = printed("--kafka-acls", "--principal", "worker=gpu").splitlines()
    assert comment.startswith("# admin.properties")
    assert all(line.startswith("kafka-acls.sh --bootstrap-server 127.0.0.1:9092") for line in lines)
    assert any("--operation Read --group game.high --group game.normal --group game.low" in line for line in lines)


def test_reply_topics_of_the_settings_and_of_an_agent_count() -> None:
    """The worker's come from its settings, an agent's from the flag."""
    Path("fleet.toml").write_text('[reply]\ntopics = ["robots"]')
    found = json.loads(printed("--json", "--reply-topic", "robots"))
    assert {(one["principal"], one["operation"]) for one in found if one["name"] == "robots"} == {
        ("User:worker", "Write"),
        ("User:agent", "Read"),
    }
    assert ("User:agent", "game.actions") not in {(one["principal"], one["name"]) for one in found}


def test_exactly_once_adds_the_transactional_ids() -> None:
    """As many as the lanes have partitions."""
    Path("fleet.toml").write_text('delivery = "exactly_once"\n[topics]\npartitions = 2')
    lines = printed("--kafka-acls", "--principal", "worker=gpu")
    assert "--transactional-id game.high.0 --transactional-id game.high.1 --transactional-id game.normal.0" in lines
    assert "--transactional-id" not in printed("--kafka-acls", "--principal", "agent=a")


@pytest.mark.parametrize("wrong", ["alice", "boss=alice", "agent="])
def test_a_wrong_principal_is_one_line(wrong: str) -> None:
    """It names what was found and what is expected."""
    with pytest.raises(SettingsError, match=r"expected ROLE=NAME with one of the roles agent, worker, tools"):
        printed("--principal", wrong)

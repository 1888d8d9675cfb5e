"""`fleet settings`: what holds, and where it came from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tools.settings import command

pytestmark = pytest.mark.usefixtures("clean_environment")


def settings(*arguments: str) -> str:
    """What `fleet settings …` prints."""
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.exception
    return result.stdout


def test_changed_settings_tell_their_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what differs from the defaults."""
    Path("fleet.toml").write_text("[batch]\nmax_batch = 32\n")
    monkeypatch.setenv("FLEET_NAME", "cartpole")
    rows = [line for line in settings("--changed").splitlines() if "│" in line]
    assert len(rows) == 2
    assert all(word in rows[0] for word in ("name", "cartpole", "FLEET_NAME"))
    assert all(word in rows[1] for word in ("batch.max_batch", "32", "fleet.toml"))


def test_without_changes_it_says_so() -> None:
    """An empty table would leave a newcomer guessing."""
    assert "every setting has its default" in settings("--changed")


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the table and in JSON."""
    monkeypatch.setenv("FLEET_KAFKA__SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("FLEET_KAFKA__SASL_USERNAME", "me")
    monkeypatch.setenv("FLEET_KAFKA__SASL_PASSWORD", "hunter2")
    assert "hunter2" not in settings() + settings("--json")
    shown = json.loads(settings("--json"))
    assert shown["kafka.sasl_password"]["source"] == "FLEET_KAFKA__SASL_PASSWORD"
    assert set(shown["kafka.sasl_password"]["value"]) == {"*"}

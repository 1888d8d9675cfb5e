"""Secrets: from variables or from files, and shown to nobody."""

from __future__ import annotations

import json
import os
import traceback
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from topics.errors import SettingsError
from topics.settings import FleetSettings, KafkaSettings, describe, load_settings
from topics.settings_secrets import secret_keys, secret_variable
from workers.settings import Settings

VARIABLE, BY_FILE = "FLEET_KAFKA__SASL_PASSWORD", "FLEET_KAFKA__SASL_PASSWORD_FILE"
SECRET = "hunter2-4711"


@pytest.fixture(autouse=True)
def login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Settings that lack nothing but the password."""
    for name in os.environ:
        if name.startswith("FLEET_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEET_KAFKA__SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("FLEET_KAFKA__SASL_USERNAME", "me")


def password() -> str | None:
    found = load_settings(FleetSettings).kafka.sasl_password
    return found.get_secret_value() if found else None


def refusal() -> str:
    """The one line that load_settings refuses with; the secret is in no part of the error."""
    with pytest.raises(SettingsError) as failure:
        load_settings(FleetSettings)
    error = failure.value
    assert "\n" not in str(error)
    assert error.__cause__ is None and error.__context__ is None
    assert SECRET not in "".join(traceback.format_exception(error)) + repr(error)
    return str(error)


@pytest.mark.parametrize("line_end", ["", "\n", "\r\n"])
def test_a_secret_may_lie_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line_end: str) -> None:
    """As Docker and Kubernetes mount it; the line end that editors add is no part of it, a space is."""
    (tmp_path / "secret").write_bytes(f" {SECRET} {line_end}".encode())
    monkeypatch.setenv(BY_FILE, str(tmp_path / "secret"))
    assert password() == f" {SECRET} "
    shown = {one.key: one for one in describe(load_settings(FleetSettings))}["kafka.sasl_password"]
    assert (SECRET in str(shown.value), shown.source) == (False, BY_FILE)


@pytest.mark.parametrize("key", list(secret_keys(Settings)), ids=".".join)
def test_every_secret_has_its_file_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: tuple[str, ...]
) -> None:
    """Also secrets that are added later."""
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv(VARIABLE, "a password")
    name = secret_variable("FLEET_", key)
    if name == BY_FILE:
        monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv(name, str(tmp_path / "secret"))
    found: object = load_settings(Settings)
    for part in key:
        found = getattr(found, part)
    assert isinstance(found, SecretStr) and found.get_secret_value() == SECRET


def test_both_ways_at_once_are_a_mistake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody could tell which one holds."""
    monkeypatch.setenv(BY_FILE, str(tmp_path / "secret"))
    monkeypatch.setenv(VARIABLE, SECRET)
    assert refusal() == f"{BY_FILE} and {VARIABLE} both give kafka.sasl_password: unset one of them"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("FLEET_KAFKA", json.dumps({"sasl_password": SECRET}))
    assert f"{BY_FILE} and FLEET_KAFKA both give" in refusal()


def test_the_file_of_a_variable_beats_fleet_toml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment does, whichever way it gives the secret."""
    Path("fleet.toml").write_text('[kafka]\nsasl_password = "of the file"')
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv(BY_FILE, str(tmp_path / "secret"))
    assert password() == SECRET


def test_a_file_that_cannot_be_used_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variable, the path, what is wrong with it; nothing of its content."""
    for name, content, problem in (
        ("none", None, "cannot be read: No such file or directory"),
        ("empty", b"\n", "is empty"),
        ("binary", SECRET.encode() + b"\xff", "is not UTF-8 text"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        monkeypatch.setenv(BY_FILE, str(path))
        assert refusal() == f"secret file {path} (named by {BY_FILE}) {problem}"
    monkeypatch.setenv(BY_FILE, str(tmp_path))
    assert refusal().endswith("cannot be read: Is a directory")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("FLEET_KAFKA_SASL_PASSWORD_FILE", f"did you mean {BY_FILE}?"),
        ("FLEET_KAFKA__LINGER_MS_FILE", "did you mean kafka.linger_ms?"),
    ],
)
def test_a_wrong_file_variable_is_a_mistake(monkeypatch: pytest.MonkeyPatch, name: str, advice: str) -> None:
    """Only secrets have one."""
    monkeypatch.setenv(VARIABLE, SECRET)
    monkeypatch.setenv(name, "x")
    assert advice in refusal()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLEET_KAFKA", '{"sasl_password": "' + SECRET),
        ("FLEET_KAFKA", f'{{"sasl_password": ["{SECRET}"]}}'),
        ("FLEET_KAFKA", f'["{SECRET}"]'),
        ("FLEET_KAFKA__SECURITY_PROTOCOL", "PLAINTEXT"),
        ("FLEET_KAFKA__LINGER_MS", "soon"),
        ("FLEET_KAFKA__SASL_PASSWORT", SECRET),
    ],
)
def test_no_mistake_shows_a_secret(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Neither one in the secret itself nor one beside it."""
    if SECRET not in value:
        monkeypatch.setenv(VARIABLE, SECRET)
    monkeypatch.setenv(name, value)
    refusal()


def test_a_program_that_builds_wrong_settings_shows_no_secret() -> None:
    """pydantic prints a table that contradicts itself, which is how a password gets into a log."""
    for wrong in (
        {"sasl_password": SECRET},
        {"security_protocol": "SASL_SSL", "sasl_password": SECRET},
        {"sasl_password": SECRET, "linger_ms": "soon", "sasl_passwort": SECRET},
        {"sasl_password": [SECRET]},
    ):
        for model, values in ((KafkaSettings, wrong), (FleetSettings, {"kafka": wrong}), (Settings, {"kafka": wrong})):
            with pytest.raises(ValidationError) as failure:
                model(**values)  # type: ignore[arg-type]
            assert SECRET not in str(failure.value) + repr(failure.value)


def test_settings_show_no_secret() -> None:
    """As text, as repr, as JSON, in a dump that is printed."""
    kafka = KafkaSettings(security_protocol="SASL_SSL", sasl_username="me", sasl_password=SecretStr(SECRET))
    settings = Settings(kafka=kafka)
    shown: list[object] = [settings, kafka, settings.model_dump(), settings.model_dump_json(), describe(settings)]
    assert SECRET not in "".join(str(one) + repr(one) for one in shown)


def test_what_is_called_a_password_is_a_secret() -> None:
    """A secret that is declared as plain text would be shown."""

    def plain(model: type[BaseModel], at: tuple[str, ...] = ()) -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found += plain(inner, (*at, name))
            elif any(word in name for word in ("password", "secret", "token", "credential")):
                found += [".".join((*at, name))] * ((*at, name) not in secrets)
        return found

    secrets = set(secret_keys(Settings))
    assert secrets and not plain(Settings)

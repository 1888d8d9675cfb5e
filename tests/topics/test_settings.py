"""Settings: layers, refusals in one line, masked secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from topics.errors import SettingsError
from topics.settings import FleetSettings, KafkaSettings, TopicSettings, describe, load_settings
from workers.settings import Settings

pytestmark = pytest.mark.usefixtures("clean_environment")


def toml(text: str) -> Path:
    """./fleet.toml with this text."""
    path = Path("fleet.toml")
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**arguments: object) -> str:
    """The one line that load_settings refuses with."""
    with pytest.raises(SettingsError) as failure:
        load_settings(FleetSettings, **arguments)  # type: ignore[arg-type]
    line = str(failure.value)
    assert "\n" not in line
    return line


def test_defaults_need_nothing() -> None:
    """A newcomer configures nothing."""
    settings = load_settings(FleetSettings)
    assert settings.name == "fleet"
    assert settings.kafka.bootstrap_servers == "127.0.0.1:9092"
    assert settings.names.dead == "fleet.dead"


def test_flags_beat_environment_beats_file_beats_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer overrides single keys of the layers below it."""
    toml('name = "file"\n[kafka]\nlinger_ms = 1\nfetch_min_bytes = 1000\nsession_timeout_ms = 20000')
    monkeypatch.setenv("FLEET_KAFKA__LINGER_MS", "2")
    monkeypatch.setenv("FLEET_KAFKA__FETCH_MIN_BYTES", "2000")
    settings = load_settings(FleetSettings, overrides={"kafka": {"linger_ms": 3}, "name": None})
    kafka = settings.kafka
    assert (settings.name, kafka.linger_ms, kafka.fetch_min_bytes) == ("file", 3, 2000)
    assert (kafka.session_timeout_ms, kafka.heartbeat_interval_ms) == (20_000, 500)


def test_the_file_is_the_given_one_or_the_variables_or_the_local_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """--config beats $FLEET_CONFIG beats ./fleet.toml."""
    toml('name = "local"')
    named, given = tmp_path / "named.toml", tmp_path / "given.toml"
    named.write_text('name = "named"')
    given.write_text('name = "given"')
    assert load_settings(FleetSettings).name == "local"
    monkeypatch.setenv("FLEET_CONFIG", str(named))
    assert load_settings(FleetSettings).name == "named"
    assert load_settings(FleetSettings, config=given).name == "given"


def test_building_settings_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests and programs that build settings get what they wrote."""
    monkeypatch.setenv("FLEET_NAME", "surprise")
    assert FleetSettings().name == "fleet"


def test_settings_are_frozen() -> None:
    """Nobody changes a setting after the start."""
    with pytest.raises(ValidationError):
        FleetSettings().name = "other"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[kafka]\nsesion_timeout_ms = 1", ("kafka.sesion_timeout_ms", "fleet.toml", "session_timeout_ms?")),
        ("[kafak]\nlinger_ms = 1", ("unknown setting kafak", "fleet.toml", "did you mean kafka?")),
        ('[kafka]\nlinger_ms = "soon"', ("kafka.linger_ms", "'soon'", "fleet.toml", "a whole number")),
        ("[kafka]\nlinger_ms = -1", ("kafka.linger_ms", "-1", "at least 0")),
        ("[topics]\nretention_low_h = nan", ("topics.retention_low_h", "nan", "finite")),
        ("kafka = 3", ("setting kafka is 3", "a table of settings")),
        ('[kafka]\nbootstrap_servers = "http://a:9092"', ("'http://a:9092'", "host:port")),
        ('[kafka]\nsecurity_protocol = "TLS"', ("security_protocol", "'TLS'", "'SSL'")),
        ('name = "my fleet"', ("setting name", "'my fleet'", "topic prefix")),
        (
            '[[priority.rules]]\nlane = "urgent"\nwhen = { kind = "a" }',
            ("priority.rules[0].lane", "'urgent'", "'high'"),
        ),
        (
            '[[priority.rules]]\nlane = "high"\nwhen = {}',
            ("priority.rules[0].when", "at least one condition"),
        ),
        ('[[priority.rules]]\nlane = "high"', ("priority.rules[0].when is missing",)),
        ("name = \n", ("fleet.toml is not valid TOML", "line 1")),
        ("[kafka]\nlinger_ms = -1\nfetch_min_bytes = 0.5", ("and 1 more mistake",)),
    ],
)
def test_a_mistake_in_the_file_is_one_line(text: str, parts: tuple[str, ...]) -> None:
    """Key, found, expected and source."""
    toml(text)
    line = refusal()
    assert all(part in line for part in parts), line


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("FLEET_KAFKA_LINGER_MS", "1", ("FLEET_KAFKA_LINGER_MS", "did you mean FLEET_KAFKA__LINGER_MS?")),
        ("FLEET_CONFG", "x", ("unknown environment variable", "did you mean FLEET_CONFIG?")),
        ("FLEET_XYZZY", "x", ("unknown environment variable FLEET_XYZZY", "fleet settings")),
        ("FLEET_KAFKA__LINGERMS", "1", ("kafka.lingerms", "from FLEET_KAFKA__LINGERMS", "linger_ms?")),
        ("FLEET_KAFKA__LINGER_MS", "soon", ("kafka.linger_ms", "'soon'", "from FLEET_KAFKA__LINGER_MS")),
        ("FLEET_PRIORITY__RULES", "[" * 100_000, ("FLEET_", "nests hundreds of tables")),
        ("FLEET_X\nY", "1", ("unknown environment variable FLEET_X Y",)),
        ("FLEET_TOPICS__RETENTION_LOW_H", "1e308", ("topics.retention_low_h", "at most 1000000")),
        ("FLEET_TOPICS__RETENTION_LOW_H", "1e-9", ("topics.retention_low_h", "at least 0.001")),
        ("FLEET_PRIORITY__RULES", "high", ("FLEET_PRIORITY__RULES", "must be JSON")),
        ("FLEET_CONFIG", "/nowhere/fleet.toml", ("/nowhere/fleet.toml", "FLEET_CONFIG", "does not exist")),
    ],
)
def test_a_mistake_in_the_environment_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, parts: tuple[str, ...]
) -> None:
    """The variable is named."""
    monkeypatch.setenv(name, value)
    line = refusal()
    assert all(part in line for part in parts), line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLEET_BROKER_SERVICE_HOST", "10.0.0.1"),
        ("FLEET_BROKER_PORT", "tcp://10.0.0.1:9092"),
        ("FLEET_BROKER_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("FLEET_CACHE_DIR", "/tmp"),
        ("FLEET_KAFKA__SASL_USERNAME", ""),
        ("FLEET_BATCH__MAX_BATCH", "8"),
    ],
)
def test_variables_of_others_are_no_mistake(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Kubernetes' service links, our own paths, empty variables and the worker's settings stop no agent."""
    monkeypatch.setenv(name, value)
    assert load_settings(FleetSettings) == FleetSettings()


def test_an_unreadable_file_is_one_line(tmp_path: Path) -> None:
    """A directory, a missing file, a file that is not text."""
    assert "does not exist" in refusal(config=tmp_path / "none.toml")
    assert "cannot be read" in refusal(config=tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "not valid TOML" in refusal(config=binary)


@pytest.mark.parametrize(
    ("kafka", "parts"),
    [
        ({"heartbeat_interval_ms": 10_000}, ("heartbeat_interval_ms=10000", "session_timeout_ms=10000")),
        ({"rebalance_timeout_ms": 60_000}, ("rebalance_timeout_ms=60000", "request_timeout_ms=40000")),
        ({"security_protocol": "SASL_SSL"}, ("security_protocol=SASL_SSL needs sasl_username",)),
        ({"sasl_username": "me", "sasl_password": "x"}, ("security_protocol=PLAINTEXT does not log in",)),
        ({"ssl_cafile": "ca.pem"}, ("ssl_cafile", "security_protocol=PLAINTEXT has no TLS")),
    ],
)
def test_impossible_combinations_name_both_values(kafka: dict[str, object], parts: tuple[str, ...]) -> None:
    """And where each came from."""
    line = refusal(overrides={"kafka": kafka})
    assert all(part in line for part in (*parts, "from flag")), line


def test_more_replicas_in_sync_than_replicas_is_impossible() -> None:
    """Nothing could ever be written."""
    line = refusal(overrides={"topics": {"min_insync_replicas": 2}})
    assert "min_insync_replicas=2 must be at most replication_factor=1" in line


def test_secrets_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the list of settings nor in a refusal nor in a repr."""
    monkeypatch.setenv("FLEET_KAFKA__SASL_PASSWORD", "hunter2")
    assert "hunter2" not in refusal()
    toml("[kafka]\nsasl_password = 4711")
    monkeypatch.delenv("FLEET_KAFKA__SASL_PASSWORD")
    assert "4711" not in refusal()
    settings = KafkaSettings(security_protocol="SASL_SSL", sasl_username="me", sasl_password="hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in repr(settings) + str(describe(FleetSettings(kafka=settings)))


def test_every_setting_is_shown_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fleet settings` answers "where does this value come from?"."""
    toml("[topics]\npartitions = 24")
    monkeypatch.setenv("FLEET_NAME", "cartpole")
    settings = load_settings(FleetSettings, overrides={"kafka": {"linger_ms": 5}})
    shown = {one.key: (one.value, one.source) for one in describe(settings)}
    assert shown["name"] == ("cartpole", "FLEET_NAME")
    assert shown["topics.partitions"] == (24, "fleet.toml")
    assert shown["kafka.linger_ms"] == (5, "flag")
    assert shown["kafka.fetch_min_bytes"] == (1, "default")


def test_a_whole_table_may_stand_in_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As JSON; single keys override it."""
    monkeypatch.setenv("FLEET_KAFKA", '{"linger_ms": 3, "fetch_min_bytes": 7}')
    monkeypatch.setenv("FLEET_KAFKA__LINGER_MS", "4")
    settings = load_settings(FleetSettings)
    assert (settings.kafka.linger_ms, settings.kafka.fetch_min_bytes) == (4, 7)
    assert {one.key: one.source for one in describe(settings)}["kafka.fetch_min_bytes"] == "FLEET_KAFKA"


def test_agents_and_workers_read_one_file() -> None:
    """Agents know every table of the worker's as somebody else's; a misspelt one is refused by both."""
    assert Settings.model_fields.keys() <= FleetSettings.model_fields.keys() | FleetSettings.OTHER_SECTIONS
    toml("[batch]\nmax_batch = 8")
    assert load_settings(Settings).batch.max_batch == 8
    assert load_settings(FleetSettings) == FleetSettings()
    toml("[bacth]\nmax_batch = 8")
    assert "unknown setting bacth" in refusal()


def test_several_addresses_may_be_a_list() -> None:
    """In the file a list reads better than commas."""
    toml('[kafka]\nbootstrap_servers = ["a:9092", "[::1]:9092", "c"]')
    assert load_settings(FleetSettings).kafka.bootstrap_servers == "a:9092,[::1]:9092,c"


def test_the_topics_take_the_largest_record_and_other_clients_batches() -> None:
    """A small limit on records must not refuse a full batch of small records."""
    assert TopicSettings(max_record_bytes=4096).max_message_bytes >= 1_000_000
    assert TopicSettings(max_record_bytes=8 << 20).max_message_bytes > 8 << 20

"""`fleet demo`: every mistake is one line before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tools.demo import cluster, run
from tools.demo.cli import command
from tools.demo.options import Options
from topics.errors import FleetError


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "Demo", None)


def test_an_environment_without_a_model_lists_those_there_are() -> None:
    """The ids to choose from stand in the line."""
    with pytest.raises(FleetError, match=r"Acrobot-v1.*CartPole-v1, LunarLander-v3"):
        run.run(Options(environment="Acrobot-v1"), Console(quiet=True))


def test_a_json_file_nowhere_is_found_before_the_play() -> None:
    """Not after half a minute of play."""
    with pytest.raises(FleetError, match=r"there is no folder .*/nowhere"):
        command(json_file=Path("nowhere/result.json"))


def test_a_configured_cluster_gets_a_fresh_fleet_that_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's is touched, and nothing of ours is left."""
    monkeypatch.setenv("FLEET_KAFKA__BOOTSTRAP_SERVERS", "kafka.example:9092")
    one, other = (cluster.choose_place(Options()) for _ in range(2))
    assert one.servers == "kafka.example:9092"
    assert one.delete_topics and not one.is_ours
    assert one.settings.name.startswith("demo-") and one.settings.name != other.settings.name


def test_a_fleet_that_the_user_named_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be theirs."""
    monkeypatch.setenv("FLEET_KAFKA__BOOTSTRAP_SERVERS", "kafka.example:9092")
    place = cluster.choose_place(Options(fleet="mine"))
    assert place.settings.name == "mine"
    assert not place.delete_topics


def test_attached_the_fleet_is_that_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `fleet worker` reads them, so that both meet without flags."""
    monkeypatch.setenv("FLEET_NAME", "cartpole")
    place = cluster.choose_place(Options(attach=True))
    assert (place.settings.name, place.servers) == ("cartpole", "127.0.0.1:9092")
    assert not place.is_ours and not place.delete_topics


def test_without_a_cluster_the_demo_starts_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newcomer's case."""
    monkeypatch.setattr(cluster, "find_broker", lambda _folder: None)
    place = cluster.choose_place(Options())
    assert place.is_ours
    assert place.settings.name == "demo"

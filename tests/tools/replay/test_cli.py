"""`fleet replay` as it is called: what is refused before a cluster is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.tools.replay.build import record
from tools.replay.cli import command
from topics.errors import FleetError

pytestmark = pytest.mark.usefixtures("clean_environment")

NOBODY = ("--bootstrap-servers", "127.0.0.1:1")


def replay(*words: object) -> Result:
    """What it prints and exits with; errors for the command line are raised."""
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three states of a fleet called old."""
    record(tmp_path / "a.mcap", "old", [("low", "agent", at, b"state") for at in range(3)])
    return tmp_path / "a.mcap"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "no RECORDING"),
        (("--resume", "x.resume"), "x.resume cannot be opened"),
        (("RECORDING", "--resume", "x.resume"), "leave out"),
        (("RECORDING", "--speed", "1000"), "expected a factor"),
        (("RECORDING", "--agents", "x0"), "whole factor"),
        (("RECORDING", "--lane", "fast"), "expected one of high, normal, low"),
        (("RECORDING", "--from", "noon"), "--from is 'noon'"),
        (("RECORDING", "--from", "1h", "--to", "2h"), "--from 1h must be before --to 2h"),
        (("RECORDING", "--out", "RECORDING"), "nothing is overwritten"),
        (("RECORDING", *NOBODY), "127.0.0.1:1"),
    ],
)
def test_a_wrong_call_is_one_line(recording: Path, words: tuple[str, ...], text: str) -> None:
    """And leaves nothing behind."""
    before = sorted(recording.parent.iterdir())
    with pytest.raises(FleetError) as raised:
        replay(*(recording if word == "RECORDING" else word for word in words))
    assert text in str(raised.value)
    assert sorted(recording.parent.iterdir()) == before

"""`fleet model`: what a person sees of a package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools.demo.packages import SHIPPED
from tools.model import app
from workers.models import ModelError

CARTPOLE = SHIPPED / "cartpole"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=True)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


def test_show_says_what_goes_in_and_what_comes_out() -> None:
    """Enough to publish states for it."""
    said = run("show", str(CARTPOLE))
    assert "cartpole v1" in said
    assert "observation float32[4]" in said and "action int64[], logits float32[2]" in said


def test_show_tells_of_a_fallback(tmp_path: Path) -> None:
    """What agents get when the model is too slow."""
    shutil.copytree(CARTPOLE, tmp_path / "mine")
    manifest = json.loads((CARTPOLE / "manifest.json").read_text())
    (tmp_path / "mine" / "manifest.json").write_text(json.dumps(manifest | {"fallback": 1}))
    assert "action 1 for states that expire" in run("show", str(tmp_path / "mine"))
    assert json.loads(run("show", str(tmp_path / "mine"), "--json"))["fallback"] == 1


def test_show_gives_json_to_programs() -> None:
    """The whole manifest, parsed."""
    said = json.loads(run("show", str(CARTPOLE), "--json"))
    assert said["environment"] == "CartPole-v1" and said["inputs"][0]["shape"] == [4]


def test_check_loads_times_and_compares() -> None:
    """What a worker checks, and what only this command does."""
    said = run("check", str(CARTPOLE))
    assert "hashes and weights fit, golden pairs match" in said
    assert "batch of    64" in said
    assert "the same bits at every place in every bucket" in said
    report = json.loads(run("check", str(CARTPOLE), "--json"))
    assert report["forward_us"]["64"] > 0 and report["invariance"]["differing"] == 0


def test_pack_completes_a_draft(tmp_path: Path) -> None:
    """A manifest without hashes, loaded a moment later."""
    package = tmp_path / "mine"
    package.mkdir()
    shutil.copy(CARTPOLE / "weights.safetensors", package)
    draft = json.loads((CARTPOLE / "manifest.json").read_text())
    del draft["files"], draft["golden"]
    (package / "manifest.json").write_text(json.dumps(draft))
    assert "packed cartpole v1" in run("pack", str(package))
    assert "golden pairs match" in run("check", str(package))


@pytest.mark.parametrize("command", ["show", "check", "pack"])
def test_a_missing_package_is_an_error_for_people(command: str, tmp_path: Path) -> None:
    """One line and exit code 4; `fleet` itself prints it."""
    with pytest.raises(ModelError) as caught:
        run(command, str(tmp_path / "missing"))
    assert "manifest.json" in str(caught.value) and caught.value.exit_code == 4

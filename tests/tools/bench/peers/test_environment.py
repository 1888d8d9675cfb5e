"""Environments are made once, and lend nothing that they have themselves. A stand-in plays the installer."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tools.bench.peers.environment import NotInstalled, lend, needed, python_of
from tools.bench.peers.systems import chosen

CONSOLE = Console(quiet=True)
MOSEC = chosen("mosec")[0]


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `uv` whose `venv` makes a folder, and which fails as long as a file `refuse` is beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "uv"
    script.write_text(
        f"""#!/bin/sh
echo "$1" >> {folder}/calls
if [ "$1" = venv ]; then mkdir -p "$4/bin" && touch "$4/bin/python"; exit; fi
echo "no version of mosec fits"
test ! -e {folder}/refuse
"""
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("FLEET_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def test_an_environment_is_made_once(installer: Path) -> None:
    """The second time it is there."""
    assert python_of(MOSEC, CONSOLE).exists()
    python_of(MOSEC, CONSOLE)
    assert (installer / "calls").read_text().split() == ["venv", "pip"]


def test_an_installation_that_failed_says_why_and_is_tried_again(installer: Path) -> None:
    """With the installer's last line; half an environment is never taken for one."""
    (installer / "refuse").touch()
    with pytest.raises(NotInstalled, match=r"mosec 0\.\S+ cannot be installed: no version of mosec fits"):
        python_of(MOSEC, CONSOLE)
    (installer / "refuse").unlink()
    assert python_of(MOSEC, CONSOLE).exists()


def test_what_the_environment_has_itself_is_not_lent(tmp_path: Path) -> None:
    """Its own version wins; our code and torch come from us."""
    python, lent = tmp_path / "venv" / "bin" / "python", tmp_path / "lent"
    theirs = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (theirs / "numpy").mkdir(parents=True)
    lent.mkdir()
    lend(python, lent)
    names = {path.name for path in lent.iterdir()}
    assert {"topics", "workers", "tools", "torch", "msgpack", "safetensors"} <= names
    assert "numpy" not in names
    assert not names & {"aiokafka", "pydantic", "pytest"}
    assert all(path.exists() for path in lent.iterdir())


def test_only_what_is_required_is_needed() -> None:
    """Directly or not; extras that nobody asked for are left out."""
    names = {lent.metadata["Name"] for lent in needed(["torch", "no-such-package"])}
    assert {"torch", "sympy", "mpmath"} <= names
    assert not names & {"pytest", "mypy", "aiokafka"}

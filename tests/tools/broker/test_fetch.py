"""Fetching jars: only the right bytes arrive, and what is wrong is said in one line."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from tools.broker import fetch as fetching
from tools.broker.errors import DiskFull, JarsUnavailable
from tools.broker.fetch import fetch
from tools.broker.jars import Jar

CONTENT = b"what the repository should serve"
JAR = Jar(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "org.example", "some", "1.0")


class FakeMaven:
    """jgo's MavenContext as far as we use it; the repository answers with `answers`, one a try."""

    def __init__(self, incoming: Path, answers: list[bytes | Exception], local: Path | None = None) -> None:
        self.incoming, self.answers = incoming, answers
        self.local_repos = [local] if local else []
        self.resolver = self

    def project(self, group: str, artifact: str) -> FakeMaven:
        return self

    def at_version(self, version: str) -> FakeMaven:
        return self

    def artifact(self) -> Any:
        prefix = Path("org", "example", "some", "1.0")
        return SimpleNamespace(cached_path=self.incoming / JAR.name, component=SimpleNamespace(path_prefix=prefix))

    def download(self, artifact: Any) -> Path:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        path: Path = artifact.cached_path
        path.write_bytes(answer)
        return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "jars"


def serve(monkeypatch: pytest.MonkeyPatch, *answers: bytes | Exception, local: Path | None = None) -> None:
    monkeypatch.setattr(fetching, "_maven", lambda incoming, _: FakeMaven(incoming, list(answers), local))


def ignore(_size_bytes: int) -> None:
    """Nobody watches the progress."""


def test_a_jar_arrives_where_the_broker_takes_it_from(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The good case, and nothing else is left lying about."""
    serve(monkeypatch, CONTENT)
    fetch([JAR], folder, ignore)
    assert (folder / JAR.name).read_bytes() == CONTENT
    assert [path.name for path in folder.parent.iterdir()] == ["jars"]


def test_a_connection_that_breaks_is_tried_again(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """One hiccup of the network is not an error."""
    serve(monkeypatch, requests.ConnectionError("reset"), CONTENT)
    fetch([JAR], folder, ignore)
    assert (folder / JAR.name).read_bytes() == CONTENT


def test_without_a_connection_the_line_says_so(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A newcomer who is offline learns that only the first start needs a connection."""
    serve(monkeypatch, *[requests.ConnectionError("no route")] * 3)
    with pytest.raises(JarsUnavailable, match=r"some-1\.0\.jar .*cannot be reached.*later ones work offline"):
        fetch([JAR], folder, ignore)


def test_other_bytes_than_the_lock_promises_are_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A repository that serves something else cannot make us run it."""
    serve(monkeypatch, *[b"something else"] * 3)
    with pytest.raises(JarsUnavailable, match="sha256"):
        fetch([JAR], folder, ignore)
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The cause is the disk, not the network."""
    serve(monkeypatch, OSError(28, "No space left on device"))
    with pytest.raises(DiskFull, match="No space left on device"):
        fetch([JAR], folder, ignore)


def test_what_the_local_maven_repository_has_is_not_downloaded(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    """Intact copies there are taken, and stay there."""
    local = tmp_path / "m2"
    copy = local / "org/example/some/1.0" / JAR.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(CONTENT)
    serve(monkeypatch, local=local)
    fetch([JAR], folder, ignore)
    assert (folder / JAR.name).read_bytes() == CONTENT == copy.read_bytes()

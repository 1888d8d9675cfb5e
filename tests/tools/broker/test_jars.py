"""Which jars make Kafka, and whether they are the right ones."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tools.broker.jars import LOCK, Jar, classpath, locked, missing
from tools.broker.paths import KAFKA_VERSION


def jar_of(content: bytes, artifact: str = "some") -> Jar:
    return Jar(hashlib.sha256(content).hexdigest(), len(content), "org.example", artifact, "1.0")


def test_the_lock_names_kafka_itself_and_every_jar_with_its_hash() -> None:
    """The shipped lock holds the Kafka version that we say we run, and whole sha256 sums."""
    jars = locked()
    assert any(jar.name == f"kafka_2.13-{KAFKA_VERSION}.jar" for jar in jars)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.size_bytes > 0 for jar in jars)
    assert len({jar.name for jar in jars}) == len(jars)


def test_a_line_of_the_lock_reads_back_as_written() -> None:
    """What `python -m tools.broker.lock` writes is what `locked` reads."""
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    assert [jar.line for jar in locked()] == lines


def test_an_intact_jar_is_not_missing(tmp_path: Path) -> None:
    """Right size and right bytes are all that counts."""
    jar = jar_of(b"abc")
    (tmp_path / jar.name).write_bytes(b"abc")
    assert missing([jar], tmp_path) == []


def test_absent_short_and_altered_jars_are_missing(tmp_path: Path) -> None:
    """Whatever is wrong with a jar, it is to be fetched again."""
    absent, short, altered = jar_of(b"abc", "absent"), jar_of(b"abc", "short"), jar_of(b"abc", "altered")
    (tmp_path / short.name).write_bytes(b"ab")
    (tmp_path / altered.name).write_bytes(b"abd")
    assert missing([absent, short, altered], tmp_path) == [absent, short, altered]


def test_the_class_path_lists_only_the_locked_jars(tmp_path: Path) -> None:
    """Another jar in the folder, perhaps of an older version, is not run."""
    jar = jar_of(b"abc")
    (tmp_path / "old-0.9.jar").write_bytes(b"")
    assert classpath([jar], tmp_path) == str(tmp_path / "some-1.0.jar")

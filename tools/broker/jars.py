"""The jars that make Apache Kafka: which ones, where they lie, and whether they are the right ones.

`kafka.lock` names each by Maven coordinates, size and sha256. The jars lie in the cache folder; every start hashes
them all (50 ms), so that a damaged one is fetched again instead of breaking Kafka in some odd way. Nothing here
touches the network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.broker.paths import kafka_folder

LOCK = Path(__file__).with_name("kafka.lock")


@dataclass(frozen=True, slots=True)
class Jar:
    """One Maven artifact and the bytes it must have."""

    sha256: str
    size_bytes: int
    group: str
    artifact: str
    version: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def line(self) -> str:
        """This jar as a line of the lock."""
        return f"{self.sha256} {self.size_bytes:>8} {self.group}:{self.artifact}:{self.version}"

    def is_at(self, path: Path) -> bool:
        """Whether the file at `path` has exactly these bytes."""
        try:
            if path.stat().st_size != self.size_bytes:
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


def locked(lock: Path = LOCK) -> tuple[Jar, ...]:
    """All jars of the lock, in the order of the class path."""
    lines = [line.split() for line in lock.read_text().splitlines() if not line.startswith("#")]
    return tuple(Jar(sha256, int(size), *coordinates.split(":")) for sha256, size, coordinates in lines)


def jar_folder() -> Path:
    return kafka_folder() / "jars"


def missing(jars: Iterable[Jar], folder: Path) -> list[Jar]:
    """Those that are not in `folder`, or not with the right bytes."""
    return [jar for jar in jars if not jar.is_at(folder / jar.name)]


def classpath(jars: Iterable[Jar], folder: Path) -> str:
    return ":".join(str(folder / jar.name) for jar in jars)

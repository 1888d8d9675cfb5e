"""Writes `kafka.lock`: `python -m tools.broker.lock`, after changing KAFKA_VERSION in `paths`.

Asks jgo which jars Kafka needs, fetches them and notes their hashes. Only for us who choose the version; what a
newcomer's machine fetches is what the lock says.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from tools.broker.jars import LOCK, Jar
from tools.broker.paths import KAFKA_VERSION

# slf4j-simple writes the log to stderr, which is the broker's log file: no logging configuration to ship.
COORDINATES = (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", "org.slf4j:slf4j-simple:2.0.17")
HEADER = f"# Apache Kafka {KAFKA_VERSION} and what it needs: sha256, bytes, Maven coordinates; written by `lock.py`."


def main() -> None:
    """Resolve, fetch, hash, write."""
    from jgo.maven import MavenContext

    maven = MavenContext()
    inputs, transitive = maven.resolver.resolve([maven.create_dependency(one) for one in COORDINATES])
    jars = {_jar(dependency.artifact) for dependency in [*inputs, *transitive]}
    lines = [jar.line for jar in sorted(jars, key=lambda jar: (jar.group, jar.artifact))]
    LOCK.write_text("\n".join([HEADER, *lines]) + "\n")
    sys.stdout.write(f"{len(lines)} jars in {LOCK}\n")


def _jar(artifact: Any) -> Jar:
    path: Path = artifact.resolve()
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return Jar(digest, len(content), artifact.groupId, artifact.artifactId, artifact.version)


if __name__ == "__main__":
    main()

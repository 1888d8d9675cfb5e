"""A dead broker's log → one line that says why it died."""

from __future__ import annotations

import re
from pathlib import Path

TAIL_BYTES = 256 * 1024
# What Kafka and the JVM print, and what a person can do about it. The first that occurs wins.
KNOWN = (
    (
        r"No space left on device",
        "the disk is full: free some space, or put the data elsewhere with --data-dir",
    ),
    (r"Address already in use", "another program took its port: choose one with --port"),
    (
        r"Could not reserve enough space|insufficient memory|Cannot allocate memory",
        "the machine has too little free memory",
    ),
    (r"OutOfMemoryError", "Kafka's heap is full"),
    (r"UnsupportedClassVersionError", "the Java is too old: unset FLEET_JAVA or name Java 17 or newer"),
    (r"Permission denied|AccessDeniedException", "it may not write its data directory"),
    (r"Too many open files", "the limit of open files is too low: see `ulimit -n`"),
)
_TROUBLE = re.compile(r"\b(ERROR|FATAL)\b|^Error|Exception\b|^Caused by")
_JVM_CRASH = re.compile(r"fatal error has been detected by the Java|Error occurred during initialization of")
_PREFIX = re.compile(r"^[\d\-: .]*(\[[^\]]*\] )?(ERROR|FATAL) \S+ - ")


def why_it_died(log: Path) -> str:
    """The known cause, else the last line that tells of trouble, else the last line."""
    text = tail(log, TAIL_BYTES)
    for pattern, cause in KNOWN:
        if re.search(pattern, text):
            return cause
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    trouble = [line for line in lines if _TROUBLE.search(line)]
    last = (trouble or lines or ["it said nothing"])[-1]
    return _PREFIX.sub("", last)[:200]


def java_crashed(log: Path) -> bool:
    """Whether it was the JVM that failed, not Kafka: then a start-up archive may be to blame."""
    return bool(_JVM_CRASH.search(tail(log, TAIL_BYTES)))


def tail(log: Path, size_bytes: int) -> str:
    """The last bytes of a log as text; "" if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

"""Where the broker keeps what it downloads and what it stores: the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

KAFKA_VERSION = "4.3.1"


def cache_folder() -> Path:
    """$FLEET_CACHE_DIR, else decision-fleet in $XDG_CACHE_HOME, else in ~/.cache. Not created here."""
    if own := os.environ.get("FLEET_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "decision-fleet"


def kafka_folder() -> Path:
    """What is the same for all brokers of one Kafka version: jars, bootstrap records, start-up archive."""
    return cache_folder() / "kafka" / KAFKA_VERSION


def data_folder(port: int) -> Path:
    """The default data directory of the broker whose first node listens on `port`."""
    return cache_folder() / "broker" / str(port)

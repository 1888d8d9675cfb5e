"""What can stand in a broker's way, each one line for the person at the terminal."""

from __future__ import annotations

from typing import ClassVar

from topics.errors import FleetError


class BrokerFault(FleetError):
    """The embedded broker cannot be started, reached or stopped."""

    exit_code: ClassVar[int] = 3


class PortTaken(BrokerFault):
    """Another program listens where the broker should."""


class DiskFull(BrokerFault):
    """Too little space where the broker keeps its data."""


class JarsUnavailable(BrokerFault):
    """Kafka's jars are not cached and cannot be fetched, or what came is not what was asked for."""


class JavaUnusable(BrokerFault):
    """There is no Java, or it is broken or too old."""


class BrokerDied(BrokerFault):
    """Kafka ended while it was starting, or never became ready; the line says why and where its log is."""


class AlreadyRunning(BrokerFault):
    """The cluster of this data directory runs already."""

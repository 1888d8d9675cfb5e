"""What ends a recording."""

from __future__ import annotations

from topics.errors import FleetError


class CannotRecord(FleetError):
    """The path cannot be written, or cannot be continued."""


class LogShrank(FleetError):
    """A partition ends in front of what has been read of it: it is not the log that it was."""

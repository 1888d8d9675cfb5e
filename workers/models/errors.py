"""What is wrong with a model package, in one line for the person who made it."""

from __future__ import annotations

from typing import ClassVar

from topics.errors import FleetError


class ModelError(FleetError):
    """A model package cannot be served: it is unreadable, not what its manifest says, or gives other
    answers."""

    exit_code: ClassVar[int] = 4


class OutOfMemory(ModelError):
    """The device has no memory for a batch of this size. Nothing is wrong with its rows: a smaller one may do.
    Where not even the warm-up fits, the package cannot be served on this device."""


def one_line(error: BaseException, limit: int = 200) -> str:
    """Type and first line of a foreign exception, cut to `limit` characters."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:limit].rstrip(": ")

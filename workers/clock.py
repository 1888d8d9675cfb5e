"""The worker's clock: monotonic µs, and how they relate to Unix time."""

from __future__ import annotations

import time


def now_us() -> int:
    """µs on the monotonic clock; never steps back."""
    return time.monotonic_ns() // 1000


def from_unix_us() -> int:
    """What to add to Unix µs to get onto the monotonic clock, as the system clock stands now."""
    return (time.monotonic_ns() - time.time_ns()) // 1000

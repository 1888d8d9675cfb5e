"""The longest wait of each lane over the last seconds: what a histogram's buckets cannot tell. Beside the path."""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 20.0
"""A value is kept for one to two of these, so that a scrape every 15 s misses none."""


class Worst:
    """Seconds by lane; the event loop alone writes, a reader sees the value of before or of after."""

    def __init__(self) -> None:
        self._now: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._since_s = 0.0

    def observe(self, lane: str, seconds: float) -> None:
        """The longest wait of some requests."""
        if seconds > self._now.get(lane, 0.0):
            self._now[lane] = seconds

    def tick(self, now_s: float) -> None:
        """Forget what is too long ago; called as often as one likes."""
        if now_s - self._since_s >= WINDOW_S:
            self._before, self._now, self._since_s = self._now, {}, now_s

    def read(self, lane: str) -> float:
        """The longest wait of the last one or two windows, 0 if nothing waited."""
        return max(self._now.get(lane, 0.0), self._before.get(lane, 0.0))

    def __repr__(self) -> str:
        return f"<Worst {self._now} before {self._before}>"

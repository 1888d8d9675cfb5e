"""How busy each predictor was over the last seconds.

Beside the path: predictor threads report when a batch begins and ends, the event loop's beat asks for the
share. A batch that still runs counts with what it has run so far, so a predictor that is stuck in one batch
shows as busy, not as idle.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
"""Longer than any batch should run, shorter than a usual scrape interval (15 s)."""

_STEP_S = 1.0  # a sample a second resolves a tenth of the window, and bounds what is kept


class Busy:
    """Seconds that each predictor spent on batches.

    One predictor has one thread, which replaces its pair (finished seconds, start of the running batch) in
    one step: a reader in another thread sees the pair of before or of after, never a mix.
    """

    def __init__(self) -> None:
        self._pairs: dict[str, tuple[float, float | None]] = {}
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=int(WINDOW_S / _STEP_S) + 1)
        self._fractions: dict[str, float] = {}

    def __repr__(self) -> str:
        shares = " ".join(f"{predictor} {share:.0%}" for predictor, share in self._fractions.items())
        return f"<Busy {shares or 'nothing yet'}>"

    def started(self, predictor: str, now_s: float) -> None:
        """A batch begins at `now_s` (monotonic)."""
        finished_s, _ = self._pairs.get(predictor, (0.0, None))
        self._pairs[predictor] = (finished_s, now_s)

    def finished(self, predictor: str, seconds: float) -> None:
        """The running batch took `seconds`."""
        finished_s, _ = self._pairs.get(predictor, (0.0, None))
        self._pairs[predictor] = (finished_s + seconds, None)

    def tick(self, now_s: float) -> None:
        """Take a sample when one is due; called by the event loop alone, as often as it likes."""
        if self._samples and now_s - self._samples[-1][0] < _STEP_S:
            return
        busy_s = {predictor: _at(now_s, *pair) for predictor, pair in list(self._pairs.items())}
        self._samples.append((now_s, busy_s))
        first_s, first = self._samples[0]
        if now_s > first_s:
            self._fractions = {
                predictor: min(1.0, max(0.0, (seconds - first.get(predictor, 0.0)) / (now_s - first_s)))
                for predictor, seconds in busy_s.items()
            }

    def fraction(self, predictor: str) -> float:
        """Share of the last `WINDOW_S` seconds, 0–1, as of the last tick."""
        return self._fractions.get(predictor, 0.0)


def _at(now_s: float, finished_s: float, running_since_s: float | None) -> float:
    return finished_s if running_since_s is None else finished_s + max(0.0, now_s - running_since_s)

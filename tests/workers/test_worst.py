"""The longest wait is kept for a window, and then forgotten."""

from __future__ import annotations

from workers.worst import WINDOW_S, Worst


def test_the_longest_wait_outlives_shorter_ones_and_one_window() -> None:
    """A scrape finds it, whatever came after."""
    worst = Worst()
    worst.tick(100.0)
    for seconds in (0.2, 1.5, 0.1):
        worst.observe("low", seconds)
    worst.observe("high", 0.01)
    assert (worst.read("low"), worst.read("high"), worst.read("normal")) == (1.5, 0.01, 0)
    worst.tick(100.0 + WINDOW_S)
    worst.observe("low", 0.3)
    assert worst.read("low") == 1.5
    worst.tick(100.0 + 2 * WINDOW_S)
    assert worst.read("low") == 0.3

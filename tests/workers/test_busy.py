"""The busy share of predictors, with a clock moved by hand."""

from __future__ import annotations

from workers.busy import WINDOW_S, Busy


def test_the_share_is_busy_seconds_over_the_window() -> None:
    """A predictor that works 0.25 s in each second is busy 25 %."""
    busy = Busy()
    busy.started("cpu0", 0.0)
    busy.finished("cpu0", 0.0)
    for second in range(30):
        busy.tick(float(second))
        busy.started("cpu0", second + 0.1)
        busy.finished("cpu0", 0.25)
    assert abs(busy.fraction("cpu0") - 0.25) < 1e-9


def test_only_the_last_seconds_count() -> None:
    """After a window of silence, a busy past is forgotten."""
    busy = Busy()
    for second in range(20):
        busy.tick(float(second))
        busy.started("cpu0", float(second))
        busy.finished("cpu0", 1.0)
    for second in range(20, 20 + int(WINDOW_S) + 1):
        busy.tick(float(second))
    assert busy.fraction("cpu0") == 0.0


def test_a_batch_that_still_runs_counts() -> None:
    """A predictor stuck in one batch shows as busy, not as idle."""
    busy = Busy()
    busy.started("cuda:0", 0.0)
    for second in range(8):
        busy.tick(float(second))
    assert busy.fraction("cuda:0") == 1.0


def test_ticks_in_between_change_nothing() -> None:
    """The beat comes several times a second; a sample is taken once a second."""
    busy = Busy()
    busy.tick(0.0)
    busy.started("cpu0", 0.0)
    busy.tick(0.25)
    assert busy.fraction("cpu0") == 0.0
    busy.tick(1.0)
    assert busy.fraction("cpu0") == 1.0


def test_an_unknown_predictor_is_idle() -> None:
    """A predictor that never ran has a share of zero."""
    assert Busy().fraction("cpu7") == 0.0

"""Stalls: a layer with work that does not move is named; one that idles or moves never is."""

from __future__ import annotations

from workers.stalls import Look, Stalls


def look(stalls: Stalls, now_s: float, *, has_work: bool = True, progress: object = 0) -> list[str]:
    return list(stalls.look(now_s, iter([Look("receive high", has_work, progress, bound_s=10.0)])))


def test_work_that_does_not_move_is_a_stall_after_the_bound() -> None:
    """And the reason names the layer and the time."""
    stalls = Stalls()
    assert look(stalls, 0) == [] and look(stalls, 10) == []
    assert look(stalls, 10.5) == ["receive high"]


def test_any_movement_starts_the_clock_anew() -> None:
    """Slow is not stuck."""
    stalls = Stalls()
    for second in range(0, 100, 9):
        assert look(stalls, second, progress=second) == []


def test_a_layer_without_work_may_stand_still() -> None:
    """An idle fleet is healthy, and the time it idled does not count once work comes."""
    stalls = Stalls()
    assert look(stalls, 0, has_work=False) == []
    assert look(stalls, 500, has_work=False) == []
    assert look(stalls, 501) == [] and look(stalls, 510) == []
    assert look(stalls, 512) == ["receive high"]


def test_a_layer_that_moves_again_is_forgiven() -> None:
    """The broker came back by itself."""
    stalls = Stalls()
    look(stalls, 0)
    assert look(stalls, 20) == ["receive high"]
    assert look(stalls, 21, progress=1) == []

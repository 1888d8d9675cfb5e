"""Pieces are made ahead, in order, and no more of them than are needed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from tools.replay.ahead import PIECES, SWITCH_S, ahead, short_pauses


async def test_pieces_come_in_order_and_a_bounded_number_is_made_ahead() -> None:
    """Memory does not depend on the recording's length."""
    made = 0

    def numbers() -> Iterator[int]:
        nonlocal made
        for number in range(500):
            made = number + 1
            yield number

    found = []
    async with aclosing(ahead(numbers())) as pieces:
        async for number in pieces:
            found.append(number)
            assert made <= number + PIECES + 1
    assert found == [*range(500)]


async def test_a_fault_in_the_recording_is_raised_where_it_is_reached() -> None:
    """Not before, and not in silence."""

    def numbers() -> Iterator[int]:
        yield 1
        raise OSError("torn")

    found = []
    with pytest.raises(OSError, match="torn"):
        async with aclosing(ahead(numbers())) as pieces:
            async for number in pieces:
                found.append(number)
    assert found == [1]


def test_pauses_are_short_only_within_the_block() -> None:
    """The interpreter's own settings come back."""
    before = sys.getswitchinterval(), gc.get_threshold()
    with short_pauses():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert (sys.getswitchinterval(), gc.get_threshold()) == before

"""Takes pieces ahead, in a thread: the sender's loop never waits for the process that makes them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

PIECES: Final = 16
"""8,000 states: a burst of 10,000/s for most of a second, in a few MB."""
SWITCH_S: Final = 0.0005
"""A thread that computes gives the interpreter up after this; Python's 5 ms would make every state late."""
GARBAGE_AFTER: Final = 100_000
"""Objects. At Python's 700 a third of the time of making pieces goes into looking through live ones."""


async def ahead(pieces: Iterator[T]) -> AsyncGenerator[T, None]:
    """The same pieces in the same order, up to `PIECES` of them made before they are asked for."""
    loop = asyncio.get_running_loop()
    end = object()
    with ThreadPoolExecutor(1, "ahead") as thread:
        made: deque[asyncio.Future[object]] = deque()
        try:
            while True:
                while len(made) < PIECES:
                    made.append(loop.run_in_executor(thread, next, pieces, end))
                piece = await made.popleft()
                if piece is end:
                    return
                yield piece  # type: ignore[misc]
        finally:
            for future in made:
                future.cancel()


@contextlib.contextmanager
def short_pauses() -> Iterator[None]:
    """Within the block threads take turns after `SWITCH_S`, and garbage is rarely looked for: states make none."""
    switch_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        sys.setswitchinterval(switch_s)
        gc.set_threshold(*thresholds)
        gc.unfreeze()

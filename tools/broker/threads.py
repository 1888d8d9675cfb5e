"""Runs a coroutine to its end from blocking code, also where the caller's thread has an event loop already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def run_apart(function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.run(function(…))` in a thread; blocks until it is done."""
    with ThreadPoolExecutor(1, thread_name_prefix="broker-check") as pool:
        return pool.submit(lambda: asyncio.run(function(*args, **kwargs))).result()

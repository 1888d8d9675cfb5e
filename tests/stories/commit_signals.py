"""Imported in front of a worker: it gets a signal of its own before a commit, as soon as a file is there.

What it wraps is aiokafka's commit, so the worker is the real one: its answers are acknowledged, the commit is not sent.
`COMMIT_SIGNAL` is the signal's number, `COMMIT_SIGNAL_WHEN` the file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

NUMBER = int(os.environ.pop("COMMIT_SIGNAL"))
WHEN = Path(os.environ.pop("COMMIT_SIGNAL_WHEN"))


def _signal_once() -> None:
    if WHEN.exists():
        WHEN.unlink()
        os.kill(os.getpid(), NUMBER)


def _signalled(commit: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(commit)
    async def wrapped(*args: Any, **named: Any) -> None:
        _signal_once()
        await commit(*args, **named)

    return wrapped


AIOKafkaProducer.commit_transaction = _signalled(AIOKafkaProducer.commit_transaction)
AIOKafkaConsumer.commit = _signalled(AIOKafkaConsumer.commit)

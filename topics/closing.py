"""Closes Kafka clients in bounded time, whatever the brokers do; leaves no task and no connection behind.

Takes clients that `kafka` built, started or not. Never raises.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

# Ending the tasks of a client that hangs takes one turn of the loop; dropping its connections another.
ABANDON_S = 1.0


async def stop(client: Any, within_s: float) -> bool:
    """Close `client` in bounded time (and 2 s). Never raises; False if it had to be abandoned or complained.

    An abandoned producer leaves the futures of what it had not sent undone: whoever awaits them needs a limit.
    """
    closing = asyncio.ensure_future(_close(client))
    closing.add_done_callback(_retrieve)
    try:
        await asyncio.wait({closing}, timeout=within_s)
        if closing.done() and not closing.cancelled() and closing.exception() is None:
            return True
        await _abandon(client, closing)
        return False
    finally:
        closing.cancel()


async def _close(client: Any) -> None:
    await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def _abandon(client: Any, closing: asyncio.Future[None]) -> None:
    """aiokafka's stop hangs when brokers are away (aiokafka#773, #1101): end its tasks and connections ourselves."""
    tasks = {closing, *_tasks_of(client)}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=ABANDON_S)
    # Last, or one of the tasks would open a connection anew.
    dropping = asyncio.ensure_future(network_of(client).close())
    dropping.add_done_callback(_retrieve)
    await asyncio.wait({dropping}, timeout=ABANDON_S)
    dropping.cancel()


def _tasks_of(client: Any) -> set[asyncio.Future[Any]]:
    """The tasks that run methods of `client` or of its parts; aiokafka keeps no list of them."""
    parts = {id(part) for part in (client, *vars(client).values()) if type(part).__module__.startswith("aiokafka.")}
    return {task for task in asyncio.all_tasks() if id(_self_of(task)) in parts}


def _self_of(task: asyncio.Task[Any]) -> Any:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame.f_locals.get("self") if frame else None


def network_of(client: Any) -> Any:
    """aiokafka's connection pool; the producer alone has it under a public name."""
    return client.client if isinstance(client, AIOKafkaProducer) else client._client


def _retrieve(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()

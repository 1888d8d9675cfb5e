"""Is there another worker of our name? The younger of two leaves.

Beside the path, at start. A worker's name is the `client_id` of its consumers, which decides the partitions it gets,
and stands in every answer: two of one name get different partitions in each lane, and nobody can tell their answers
apart.
A group knows its members by that name. A worker that was killed stays a member for the session time-out, so who starts
again under its old name waits that long for its predecessor to be forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from topics.errors import FleetError
from topics.kafka import Member
from workers.errors import TwinRunning
from workers.logs import get_logger

log = get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
LOOK_WITHIN_S: Final = 5.0
GRACE_S: Final = 3.0
"""How much later than its session time-out the coordinator may forget a dead member, and how long an equal that started
with us may take to leave."""

Look = Callable[[], Awaitable[Sequence[Member]]]
"""The members of our name in the group that every worker of the fleet is in."""


async def wait_for_predecessor(name: str, look: Look, session_timeout_s: float, stopping: asyncio.Event) -> None:
    """Before joining: until no member has our name, or `stopping`. Raises `TwinRunning` for one that lives."""
    give_up_s = asyncio.get_running_loop().time() + session_timeout_s + GRACE_S
    while (found := await _seen(look)) and not stopping.is_set():
        if asyncio.get_running_loop().time() > give_up_s:
            raise _twin(name, found[0])
        log.info("waiting_for_predecessor", worker=name, host=found[0].host)
        await _pause(stopping)


async def yield_to_equal(name: str, look: Look, own_id: str, stopping: asyncio.Event) -> None:
    """After joining: two that started at once have both found nobody before. The one whose member ID sorts last leaves;
    the other stays if its equal is gone soon, and leaves if not, since that one is then older. Raises `TwinRunning`."""
    give_up_s = asyncio.get_running_loop().time() + GRACE_S
    while not stopping.is_set():
        others = [member for member in await _seen(look) if member.member_id != own_id]
        if not others:
            return
        if own_id > others[0].member_id or asyncio.get_running_loop().time() > give_up_s:
            raise _twin(name, others[0])
        await _pause(stopping)


async def _seen(look: Look) -> Sequence[Member]:
    """Nobody, where the cluster does not tell: the check is a service, not a condition."""
    try:
        async with asyncio.timeout(LOOK_WITHIN_S):
            return await look()
    except (KafkaError, FleetError, TimeoutError) as error:
        log.warning("twins_unknown", error=repr(error), meaning="a second worker of this name would not be noticed")
        return []


async def _pause(stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_EVERY_S):
            await stopping.wait()
    except TimeoutError:
        pass


def _twin(name: str, other: Member) -> TwinRunning:
    return TwinRunning(
        f"a worker named {name} serves this fleet already, from {other.host}; give this one another name (FLEET_WORKER)"
    )

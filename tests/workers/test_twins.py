"""Twins: of two workers with one name exactly one stays, the older where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka.errors import GroupAuthorizationFailedError

from topics.kafka import Member
from workers import twins
from workers.errors import TwinRunning

US, OTHER = Member("w~-5", "here"), Member("w~-7", "10.0.0.9")


class Looks:
    """What the group says, look by look; the last answer stays."""

    def __init__(self, *answers: Sequence[Member]) -> None:
        self.answers = list(answers)
        self.n = 0

    async def __call__(self) -> Sequence[Member]:
        self.n += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundredths instead of seconds."""
    monkeypatch.setattr(twins, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(twins, "GRACE_S", 0.03)


async def test_a_name_that_nobody_has_costs_one_look() -> None:
    """The usual start."""
    looks = Looks([])
    await twins.wait_for_predecessor("w", looks, 0.05, asyncio.Event())
    await twins.yield_to_equal("w", Looks([US]), US.member_id, asyncio.Event())
    assert looks.n == 1


async def test_a_killed_predecessor_is_waited_for() -> None:
    """It stays a member until its session ends."""
    looks = Looks([OTHER], [OTHER], [])
    await twins.wait_for_predecessor("w", looks, 0.05, asyncio.Event())
    assert looks.n == 3


async def test_one_that_outlives_the_session_time_out_is_a_twin() -> None:
    """The line says who, where, and what to do."""
    with pytest.raises(
        TwinRunning, match=r"named w serves this fleet already, from 10\.0\.0\.9; give this one another"
    ):
        await twins.wait_for_predecessor("w", Looks([OTHER]), 0.05, asyncio.Event())


async def test_a_signal_ends_the_wait() -> None:
    """SIGTERM while a predecessor is waited for."""
    stopping = asyncio.Event()
    stopping.set()
    await twins.wait_for_predecessor("w", Looks([OTHER]), 60, stopping)


async def test_of_two_that_joined_at_once_exactly_one_leaves() -> None:
    """Each sees both; the other sees its equal go."""
    with pytest.raises(TwinRunning):
        await twins.yield_to_equal("w", Looks([US, OTHER]), OTHER.member_id, asyncio.Event())
    await twins.yield_to_equal("w", Looks([US, OTHER], [US]), US.member_id, asyncio.Event())


async def test_an_equal_that_stays_is_the_older_one() -> None:
    """It looked before we had joined, and never looks again."""
    with pytest.raises(TwinRunning):
        await twins.yield_to_equal("w", Looks([US, OTHER]), US.member_id, asyncio.Event())


async def test_a_cluster_that_does_not_tell_stops_nobody() -> None:
    """Without the right to describe the group the worker serves all the same."""

    async def look() -> Sequence[Member]:
        raise GroupAuthorizationFailedError("f.high")

    await twins.wait_for_predecessor("w", look, 0.05, asyncio.Event())
    await twins.yield_to_equal("w", look, US.member_id, asyncio.Event())

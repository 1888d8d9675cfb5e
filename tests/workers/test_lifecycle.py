"""Lifecycle: who was taken for dead looks whether its name is still its own. The rest of a life is told by stories."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from topics.kafka import Member
from workers import lifecycle
from workers.errors import TwinRunning
from workers.health import Health
from workers.lifecycle import Life
from workers.metrics import Metrics
from workers.settings import Settings


class Group:
    """The group as our consumer and an administrator see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.member_id = "w~-9"
        self.others: list[Member] = []
        self.looks = 0
        self.looked = asyncio.Event()
        monkeypatch.setattr(lifecycle, "LOOK_EVERY_S", 0.001)
        monkeypatch.setattr(lifecycle, "members_named", self.members_named)
        signals: Any = SimpleNamespace(stop=asyncio.Event())
        manifest: Any = None
        self.life = Life(Settings(worker="w"), manifest, (), Metrics(max_batch=8), Health(), signals)
        intake: Any = SimpleNamespace(consumer=SimpleNamespace(_coordinator=self))
        self.life._intakes["high"] = intake

    async def members_named(self, *_: object) -> list[Member]:
        self.looks += 1
        self.looked.set()
        return [Member(self.member_id, "here"), *self.others]


async def test_who_comes_back_under_a_new_member_id_leaves_where_its_name_was_given_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not before it has joined; until then it has no ID at all."""
    group = Group(monkeypatch)
    keeping = asyncio.ensure_future(group.life._keep_name())
    await asyncio.sleep(0.01)
    group.member_id, group.others = "", [Member("w~-5", "10.0.0.9")]
    await asyncio.sleep(0.01)
    assert group.looks == 0 and not keeping.done()
    group.member_id = "w~-7"
    with pytest.raises(TwinRunning, match=r"from 10\.0\.0\.9"):
        await asyncio.wait_for(keeping, 5)


async def test_who_comes_back_alone_looks_once_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ended in a long pause is no reason to go."""
    group = Group(monkeypatch)
    keeping = asyncio.ensure_future(group.life._keep_name())
    await asyncio.sleep(0)
    group.member_id = "w~-7"
    await asyncio.wait_for(group.looked.wait(), 5)
    await asyncio.sleep(0.01)
    assert group.looks == 1 and not keeping.done()
    keeping.cancel()

"""Which records of a recording, or of a live fleet, are meant. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tools.recording.recorded import Kind, Recorded
from topics.names import Lane


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions on a record; all that are given must hold. An empty one takes everything.

    `lanes` is a condition on states alone; `agents` are globs on the key; times are Kafka's, in Unix µs,
    [`since_us`, `until_us`); `sample` is the share of agents (0–1], by a hash of the key: the same agents each time.
    """

    kinds: tuple[Kind, ...] = ()
    lanes: tuple[Lane, ...] = ()
    agents: tuple[str, ...] = ()
    since_us: int | None = None
    until_us: int | None = None
    sample: float = 1.0

    def takes_topic(self, kind: Kind, lane: Lane | None) -> bool:
        """Whether records of such a topic may be meant."""
        return (not self.kinds or kind in self.kinds) and (not self.lanes or kind != "states" or lane in self.lanes)

    def takes_key(self, key: bytes | None) -> bool:
        """Whether the agent is meant."""
        if self.sample < 1 and zlib.crc32(key or b"") >= self.sample * (1 << 32):
            return False
        agent = (key or b"").decode(errors="backslashreplace")
        return not self.agents or any(fnmatchcase(agent, glob) for glob in self.agents)

    @property
    def by_key(self) -> bool:
        """Whether agents are chosen at all."""
        return bool(self.agents) or self.sample < 1

    @property
    def span_ms(self) -> tuple[int, int]:
        """[since, until) in ms, as Kafka counts."""
        since_ms = -(1 << 63) if self.since_us is None else -(-self.since_us // 1000)
        return since_ms, 1 << 63 if self.until_us is None else -(-self.until_us // 1000)

    def filter(self) -> Callable[[Iterable[Recorded]], list[Recorded]]:
        """Keeps what is meant by time and agent; topics are not looked at. Judges each agent once."""
        since_ms, until_ms = self.span_ms
        judged: dict[bytes | None, bool] = {}

        def takes(key: bytes | None) -> bool:
            if len(judged) > MAX_JUDGED:
                judged.clear()
            if (known := judged.get(key)) is None:
                known = judged[key] = self.takes_key(key)
            return known

        if not self.by_key:
            return lambda records: [one for one in records if since_ms <= one.timestamp_ms < until_ms]
        return lambda records: [one for one in records if since_ms <= one.timestamp_ms < until_ms and takes(one.key)]


MAX_JUDGED = 100_000

"""Messages of many chunks in the order of their times, holding only chunks that overlap. Pure but for loading them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tools.recording.content import Content
from tools.recording.recorded import Recorded

Times = npt.NDArray[np.uint64]
MAX_STRETCH: Final = 8192
"""Messages that are given at once: some megabytes as records."""


@dataclass(frozen=True, slots=True)
class ToLoad:
    """A chunk, when its first message is due, and how to get it."""

    start_ns: int
    load: Callable[[], Content]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages in the order of their times: in which chunk of `contents` each is, and where."""

    contents: dict[int, Content]
    times_ns: Times
    sources: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    def records(self) -> list[Recorded]:
        """The records. Raises `RecordingError`."""
        contents = self.contents
        places = zip(self.sources.tolist(), self.places.tolist(), strict=True)
        return [contents[source].record(place) for source, place in places]


@dataclass(slots=True)
class _Pending:
    contents: dict[int, Content] = field(default_factory=dict)
    times_ns: Times = field(default_factory=lambda: np.empty(0, np.uint64))
    sources: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    places: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, loaded: dict[int, Content]) -> None:
        self.contents.update(loaded)
        news = [np.full(len(one.places), source, np.int64) for source, one in loaded.items()]
        times_ns = np.concatenate([self.times_ns, *(one.times_ns for one in loaded.values())])
        sources = np.concatenate([self.sources, *news])
        places = np.concatenate([self.places, *(one.places for one in loaded.values())])
        order = np.lexsort((places, sources, times_ns))
        self.times_ns, self.sources, self.places = times_ns[order], sources[order], places[order]

    def take(self, count: int) -> Iterator[Stretch]:
        for begin in range(0, count, MAX_STRETCH):
            some = slice(begin, min(begin + MAX_STRETCH, count))
            yield Stretch(self.contents, self.times_ns[some], self.sources[some], self.places[some])
        self.times_ns, self.sources, self.places = self.times_ns[count:], self.sources[count:], self.places[count:]
        held = set(np.unique(self.sources).tolist())
        self.contents = {source: one for source, one in self.contents.items() if source in held}


def in_time_order(chunks: Sequence[ToLoad]) -> Iterator[Stretch]:
    """Everything in the chunks, by time; at the same time in the order of `chunks`, and of the messages in them."""
    order = sorted(range(len(chunks)), key=lambda source: chunks[source].start_ns)
    pending, done = _Pending(), 0
    while done < len(order):
        # Half as many as are held: then a message is sorted a few times at most, however many chunks overlap.
        news = order[done : done + 1 + len(pending.contents) // 2]
        pending.add({source: chunks[source].load() for source in news})
        done += len(news)
        if done < len(order):
            until_ns = chunks[order[done]].start_ns
            yield from pending.take(int(np.searchsorted(pending.times_ns, np.uint64(until_ns))))
        else:
            yield from pending.take(len(pending.times_ns))

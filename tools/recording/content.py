"""The content of an opened chunk taken apart: where its messages are, and the records that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgpack
import numpy as np
import numpy.typing as npt
from mcap.opcode import Opcode

from tools.recording.layout import HEAD, MESSAGE_HEAD, MS, Channel
from tools.recording.recorded import Recorded, RecordingError


@dataclass(frozen=True, slots=True)
class Content:
    """Messages of a chunk. `numbers`, `times_ns`, `places` [messages]: channel, log time, where it begins in `data`."""

    where: str
    data: bytes
    channels: Mapping[int, Channel]
    numbers: npt.NDArray[np.uint16]
    times_ns: npt.NDArray[np.uint64]
    places: npt.NDArray[np.int64]

    def only(self, wanted: Iterable[int], since_ms: int, until_ms: int) -> Content:
        """The messages of these channels with `since_ms` ≤ log time < `until_ms`."""
        times_ms = (self.times_ns // np.uint64(MS)).astype(np.int64)
        chosen = np.isin(self.numbers, list(wanted)) & (times_ms >= since_ms) & (times_ms < until_ms)
        return replace(self, numbers=self.numbers[chosen], times_ns=self.times_ns[chosen], places=self.places[chosen])

    def records(self) -> list[Recorded]:
        """All of them, in the order in which they were written. Raises RecordingError."""
        return [self.record(place) for place in self.places.tolist()]

    def record(self, place: int) -> Recorded:
        """What the message that begins there holds. Raises RecordingError."""
        _, length, number, _, log_ns, _ = MESSAGE_HEAD.unpack_from(self.data, place)
        channel = self.channels[number]
        try:
            body = msgpack.unpackb(self.data[place + MESSAGE_HEAD.size : place + HEAD.size + length], use_list=False)
            return Recorded(
                channel.topic,
                channel.partition,
                body["offset"],
                body["timestamp_ms"] if "timestamp_ms" in body else log_ns // MS,
                body["timestamp_type"],
                body["key"],
                body["value"],
                body["headers"],
            )
        except Exception as error:  # MessagePack that is none, of a writer that is not ours
            raise RecordingError(f"{self.where} holds a message that is not a record: {error!r:.80}") from error


def taken_apart(data: bytes, channels: Mapping[int, Channel], where: str) -> Content:
    """The messages in the content of a chunk. Raises RecordingError where one is cut off, or of no channel."""
    numbers: list[int] = []
    times_ns: list[int] = []
    places: list[int] = []
    is_message, head, place = Opcode.MESSAGE.value, MESSAGE_HEAD.unpack_from, 0
    last = len(data) - MESSAGE_HEAD.size
    while place <= last:
        opcode, length, number, _, log_ns, _ = head(data, place)
        if opcode == is_message:
            numbers.append(number)
            times_ns.append(log_ns)
            places.append(place)
        place += HEAD.size + length
    if place != len(data):
        raise RecordingError(f"{where} is damaged: it ends within a message")
    if not set(numbers) <= channels.keys():
        raise RecordingError(f"{where} has messages of a channel that is nowhere described")
    return Content(
        where, data, channels, np.array(numbers, np.uint16), np.array(times_ns, np.uint64), np.array(places, np.int64)
    )


def channel_records(data: bytes) -> Iterator[bytes]:
    """The contents of the channel records in a chunk."""
    place = 0
    while place + HEAD.size <= len(data):
        opcode, length = HEAD.unpack_from(data, place)
        if opcode == Opcode.CHANNEL:
            yield data[place + HEAD.size : place + HEAD.size + length]
        place += HEAD.size + length

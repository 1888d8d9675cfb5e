"""States of a whole poll, column by column: what is the same in many records is looked at once.

On the agents' way in, at admission. States of the same kind differ only in a few numbers and in the raw bytes of their
observation. Where those lie is learned from one record that was decoded in full (a `Layout`); all records that equal it
everywhere else are then read together, without MessagePack. Anything else goes through `wire.decode_state` on its own,
and gives the very same state (a test compares them).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt

from topics.observations import COPIED_BYTES, Observations
from topics.records import State
from topics.tensors import TensorSpec
from topics.wire import DEFAULT_LIMITS, Limits, decode_state

Numbers = npt.NDArray[np.int64]
Bytes2D = npt.NDArray[np.uint8]

MIN_ALIKE: Final = 8
"""Records of one length from which on reading them together costs less than decoding each."""
MAX_ALIKE_BYTES: Final = 2 * COPIED_BYTES
"""Longer values are read on their own: they are copied a few times on the way through the columns."""
MAX_LAYOUTS: Final = 4
"""Layouts remembered per length; the one that was learned first is forgotten first."""
MAX_LENGTHS: Final = 64
"""Lengths with layouts; when full, all are forgotten and learned anew."""
MAX_LEARNED: Final = 2
"""New layouts per poll and length: hostile records cannot make learning the work."""
ABSENT: Final = -1
"""In a column of numbers: the state has no such field. (Whole numbers below 0 never take the short way.)"""

_NUMBERS: Final = ("seq", "sent_us", "deadline_us", "episode")
_WIDTHS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
"""Payload bytes of MessagePack's unsigned integers, by their first byte."""
_NIL: Final = 0xC0


@dataclass(slots=True)
class StateColumns:
    """The states of n values. Where `rows[i]` is None, value i must be read on its own and its numbers mean nothing."""

    rows: list[tuple[bytes] | None]
    """The observation as the row that `Observations.rows` would give."""
    seq: Numbers
    sent_us: Numbers
    """Unix time, `ABSENT` where the state names none; `deadline_us` likewise."""
    deadline_us: Numbers

    @classmethod
    def empty(cls, n: int) -> StateColumns:
        """Nothing read yet."""
        return cls([None] * n, np.zeros(n, np.int64), np.full(n, ABSENT), np.full(n, ABSENT))


class Layout:
    """Where the numbers and the raw observation lie in values of one length, and what they must equal elsewhere."""

    __slots__ = ("_fields", "_mask", "_row", "_value")

    def __init__(self, value: bytes, numbers: dict[str, tuple[int, int]], row: slice) -> None:
        """`numbers`: name → first byte and width of its big-endian payload."""
        self._value = np.frombuffer(value, np.uint8)
        self._mask = np.full(len(value), 0xFF, np.uint8)
        self._mask[row] = 0
        for first, width in numbers.values():
            self._mask[first : first + width] = 0
            if width == 1 and value[first - 1] != 0xCC:  # a fixint is its own first byte: below 128
                self._mask[first] = 0x80
            elif width == 8:
                self._mask[first] = 0xC0  # below 2**62, so that sums of two stay within int64
        self._fields = numbers
        self._row = row

    @classmethod
    def of(cls, value: bytes, prefix: bytes, row_bytes: int) -> Layout | None:
        """The layout of a `value` that is known to decode; None where its fields are not the usual ones. The tensor
        starts with `prefix` and ends with `row_bytes` of raw bytes."""
        numbers: dict[str, tuple[int, int]] = {}
        row = None
        seen = set()
        for name, start, end in _entries(value):
            if name in seen:
                return None
            seen.add(name)
            if name == "observation":
                row = slice(end - row_bytes, end)
                if not value.startswith(prefix, start) or end - start != len(prefix) + row_bytes:
                    return None
            elif name in _NUMBERS:
                lead = value[start]
                if lead <= 0x7F:
                    numbers[name] = (start, 1)
                elif lead in _WIDTHS and not (lead == 0xCF and value[start + 1] & 0xC0):
                    numbers[name] = (start + 1, _WIDTHS[lead])
                elif lead != _NIL and name != "episode":
                    return None
        return None if row is None else cls(value, numbers, row)

    def fits(self, values: Bytes2D) -> npt.NDArray[np.bool_]:
        """Which of the values [n, length] have this layout."""
        fits: npt.NDArray[np.bool_] = np.logical_not(((values ^ self._value) & self._mask).any(axis=1))
        return fits

    def number(self, values: Bytes2D, name: str) -> Numbers | int:
        """The field of every value [n, length] that fits."""
        if name not in self._fields:
            return ABSENT
        first, width = self._fields[name]
        payload = np.ascontiguousarray(values[:, first : first + width])
        return payload.view(f">u{width}")[:, 0].astype(np.int64)

    def rows(self, values: Bytes2D) -> list[tuple[bytes]]:
        """The raw observation of every value [n, length] that fits."""
        raw, size = values[:, self._row].tobytes(), self._row.stop - self._row.start
        return [(raw[at : at + size],) for at in range(0, len(raw), size)]


def _entries(value: bytes) -> Iterator[tuple[Any, int, int]]:
    """Key, first byte and end of each entry of a packed map."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(value)))
    unpacker.feed(value)
    for _ in range(unpacker.read_map_header()):
        key = unpacker.unpack()
        start = unpacker.tell()
        unpacker.skip()
        yield key, start, unpacker.tell()


class StateReader:
    """Bytes → states, for one model."""

    def __init__(self, inputs: Sequence[TensorSpec], limits: Limits = DEFAULT_LIMITS) -> None:
        self._observations = Observations(inputs)
        self._limits = limits
        self._row_bytes = inputs[0].nbytes
        self._prefix = inputs[0].ext_prefix
        single = len(inputs) == 1 and inputs[0].dtype != "bool"  # a bool's bytes must be normalised
        self._columnar = single and 0 < self._row_bytes <= COPIED_BYTES
        self._layouts: dict[int, list[Layout]] = {}

    @property
    def observations(self) -> Observations:
        """How the observations of the states are read."""
        return self._observations

    def read(self, value: bytes) -> State:
        """The state in one record's value; raises `DecodeError` like `decode_state`. A usual observation comes as the
        row that `Observations.rows` would give."""
        return decode_state(value, self._limits, self._observations.ext_hook)

    def read_alike(self, values: Sequence[bytes]) -> StateColumns:
        """What can be read together; the caller gives the others to `read`."""
        columns = StateColumns.empty(len(values))
        if self._columnar and len(values) >= MIN_ALIKE:
            for size, places in _by_length(values).items():
                if len(places) >= MIN_ALIKE and size <= MAX_ALIKE_BYTES:
                    self._read_length(size, values, places, columns)
        return columns

    def _read_length(self, size: int, values: Sequence[bytes], places: Sequence[int], columns: StateColumns) -> None:
        """Fill `columns` at `places`, whose values all have `size` bytes."""
        joined = b"".join([values[at] for at in places])
        matrix = np.frombuffer(joined, np.uint8).reshape(len(places), size)
        left = np.array(places)
        for layout in self._layouts.get(size, ()):
            matrix, left = self._read_fitting(layout, matrix, left, columns)
            if not len(left):
                return
        for _ in range(MAX_LEARNED):
            learned = self._learn(values[left[0]])
            if learned is not None:
                matrix, left = self._read_fitting(learned, matrix, left, columns)
            else:  # a bad or unusual one in front: perhaps the next is usual
                matrix, left = matrix[1:], left[1:]
            if len(left) < MIN_ALIKE:
                return

    @staticmethod
    def _read_fitting(
        layout: Layout, matrix: Bytes2D, places: npt.NDArray[np.intp], columns: StateColumns
    ) -> tuple[Bytes2D, npt.NDArray[np.intp]]:
        """Fill the columns of all values that fit; gives those that do not."""
        fits = layout.fits(matrix)
        all_fit = bool(fits.all())
        ours, at = (matrix, places) if all_fit else (matrix[fits], places[fits])
        if len(at):
            columns.seq[at] = np.maximum(layout.number(ours, "seq"), 0)
            columns.sent_us[at] = layout.number(ours, "sent_us")
            columns.deadline_us[at] = layout.number(ours, "deadline_us")
            for place, row in zip(at.tolist(), layout.rows(ours), strict=True):
                columns.rows[place] = row
        return (matrix[:0], places[:0]) if all_fit else (matrix[~fits], places[~fits])

    def _learn(self, value: bytes) -> Layout | None:
        """Decode in full, and remember where things lie if it is a usual state."""
        with suppress(Exception):  # whatever is wrong with it, admission finds out when it reads it alone
            if type(self.read(value).observation) is tuple:
                layout = Layout.of(value, self._prefix, self._row_bytes)
                if layout is not None:
                    self._remember(len(value), layout)
                return layout
        return None

    def _remember(self, size: int, layout: Layout) -> None:
        if size not in self._layouts and len(self._layouts) >= MAX_LENGTHS:
            self._layouts.clear()
        known = self._layouts.setdefault(size, [])
        if len(known) >= MAX_LAYOUTS:
            known.pop(0)
        known.append(layout)


def _by_length(values: Sequence[bytes]) -> dict[int, Sequence[int]]:
    """Length → places of the values that have it."""
    lengths = list(map(len, values))
    if len(set(lengths)) == 1:
        return {lengths[0]: range(len(values))}
    places: defaultdict[int, list[int]] = defaultdict(list)
    for at, length in enumerate(lengths):
        places[length].append(at)
    return dict(places)

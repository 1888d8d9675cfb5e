"""The bookmark says how far a replay is, and never that something arrived that did not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.replay.bookmark import Bookmark, BookmarkFile, Job, Marker, number_in
from topics.errors import FleetError
from topics.headers import CORRELATION_ID

JOB = Job("rec.mcap", "00" * 8, "fleet", "cluster", lanes=("low",), agents=("a*",))
MARK = Bookmark(JOB, {("t", 0): 5, ("actions", 0): 7}, {("t", 0): 5})


def test_what_is_written_is_read_again_also_when_it_became_shorter(tmp_path: Path) -> None:
    """Old bytes behind the new ones are no part of it."""
    file = BookmarkFile.open(tmp_path / "mark", new=True)
    long = Bookmark(JOB, MARK.begin, {("t" * 200, number): 1 << 40 for number in range(50)}, 1 << 40)
    for mark in (MARK, long, MARK):
        file.write(mark)
        assert file.read() == mark and json.loads(file.path.read_text())
    file.close()


def test_one_run_at_a_time_has_it(tmp_path: Path) -> None:
    """A second one would send everything twice."""
    path = tmp_path / "mark"
    file = BookmarkFile.open(path, new=True)
    with pytest.raises(FleetError, match="is running"):
        BookmarkFile.open(path, new=False)
    file.close()
    with pytest.raises(FleetError, match="--resume"):
        BookmarkFile.open(path, new=True)
    again = BookmarkFile.open(path, new=False)
    again.remove()
    again.close()
    with pytest.raises(FleetError, match="cannot be opened"):
        BookmarkFile.open(path, new=False)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 9}', "\0\1"])
def test_anything_else_is_no_bookmark(tmp_path: Path, text: str) -> None:
    """One line, whatever the file is."""
    (tmp_path / "mark").write_text(text)
    file = BookmarkFile.open(tmp_path / "mark", new=False)
    with pytest.raises(FleetError, match="bookmark"):
        file.read()
    file.close()


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60), st.sets(st.integers(0, 6), max_size=4))
def test_whatever_instant_a_crash_picks_every_later_number_lies_behind_the_offsets(
    steps: list[tuple[int, bool]], before: set[int]
) -> None:
    """States are acknowledged in any order between partitions; the mark is written at any time."""
    marker = Marker(Bookmark(JOB, {}, {("t", number): 0 for number in range(3)}), before)
    logs: dict[int, list[int]] = {0: sorted(before), 1: [], 2: []}  # numbers by offset
    waiting: dict[int, list[int]] = {0: [], 1: [], 2: []}
    acknowledged: dict[tuple[str, int], int] = {}
    next_number = 0
    for partition, sends in steps:
        while next_number in before:
            next_number += 1
        if sends:
            waiting[partition].append(next_number)
            next_number += 1
        elif waiting[partition]:
            logs[partition].append(waiting[partition].pop(0))
            acknowledged["t", partition] = len(logs[partition])
        open_numbers = [number for numbers in waiting.values() for number in numbers]
        mark = marker.move(min(open_numbers, default=next_number), next_number, acknowledged)
        for number, log in logs.items():
            assert all(sent < mark.done_below for sent in log[: mark.offsets["t", number]])
        assert all(sent >= mark.done_below for sent in open_numbers)


def test_numbers_are_read_from_correlation_ids_of_the_run_only() -> None:
    """Agents of the target have IDs too."""
    run = b"run-----"
    ours = [("x", None), (CORRELATION_ID, run + (513).to_bytes(8, "big"))]
    assert number_in(run, ours) == 513
    assert number_in(b"another-", ours) is None
    assert number_in(run, [(CORRELATION_ID, run + b"\1")]) is None
    assert number_in(run, [(CORRELATION_ID, None)]) is None

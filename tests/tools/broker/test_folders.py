"""A cluster's folder: its record, its Kafka format, and what we refuse to write into."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.broker.errors import BrokerFault, DiskFull
from tools.broker.folders import (
    RECORD,
    ClusterRecord,
    NodeRecord,
    format_node,
    locked_folder,
    new_id,
    require_ours,
    require_space,
)


def test_a_record_reads_back_as_written(tmp_path: Path) -> None:
    """Another program finds the processes that this one has started."""
    record = ClusterRecord("id", (NodeRecord(1, 9092, 20000, 123, "boot-1"),))
    record.write(tmp_path)
    assert ClusterRecord.read(tmp_path) == record


def test_where_no_cluster_has_been_there_is_no_record(tmp_path: Path) -> None:
    """Also where the folder itself is missing."""
    assert ClusterRecord.read(tmp_path / "nowhere") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": [{"id": 1}]}'])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    """The line says which file, and what to do with the folder."""
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(BrokerFault, match=r"cluster\.json cannot be read .*move .* out of the way"):
        ClusterRecord.read(tmp_path)


def test_formatting_twice_keeps_the_first_identity(tmp_path: Path) -> None:
    """Kafka refuses a folder whose identity has changed."""
    bootstrap = tmp_path / "bootstrap.checkpoint"
    bootstrap.write_bytes(b"records")
    format_node(tmp_path / "data", 1, "cluster-a", bootstrap)
    before = (tmp_path / "data/meta.properties").read_text()
    format_node(tmp_path / "data", 1, "cluster-b", bootstrap)
    assert (tmp_path / "data/meta.properties").read_text() == before
    assert "cluster.id=cluster-a" in before
    assert (tmp_path / "data/bootstrap.checkpoint").read_bytes() == b"records"


def test_ids_are_kafkas_and_never_look_like_a_flag() -> None:
    """22 characters of URL-safe base64, as Kafka's own."""
    ids = {new_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_too_little_space_is_refused_before_kafka_meets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line has both numbers and the way out."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=12_000_000))
    with pytest.raises(DiskFull, match=r"only 12 MB are free .* it needs 500.*--data-dir"):
        require_space(tmp_path)


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    """`--data-dir ~` would spread Kafka's files over somebody's home."""
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(BrokerFault, match=r"holiday\.jpg"):
        require_ours(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file where a folder should be is the simplest case."""
    (tmp_path / "file").touch()
    with pytest.raises(BrokerFault, match="cannot write to"), locked_folder(tmp_path / "file" / "data"):
        pass

"""A recording as columns for notebooks: one Parquet file per kind, what can be decoded beside the original bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tools.recording.read import Recording
from tools.recording.recorded import Kind, Recorded, RecordingError, kind_and_lane
from tools.recording.selection import Selection
from topics.errors import DecodeError, FleetError
from topics.wire import decode_action, decode_state

KINDS: Final[tuple[Kind, ...]] = ("states", "actions", "dead")


class ParquetMissing(FleetError):
    """pyarrow is not installed."""


def to_parquet(
    recording: Recording,
    selection: Selection,
    folder: Path,
    on_written: Callable[[int], None] = lambda _n: None,
) -> dict[Kind, int]:
    """Write `{kind}.parquet` into `folder` for each kind that has records; how many each got.

    Times are in UTC and say so. `observation` and `action` are flat lists of numbers, null where there is no single
    tensor or list of numbers.

    Raises:
        ParquetMissing: there is no pyarrow.
        RecordingError: a file is there already, or the recording is damaged.
    """
    arrow, parquet = _library()
    schemas = _schemas(arrow)
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[Kind, int] = {}
    writers: dict[Kind, Any] = {}
    try:
        for part in recording.records(selection):
            for kind, rows in _by_kind(part, recording.about.fleet).items():
                if kind not in writers:
                    target = folder / f"{kind}.parquet"
                    if target.exists():
                        raise RecordingError(f"{target} is there already: name another folder")
                    writers[kind] = parquet.ParquetWriter(target, schemas[kind], compression="zstd")
                writers[kind].write_table(arrow.Table.from_pylist(rows, schemas[kind]))
                counts[kind] = counts.get(kind, 0) + len(rows)
            on_written(sum(counts.values()))
    finally:
        for writer in writers.values():
            writer.close()
    return counts


def _library() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ParquetMissing(
            "to-parquet needs pyarrow, which is not installed: pip install 'decision-fleet[parquet]'"
        ) from error
    return pyarrow, pyarrow.parquet


def _schemas(arrow: Any) -> dict[Kind, Any]:
    us, header = arrow.timestamp("us", tz="UTC"), arrow.struct({"name": arrow.string(), "value": arrow.binary()})
    record = {
        "topic": arrow.dictionary(arrow.int32(), arrow.string()),
        "partition": arrow.int32(),
        "offset": arrow.int64(),
        "timestamp": arrow.timestamp("ms", tz="UTC"),
        "timestamp_type": arrow.int8(),
        "lane": arrow.string(),
        "agent": arrow.string(),
        "key": arrow.binary(),
        "value": arrow.binary(),
        "headers": arrow.list_(header),
    }
    numbers = arrow.list_(arrow.float64())
    state = {
        "seq": arrow.int64(),
        "task_kind": arrow.string(),
        "deadline": us,
        "sent": us,
        "observation": numbers,
    }
    action = {
        "seq": arrow.int64(),
        "outcome": arrow.string(),
        "reason": arrow.string(),
        "model": arrow.string(),
        "worker": arrow.string(),
        "answered_lane": arrow.string(),
        "wait_us": arrow.int64(),
        "predict_us": arrow.int64(),
        "batch_size": arrow.int64(),
        "action": numbers,
    }
    return {
        "states": arrow.schema(record | state),
        "actions": arrow.schema(record | action),
        "dead": arrow.schema(record),
    }


def _by_kind(part: Sequence[Recorded], fleet: str) -> dict[Kind, list[dict[str, Any]]]:
    rows: dict[Kind, list[dict[str, Any]]] = {}
    for record in part:
        kind, lane = kind_and_lane(record.topic, fleet)
        row: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": record.timestamp_type,
            "lane": lane,
            "agent": None if record.key is None else record.key.decode(errors="backslashreplace"),
            "key": record.key,
            "value": record.value,
            "headers": [{"name": name, "value": value} for name, value in record.headers],
        }
        rows.setdefault(kind, []).append(row | DECODED[kind](record.value or b""))
    return rows


def _state(value: bytes) -> dict[str, Any]:
    try:
        state = decode_state(value)
    except DecodeError:
        return {}
    return {
        "seq": state.seq,
        "task_kind": state.kind,
        "deadline": state.deadline_us,
        "sent": state.sent_us,
        "observation": _numbers(state.observation),
    }


def _action(value: bytes) -> dict[str, Any]:
    try:
        action = decode_action(value)
    except DecodeError:
        return {}
    return {
        "seq": action.seq,
        "outcome": action.outcome,
        "reason": action.reason,
        "model": action.model,
        "worker": action.worker,
        "answered_lane": action.lane,
        "wait_us": action.timing.wait_us,
        "predict_us": action.timing.predict_us,
        "batch_size": action.timing.batch_size,
        "action": _numbers(action.action),
    }


def _nothing(_value: bytes) -> dict[str, Any]:
    return {}


DECODED: Final[Mapping[Kind, Callable[[bytes], dict[str, Any]]]] = {
    "states": _state,
    "actions": _action,
    "dead": _nothing,
}


def _numbers(found: Any) -> list[float] | None:
    if found is None or isinstance(found, Mapping | str | bytes):
        return None
    try:
        flat: list[float] = np.asarray(found, dtype=np.float64).reshape(-1).tolist()
    except (ValueError, TypeError, OverflowError):
        return None
    return flat

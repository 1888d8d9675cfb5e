"""What hostile bytes must not do: each target takes any bytes, and raises only where a promise is broken.

`test_targets.py` runs them on what hypothesis makes up, `python -m tests.fuzz` on what coverage leads to.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from aiokafka.structs import ConsumerRecord

from tools.dead.notes import decode_note, encode_note
from topics.client.decode import ActionReader
from topics.client.stats import ClientStats
from topics.columns import encode_states
from topics.errors import DecodeError, RecordError, SettingsError
from topics.headers import read
from topics.letters import read_letter
from topics.records import Action, State
from topics.settings import load_settings
from topics.tensors import TensorSpec
from topics.wire import Limits, decode_action, encode_action, encode_state
from workers.admit import Admission, PollTime, ReplyTopics
from workers.finished import MAX_OFFSETS, decode
from workers.models.errors import ModelError
from workers.models.package import parse_manifest
from workers.offsets import PartitionOffsets
from workers.settings import Settings

SPEC = TensorSpec("observation", "float32", (4,))
LIMITS = Limits(max_bytes=1 << 16)
CORRELATED = (("kafka_correlationId", b"c"),)
NOW = PollTime(now_us=2**40, from_unix_us=-(2**50))


def state(data: bytes) -> None:
    """Admitted, refused or expired, alone as among others, and the same in both cases; never an exception."""
    admission = Admission([SPEC], ReplyTopics({"f.actions": 3}), LIMITS)
    usual = encode_states(np.zeros((8, 4), np.float32), range(8), State(None, sent_us=5))
    alone = _outcome(admission, [data])
    for _ in range(2):  # the second time what was learned from the first is at hand
        assert _outcome(admission, [*usual, *[data] * 8])[-1] == alone[-1]


def _outcome(admission: Admission, values: list[bytes]) -> list[tuple[Any, ...]]:
    records = [_record(value, CORRELATED, offset) for offset, value in enumerate(values)]
    admitted = admission.admit("normal", [(PartitionOffsets("t", 0), records)], NOW)
    found: dict[int, tuple[Any, ...]] = {}
    for one in admitted.requests:
        found[one.record.offset] = (one.seq, one.sent_us, one.deadline_us, [bytes(row) for row in one.rows], one.plain)
    for refusal in admitted.refusals:
        assert "\n" not in refusal.reason and len(refusal.reason) < 2_000
        found[refusal.request.record.offset] = (refusal.outcome, refusal.reason, refusal.dead)
    assert sorted(found) == list(range(len(values)))
    return [found[offset] for offset in range(len(values))]


def _record(value: bytes | None, headers: Any, offset: int = 0, key: bytes = b"agent") -> Any:
    return ConsumerRecord("f.states.normal", 0, offset, 1, 0, key, value, None, 1, len(value or b""), headers)


def action(data: bytes) -> None:
    """A client that gets such an answer has an action or none, and nothing else happens to its neighbours."""
    with suppress(DecodeError):
        decode_action(data, LIMITS)
    good = encode_action(Action("action", 1, np.int64(1), model="m"))
    decoded = ActionReader(ClientStats()).read([good, data, good])
    assert decoded.action(0) == decoded.action(2) == 1


def headers(data: bytes) -> None:
    """Routing, or `RecordError`; a dead letter with such headers can be read."""
    found = tuple(_headers(data))
    with suppress(RecordError):
        read(found)
    letter = read_letter(_record(b"", found))
    assert letter.attempts >= 0


NAMES = (
    *("kafka_correlationId", "kafka_replyTopic", "kafka_replyPartition", "content-type", "traceparent", "x"),
    *("fleet_dead-reason", "fleet_dead-message", "fleet_dead-topic", "fleet_dead-partition", "fleet_dead-offset"),
    *("fleet_dead-time_us", "fleet_dead-attempts", "fleet_dead-history", "fleet_dead-redrive", "fleet_dead-worker"),
)


def _headers(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Of each piece, the first byte picks the name; an odd one is a header without a value."""
    for piece in data.split(b"\xff\xfe"):
        if piece:
            yield NAMES[piece[0] % len(NAMES)], None if piece[0] & 0x40 else piece[1:]


def finished_map(data: bytes) -> None:
    """Offsets behind the commit, a bounded number of them."""
    found = decode(1_000, data.decode("latin-1"))
    assert len(found) <= MAX_OFFSETS and all(offset >= 1_000 for offset in found)


def manifest(data: bytes) -> None:
    """A manifest, or `ModelError` in one line that begins with the place."""
    try:
        parse_manifest(data, "m.json")
    except ModelError as error:
        assert str(error).startswith("m.json") and "\n" not in str(error) and len(str(error)) < 2_000


def note(data: bytes) -> None:
    """A note that is written as it was read, or None."""
    found = decode_note(data)
    assert found is None or decode_note(encode_note(found)) == found


def settings_file(data: bytes) -> None:
    """Settings, or `SettingsError` in one line."""
    path = _scratch() / "fleet.toml"
    path.write_bytes(data)
    try:
        load_settings(Settings, config=path)
    except SettingsError as error:
        assert "\n" not in str(error) and len(str(error)) < 2_000, str(error)


@lru_cache
def _scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix=f"fleet-fuzz-{os.getpid()}-"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (state, action, headers, finished_map, manifest, note, settings_file)
}

MODELS = Path(__file__).parents[2] / "tools" / "demo" / "models"

SEEDS: dict[str, list[bytes]] = {
    "state": [
        encode_state(State(np.zeros(4, np.float32), seq=7, sent_us=2**50, deadline_us=2**51, kind="k")),
        encode_state(State([0.0, 1.0, 2.0, 3.0], episode="e", options={"a": [1, {"b": None}]})),
        encode_state(State({"observation": {"nd": True, "type": "<f4", "shape": [4], "data": bytes(16)}})),
    ],
    "action": [
        encode_action(Action("action", 3, np.arange(3.0), model="m", extras={"logits": np.zeros(2, np.float32)})),
        encode_action(Action("rejected", None, reason="no", lane="high")),
    ],
    "headers": [b"\x00abc\xff\xfe\x01f.actions\xff\xfe\x02\0\0\0\x05", b'\x0d[{"reason":"a"}]\xff\xfe\x0c12'],
    "finished_map": [b"F1:AQIDBA", b"F1:gAEB"],
    "manifest": [path.read_bytes() for path in sorted(MODELS.glob("*/manifest.json"))],
    "note": [b'{"kind": "sending", "run": "r", "batch": 3, "offsets": [1, 2], "positions": {"t:0": 5}}'],
    "settings_file": [
        b'name = "f"\n[kafka]\nbootstrap_servers = "a:1"\n[batch]\nmax_batch = 8\n[[predictors]]\ndevice = "cpu"\n',
        b'[[priority]]\nlane = "high"\nkind = "k"\n',
    ],
}
"""Good ones of each kind, from which the others are made."""

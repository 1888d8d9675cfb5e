"""What hostile bytes must not do: each target takes any bytes, and raises only where a promise is broken.

The targets `…_tree` read from the bytes what to replace by what in a good record, manifest or table (`grafts`); the
others take them as they are.

`test_targets.py` runs them on what hypothesis makes up, `python -m tests.fuzz` on what coverage leads to.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgpack
import numpy as np
from aiokafka.structs import ConsumerRecord

from tests.fuzz.grafts import PACKED, WRITTEN, grafted, packed, toml, written
from tools.dead.ledger import Ledger
from tools.dead.notes import decode_note, encode_note
from topics.client.decode import ActionReader
from topics.client.stats import ClientStats
from topics.columns import ActionColumns, encode_states
from topics.errors import DecodeError, RecordError, SettingsError
from topics.headers import read
from topics.letters import PREFIX, headers_again, read_letter
from topics.names import LANES
from topics.priority import Facts, choose_lane
from topics.records import Action, State
from topics.settings import load_settings
from topics.settings_layers import describe
from topics.tensors import TensorSpec
from topics.wire import Limits, decode_action, encode_action, encode_state
from workers.admit import Admission, PollTime, ReplyTopics
from workers.dead_letters import DeadLetters
from workers.finished import MAX_OFFSETS, decode
from workers.models.errors import ModelError
from workers.models.package import parse_manifest
from workers.offsets import PartitionOffsets
from workers.reply import Encoder
from workers.settings import Settings

SPEC = TensorSpec("observation", "float32", (4,))
SEVERAL = [
    TensorSpec("image", "uint8", (2, 2)),
    TensorSpec("mask", "bool", (2,)),
    TensorSpec("rough", "bfloat16", (1,)),
    TensorSpec("count", "int64", ()),
]
LIMITS = Limits(max_bytes=1 << 16)
CORRELATED = (("kafka_correlationId", b"c"),)
NOW = PollTime(now_us=2**40, from_unix_us=-(2**50))
REPLY_TOPICS = ReplyTopics({"f.actions": 3})
ENCODER = Encoder(ActionColumns([TensorSpec("action", "int64", ())], "m", "w"), ["action"], "m", "w")
LETTERS = DeadLetters(None, "f.dead", 1, "w", "m", 1.0)  # type: ignore[arg-type]  # only its headers are asked for


def state(data: bytes) -> None:
    """Admitted, refused or expired, alone as among others, and the same in both cases; never an exception."""
    outcomes(Admission(SEVERAL, REPLY_TOPICS, LIMITS), [data])
    admission = Admission([SPEC], REPLY_TOPICS, LIMITS)
    usual = encode_states(np.zeros((8, 4), np.float32), range(8), State(None, sent_us=5))
    alone = outcomes(admission, [data])
    for _ in range(2):  # the second time what was learned from the first is at hand
        assert outcomes(admission, [*usual, *[data] * 8])[-1] == alone[-1]


def outcomes(admission: Admission, values: list[bytes]) -> list[tuple[Any, ...]]:
    records = [_record(value, CORRELATED, offset) for offset, value in enumerate(values)]
    return _admitted(admission, records)


def _admitted(admission: Admission, records: list[Any]) -> list[tuple[Any, ...]]:
    """What became of each record. What was refused can be answered and becomes a dead letter that can be read."""
    admitted = admission.admit("normal", [(PartitionOffsets("t", 0), records)], NOW)
    found: dict[int, tuple[Any, ...]] = {}
    for one in admitted.requests:
        found[one.record.offset] = (
            one.seq,
            one.sent_us,
            one.deadline_us,
            [b"".join([row]) for row in one.rows],
            one.plain,
        )
    for refusal in admitted.refusals:
        assert "\n" not in refusal.reason and len(refusal.reason) < 2_000
        assert not refusal.reason.startswith("this fleet cannot read"), "a fault of ours"
        assert decode_action(ENCODER.refusal(refusal), LIMITS).reason
        letter = read_letter(_record(b"", LETTERS._headers(refusal)))
        assert letter.failure.reason == refusal.dead or not refusal.dead
        assert not any(name.startswith(PREFIX) for name, _ in letter.own_headers) and headers_again(letter, "r")
        found[refusal.request.record.offset] = (refusal.outcome, refusal.reason, refusal.dead)
    assert sorted(found) == list(range(len(records)))
    return [found[offset] for offset in range(len(records))]


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
    """Routing, or `RecordError`; a state with them and any key is admitted or refused; a dead letter can be read."""
    found = tuple(_headers(data))
    with suppress(RecordError):
        read(found)
    letter = read_letter(_record(b"", found))
    assert letter.attempts >= 1
    _admitted(Admission([SPEC], REPLY_TOPICS, LIMITS), [_record(SEEDS["state"][0], found, key=data[:2])])


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
    """A note that is written as it was read and stands in the ledger, or None."""
    found = decode_note(data)
    assert found is None or decode_note(encode_note(found)) == found
    if found:
        ledger = Ledger()
        for offset in range(2):
            ledger.read(found, 0, offset, 0)
        assert ledger.perhaps() <= ledger.sent().keys() and ledger.chain(found.run) >= set(found.resumes)


def settings_file(data: bytes) -> None:
    """Settings that can be shown and used, or `SettingsError` in one line."""
    path = _scratch() / "fleet.toml"
    path.write_bytes(data)
    _load(path, {})


def _load(path: Path, environment: dict[str, str]) -> None:
    others = {name: value for name, value in os.environ.items() if not name.upper().startswith("FLEET_")}
    try:
        with patch.dict(os.environ, others | environment, clear=True):
            found = load_settings(Settings, config=path)
    except SettingsError as error:
        assert str(error).isprintable() and len(str(error)) < 2_000, str(error)
        return
    assert describe(found) and choose_lane(found.priority, FACTS) in LANES
    topics = found.topics
    kept_ms = [*map(topics.retention_ms, LANES), topics.actions_retention_ms, topics.dead_retention_ms]
    assert all(0 < ms < 2**63 for ms in kept_ms)


FACTS = Facts("k", {"tier": "boss", "level": 1}, 10.0, "expired", 1)


@lru_cache
def _scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix=f"fleet-fuzz-{os.getpid()}-"))


def state_tree(data: bytes) -> None:
    """`state`, with good MessagePack."""
    state(packed(grafted(_unpacked("state", data), data[1:], PACKED)))


def action_tree(data: bytes) -> None:
    """`action`, with good MessagePack."""
    action(packed(grafted(_unpacked("action", data), data[1:], PACKED)))


def _unpacked(name: str, data: bytes) -> Any:
    """The seed that the first byte picks."""
    seeds = SEEDS[name]
    return msgpack.unpackb(seeds[data[0] % len(seeds) if data else 0])


def manifest_tree(data: bytes) -> None:
    """`manifest`, with good JSON."""
    manifest(written(grafted(json.loads(SEEDS["manifest"][0]), data, WRITTEN)).encode())


def note_tree(data: bytes) -> None:
    """`note`, with good JSON."""
    note(written(grafted(json.loads(SEEDS["note"][0]), data, WRITTEN)).encode())


def settings_tree(data: bytes) -> None:
    """`settings_file`, with good TOML, and the same tables as JSON in variables."""
    tree = grafted(TABLES, data, WRITTEN)
    settings_file(toml(tree))
    variables = {f"FLEET_{name.upper()}": written(value) for name, value in tree.items()}
    _load(Path(os.devnull), {name: text for name, text in variables.items() if "\0" not in name})


TABLES: dict[str, Any] = {
    "delivery": "exactly_once",
    "kafka": {"bootstrap_servers": "a:1", "security_protocol": "SASL_SSL", "sasl_username": "u", "sasl_password": "p"},
    "topics": {"partitions": 3, "retention_low_h": 1.5},
    "priority": {"default": "low", "rules": [{"when": {"kind": ["k"], "attribute": {"tier": "boss"}}, "lane": "high"}]},
    "model": {"path": "m", "factories": ["a:b"]},
    "lanes": {"high": {"max_depth": 5}},
    "batch": {"max_batch": 8, "max_wait_ms": 1.5},
    "predictors": [{"device": "cpu", "cores": [0], "threads": "auto", "simulated": {"seed": 1}}],
    "drain": {"timeout_s": 5},
}

TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        *(state, state_tree, action, action_tree, headers, finished_map),
        *(manifest, manifest_tree, note, note_tree, settings_file, settings_tree),
    )
}

MODELS = Path(__file__).parents[2] / "tools" / "demo" / "models"

SEEDS: dict[str, list[bytes]] = {
    "state": [
        encode_state(State(np.zeros(4, np.float32), seq=7, sent_us=2**50, deadline_us=2**51, kind="k")),
        encode_state(State([0.0, 1.0, 2.0, 3.0], episode="e", options={"a": [1, {"b": None}]})),
        encode_state(
            State({"image": np.zeros((2, 2), np.uint8), "mask": [True, False], "rough": [1.5], "count": 3}, seq=1)
        ),
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
SEEDS |= {name: [b"\0\0\0", bytes(range(16))] for name in TARGETS if name.endswith("_tree")}

"""Letters as tables for people and as JSON for programs.

What agents wrote is shown, never obeyed: control characters and terminal codes are escaped, rich's markup is off.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tools.dead.filters import lane_of
from tools.dead.resend import Resend, Unsendable
from tools.dead.work import Found
from topics.errors import DecodeError
from topics.letters import DeadLetter, Failure
from topics.names import LANES, FleetNames
from topics.wire import decode_state

HEX_HEAD_BYTES: Final = 256
SHOWN_ELEMENTS: Final = 64
MESSAGE_CHARACTERS: Final = 120


def clean(text: str) -> str:
    """`text` with everything escaped that a terminal might obey or cannot show."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def when(time_us: int) -> str:
    """Local time to the second."""
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{time_us} µs"


def table_of(found: Found, letters: Sequence[DeadLetter], names: FleetNames, title: str) -> Table:
    """One row a letter."""
    table = _table(title, "letter", "time", "reason", "agent", "lane", "attempts", "message", "redriven")
    for letter in letters:
        message = clean(letter.message)
        table.add_row(
            letter.id,
            when(letter.failure.time_us),
            Text(clean(letter.failure.reason)),
            Text(clean(letter.agent)),
            lane_of(letter, names) or "–",
            str(letter.attempts),
            Text(message if len(message) <= MESSAGE_CHARACTERS else message[: MESSAGE_CHARACTERS - 1] + "…"),
            _redriven(found, letter),
        )
    return table


def line_of(letter: DeadLetter, names: FleetNames, found: Found | None = None) -> dict[str, Any]:
    """A letter for programs."""
    line = {
        "letter": letter.id,
        "reason": letter.failure.reason,
        "message": letter.message,
        "agent": letter.agent,
        "lane": lane_of(letter, names),
        "time_us": letter.failure.time_us,
        "topic": letter.failure.topic,
        "partition": letter.failure.partition,
        "offset": letter.failure.offset,
        "worker": letter.worker,
        "model": letter.model,
        "attempts": letter.attempts,
        "redriven_from": letter.redriven_from,
    }
    if found is not None:
        id_ = (letter.partition, letter.offset)
        line["bytes"] = found.sizes[id_]
        line["redriven"] = "perhaps" if id_ in found.perhaps else id_ in found.sent_ms
        line["redriven_ms"] = None if id_ in found.perhaps else found.sent_ms.get(id_)
    return line


def counts_of(found: Found, names: FleetNames) -> list[dict[str, Any]]:
    """Letters by reason and lane, most frequent reason first."""
    letters: Counter[tuple[str, str | None]] = Counter()
    redriven: Counter[tuple[str, str | None]] = Counter()
    for letter in found.letters:
        kind = letter.failure.reason, lane_of(letter, names)
        letters[kind] += 1
        redriven[kind] += (letter.partition, letter.offset) in found.sent_ms
    return [
        {"reason": reason, "lane": lane, "letters": number, "redriven": redriven[reason, lane]}
        for (reason, lane), number in letters.most_common()
    ]


def count_table(counts: Sequence[dict[str, Any]], title: str) -> Table:
    """Reasons down, lanes across; in brackets how many of them were redriven."""
    lanes = [*LANES, *([None] if any(count["lane"] is None for count in counts) else [])]
    table = _table(title, "reason", *(lane or "no lane" for lane in lanes), "all", "redriven")
    by_kind = {(count["reason"], count["lane"]): count["letters"] for count in counts}
    for reason in dict.fromkeys(count["reason"] for count in counts):
        row = [by_kind.get((reason, lane), 0) for lane in lanes]
        redriven = sum(count["redriven"] for count in counts if count["reason"] == reason)
        table.add_row(Text(clean(reason)), *(str(number or "–") for number in row), str(sum(row)), str(redriven))
    return table


def sheet_of(letter: DeadLetter, names: FleetNames) -> Group:
    """Everything about one letter, for people."""
    sheet = Table.grid(padding=(0, 2))
    for name, text in _facts(letter, names):
        sheet.add_row(Text(name, style="bold"), Text(clean(text)))
    headers = _table("headers, as they are", "name", "value")
    for name, value in letter.headers:
        headers.add_row(Text(clean(name)), Text(clean(header_text(value))))
    payload = payload_of(letter)
    kind = "value, decoded" if "state" in payload else f"value, first {HEX_HEAD_BYTES} bytes"
    return Group(sheet, Text(), headers, Text(f"\n{kind}", style="bold"), Text(_payload_text(payload)))


def sheet_line(letter: DeadLetter, names: FleetNames) -> dict[str, Any]:
    """Everything about one letter, for programs; bytes that are not text as {"hex": …}."""
    return line_of(letter, names) | {
        "history": [_failure(failure) for failure in letter.history],
        "headers": [[name, _json_bytes(value)] for name, value in letter.headers],
        "key": _json_bytes(letter.key),
        "bytes": len(letter.value or b""),
        **payload_of(letter),
    }


def payload_of(letter: DeadLetter) -> dict[str, Any]:
    """{"state": its fields} where the value can be decoded, else {"undecodable": why, "hex": the first bytes}."""
    value = letter.value or b""
    try:
        state = decode_state(value)
    except DecodeError as error:
        return {"undecodable": str(error), "hex": value[:HEX_HEAD_BYTES].hex(" ")}
    fields = {name: getattr(state, name) for name in state.__slots__}
    return {"state": {name: _plain(field) for name, field in fields.items() if field is not None}}


def resend_line(one: Resend, outcome: str) -> dict[str, Any]:
    """A letter on its way back, for programs."""
    return {
        "letter": one.letter.id,
        "outcome": outcome,
        "agent": one.letter.agent,
        "reason": one.letter.failure.reason,
        "attempts": one.letter.attempts,
        "topic": one.topic,
        "partition": one.partition,
    }


def unsendable_line(one: Unsendable) -> dict[str, Any]:
    """A letter that stays, for programs."""
    return {"letter": one.letter.id, "outcome": "unsendable", "agent": one.letter.agent, "why": one.why}


def header_text(value: bytes | None) -> str:
    """A header's value as text where it is text, else as hex."""
    shown = _json_bytes(value)
    return "–" if shown is None else shown if isinstance(shown, str) else "0x" + shown["hex"]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _redriven(found: Found, letter: DeadLetter) -> str:
    id_ = (letter.partition, letter.offset)
    if id_ in found.perhaps:
        return "perhaps: a redrive was cut off"
    return when(found.sent_ms[id_] * 1000) if id_ in found.sent_ms else "–"


def _facts(letter: DeadLetter, names: FleetNames) -> list[tuple[str, str]]:
    failure = letter.failure
    facts = [
        ("letter", letter.id),
        ("reason", failure.reason),
        ("message", letter.message),
        ("time", when(failure.time_us)),
        ("agent", letter.agent),
        ("lane", lane_of(letter, names) or "none of this fleet"),
        ("origin", f"{failure.topic} partition {failure.partition} offset {failure.offset}"),
        ("worker", letter.worker),
        ("model", letter.model),
        ("attempts", str(letter.attempts)),
    ]
    if letter.redriven_from:
        facts.append(("redriven from", letter.redriven_from))
    for one in letter.history:
        facts.append(("failed before", f"{when(one.time_us)} {one.reason}, {one.topic} {one.partition}:{one.offset}"))
    return facts


def _payload_text(payload: dict[str, Any]) -> str:
    if "state" in payload:
        return clean_lines(json.dumps(payload["state"], indent=2, ensure_ascii=True))
    return f"{clean(payload['undecodable'])}\n{payload['hex'] or 'empty'}"


def clean_lines(text: str) -> str:
    """`clean`, line by line."""
    return "\n".join(map(clean, text.splitlines()))


def _failure(failure: Failure) -> dict[str, Any]:
    return {name: getattr(failure, name) for name in failure.__slots__}


def _json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}
    return text if text.isprintable() else {"hex": value.hex()}


def _plain(value: Any) -> Any:
    """What JSON can hold: arrays by dtype, shape and first elements; bytes and what is long by their beginning."""
    if isinstance(value, np.ndarray):
        head = value.reshape(-1)[:SHOWN_ELEMENTS].tolist()
        return {"dtype": value.dtype.name, "shape": list(value.shape), "first": [_plain(one) for one in head]}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes | memoryview):
        return {"hex": bytes(value[:HEX_HEAD_BYTES]).hex()}
    return value

"""What is shown of letters: everything, but nothing that a hostile agent could make a terminal do."""

from __future__ import annotations

import io
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.tools.dead.build import letter
from tools.dead.show import clean, count_table, counts_of, line_of, payload_of, sheet_line, sheet_of, table_of
from tools.dead.work import Found
from topics.letters import DeadLetter
from topics.names import FleetNames
from topics.records import State
from topics.wire import encode_state

NAMES = FleetNames("f")


def found(*letters: DeadLetter, sent: tuple[int, ...] = ()) -> Found:
    sizes = {(one.partition, one.offset): 1 for one in letters}
    return Found(list(letters), {(0, offset): 5_000 for offset in sent}, set(), sizes)


def printed(what: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    """Escape codes, line ends, half characters."""
    assert clean(text).isprintable()


@given(st.binary(max_size=60), st.text(max_size=20), st.binary(max_size=20))
def test_any_letter_can_be_shown(value: bytes, text: str, header: bytes) -> None:
    """To people and to programs."""
    one = letter(text.encode("utf-8", "replace").decode(), value, headers=[("[red]x", header)], message="[/] \x1b[2J")
    assert "\x1b" not in printed(sheet_of(one, NAMES)) + printed(table_of(found(one), [one], NAMES, "[/]"))
    assert json.loads(json.dumps(sheet_line(one, NAMES)))["message"] == "[/] \x1b[2J"


def test_a_payload_is_decoded_where_it_can_be() -> None:
    """Arrays by dtype, shape and their first elements."""
    value = encode_state(State({"x": np.arange(3, dtype=np.int64)}, seq=4, options={"a": [1]}))
    state = payload_of(letter(value=value))["state"]
    assert state["observation"] == {"x": {"dtype": "int64", "shape": [3], "first": [0, 1, 2]}}
    assert (state["seq"], state["options"]) == (4, {"a": [1]})
    odd = payload_of(letter(value=encode_state(State(np.array([np.nan, 1], np.float32)))))
    assert json.loads(json.dumps(odd, allow_nan=False))["state"]["observation"]["first"] == ["nan", 1.0]


def test_a_payload_that_cannot_be_decoded_is_shown_in_hex() -> None:
    """With the decoder's reason."""
    payload = payload_of(letter(value=b"\xc1" + bytes(300)))
    assert "MessagePack" in payload["undecodable"] and payload["hex"].startswith("c1 00 00")
    assert len(payload["hex"].split()) == 256


def test_counts_are_by_reason_and_lane() -> None:
    """The most frequent first; redriven ones are counted beside them."""
    letters = found(letter(offset=0), letter(offset=1), letter(offset=2, topic="x", reason="[b]odd"), sent=(1,))
    counts = counts_of(letters, NAMES)
    assert counts == [
        {"reason": "model_error", "lane": "normal", "letters": 2, "redriven": 1},
        {"reason": "[b]odd", "lane": None, "letters": 1, "redriven": 0},
    ]
    shown = printed(count_table(counts, "title"))
    assert "[b]odd" in shown and "no lane" in shown


def test_a_redriven_letter_is_shown_as_such() -> None:
    """In the table and in JSON."""
    letters = found(letter(offset=0), letter(offset=1), sent=(1,))
    first, second = (line_of(one, NAMES, letters) for one in letters.letters)
    assert (first["redriven"], first["redriven_ms"]) == (False, None)
    assert (second["redriven"], second["redriven_ms"]) == (True, 5_000)
    assert "1970-01-01" in printed(table_of(letters, letters.letters, NAMES, "title"))

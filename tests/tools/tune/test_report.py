"""What people and programs get to see."""

from __future__ import annotations

import io
import json

import numpy as np
from rich.console import Console

from tests.tools.tune.build import curve, fleet, no_bar
from tools.tune.live import Measured
from tools.tune.report import as_dict, bars, met, show_check, show_found
from tools.tune.search import Most, search


def measured(p99_ms: float, unanswered: int = 0) -> Measured:
    return Measured({"normal": np.full(100, p99_ms)}, unanswered, 20, 0.5)


def test_bars_show_where_the_target_is() -> None:
    """Below it, above it, and off the scale."""
    below, above, off = bars([(100, 25), (1000, 60), (2000, 500)], 50)
    assert below.count("█") == 20 and below.index("┃") > below.rindex("█")
    assert above.index("┃") < above.rindex("█")
    assert off.count("█") == 59 and "▶" in off and "500 ms" in off
    assert below.index("┃") == above.index("┃") == off.index("┃")


def test_a_check_is_held_against_the_target() -> None:
    """A lane that is late misses it, and so does one state without an answer; without a check the prediction counts."""
    ours = fleet({"normal": 50}, {"normal": 200})
    found = search(ours, Most(1, 1), no_bar)
    assert met(ours, found, None)
    assert met(ours, found, measured(50))
    assert not met(ours, found, measured(51))
    assert not met(ours, found, measured(10, unanswered=1))


def test_tables_and_json_say_the_same() -> None:
    """What is recommended, what is set, what was left out, and what was measured beside what was predicted."""
    ours = fleet({"normal": 50}, {"normal": 200}, like=curve(4000, 100))
    found = search(ours, Most(1, 1), no_bar)
    page = io.StringIO()
    console = Console(file=page, width=100)
    show_found(console, ours, found)
    show_check(console, ours, found, measured(33))
    plain = json.loads(json.dumps(as_dict(ours, found, measured(33))))
    assert plain["recommended"]["candidate"]["workers"] == 1
    assert (plain["check"]["unanswered"], plain["check"]["met"]) == (0, True)
    assert plain["check"]["p99_ms"]["normal"] == 33
    assert f"{plain['recommended']['p99_ms']['normal']:.3g} " in page.getvalue()
    for words in ("Recommended", "as set", "as you say", "For real", "the target is met", "is the target, 50 ms"):
        assert words in page.getvalue(), words
    assert "the simulation runs the worker's own lanes" in plain["left_out"]

"""What a comparison comes to, for JSON and for people."""

from __future__ import annotations

import io
import json

import numpy as np
from rich.console import Console

from tools.bench.peers.report import show_peers
from tools.bench.peers.results import Pairs, as_dict
from tools.bench.peers.systems import chosen
from tools.bench.results import Run


def run(decisions_per_s: float, *latencies_s: float) -> Run:
    made = Run(decisions_per_s, 1e6 / decisions_per_s)
    if latencies_s:
        made.lane("normal").add(np.array(latencies_s))
    return made


def pairs_of(name: str, *pairs: tuple[Run, Run], failed: str | None = None) -> Pairs:
    made = Pairs(chosen(name)[0], failed=failed)
    for theirs, ours in pairs:
        made.add(theirs, ours)
    return made


def test_every_system_has_the_keys_that_are_promised() -> None:
    """Both sides' rates, the ratio ours ÷ theirs pair by pair with its ends, versions; percentiles behind HTTP only."""
    quix = pairs_of("quix", (run(10), run(100)), (run(20), run(180)), (run(10), run(130)))
    mosec = pairs_of("mosec", (run(50, 0.001, 0.003), run(100, 0.002, float("nan"))))
    found = as_dict([quix, mosec], {"rounds": 3})
    drain, closed = found["drain"]["quix"], found["closed"]["mosec"]
    assert (drain["decisions_per_s"], drain["fleet_decisions_per_s"], drain["pairs"]) == (10, 130, 3)
    assert (drain["ratio"], drain["ratio_min"], drain["ratio_max"]) == (10, 9, 13)
    assert drain["packages"]["quixstreams"] == drain["version"]
    assert "p99_ms" not in drain
    assert (closed["p50_ms"], closed["fleet_p50_ms"], closed["fleet_unanswered"]) == (2, 2, 1)
    json.dumps(found)


def test_goals_are_those_of_the_systems_that_have_one() -> None:
    """Met by the median; a system that failed meets none."""
    met = as_dict([pairs_of("faust", (run(10), run(100))), pairs_of("ray", (run(1), run(2)))], {})["goals"]
    assert [(goal["key"], goal["met"]) for goal in met] == [("drain/faust/ratio", True)]
    failed = as_dict([pairs_of("quix", failed="no room")], {})["goals"]
    assert [(goal["found"], goal["met"]) for goal in failed] == [(None, False)]


def test_what_failed_is_reported_and_the_others_are_shown() -> None:
    """With the reason, beside the table."""
    found = as_dict([pairs_of("quix", failed="the quix process ended"), pairs_of("faust", (run(10), run(100)))], {})
    console = Console(record=True, width=90, file=io.StringIO())
    show_peers(console, found)
    text = console.export_text()
    assert "the quix process ended" in text
    assert "10.0 (10.0–10.0)" in text
    assert "goal at least 10" in text


def test_pairs_before_a_failure_count() -> None:
    """Both are told: the figures, and that it stopped."""
    found = as_dict([pairs_of("ray", (run(1), run(2)), failed="it hung up")], {})["closed"]["ray"]
    assert (found["ratio"], found["failed"]) == (2, "it hung up")

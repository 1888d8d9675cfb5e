"""What ends up in the JSON, and what people read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rich.console import Console

from tools.bench.report import show_result
from tools.bench.results import Goal, Result, Run


def run(decisions_per_s: float, cpu_us: float, **lanes: list[float]) -> Run:
    made = Run(decisions_per_s, cpu_us)
    for lane, latencies_s in lanes.items():
        made.lane(lane).add(np.array(latencies_s))
    return made


def test_throughput_has_the_keys_that_are_promised() -> None:
    """Medians of both sides, the ratio of the pairs with its ends, CPU per decision."""
    fleet, bare = [run(80, 15), run(45, 14), run(90, 16)], [run(100, 10), run(50, 10), run(100, 10)]
    found = Result("drain", {"records": 1}, fleet, bare).as_dict()
    assert found["decisions_per_s"] == 80
    assert found["bare_decisions_per_s"] == 100
    assert (found["ratio"], found["ratio_min"], found["ratio_max"]) == (0.9, 0.8, 0.9)
    assert (found["cpu_us_per_decision"], found["bare_cpu_us_per_decision"]) == (15, 10)
    assert found["cpu_ratio"] == 1.5
    assert len(found["rounds"]) == 3
    json.dumps(found)


def test_lanes_have_the_keys_that_are_promised() -> None:
    """Latencies of all rounds pooled, counts added, both sides."""
    fleet = [run(1, 1, high=[0.001], normal=[0.002, float("nan")]), run(1, 1, normal=[0.004])]
    found = Result("open", {}, fleet, [run(1, 1, normal=[0.001]), run(1, 1)]).as_dict()
    assert set(found["lanes"]["normal"]) == {"p50_ms", "p95_ms", "p99_ms", "offered", "answered", "unanswered"}
    assert found["lanes"]["normal"]["p50_ms"] == pytest.approx(3)
    assert (found["offered"], found["answered"], found["unanswered"]) == (4, 3, 1)
    assert found["bare_lanes"]["normal"]["answered"] == 1


def test_goals_are_found_by_their_path() -> None:
    """A figure that is not there is not met."""
    goals = (
        Goal("lanes/high/p99_ms", "at most", 20),
        Goal("lanes/low/p99_ms", "at most", 20),
        Goal("ratio", "at least", 1),
    )
    found = Result("open", {}, [run(2, 1, high=[0.001])], [run(1, 1)], goals).as_dict()["goals"]
    assert [goal["met"] for goal in found] == [True, False, True]


@pytest.mark.parametrize("benchmark", ["drain", "closed", "open", "echo", "idle"])
def test_every_result_can_be_shown(benchmark: str) -> None:
    """With figures and without, with an empty lane, without a floor."""
    console = Console(width=120, record=True, quiet=True)
    full = Result(
        benchmark, {}, [run(60_000, 15.2, high=[0.001], low=[])], [run(1, 1)], (Goal("ratio", "at least", 1),)
    )
    show_result(console, full.as_dict())
    show_result(console, Result(benchmark, {}, [Run()], [], (), {"idle_cpu_share": 0.01}).as_dict())


def test_tables_have_the_keys_as_columns() -> None:
    """One row for each mapping, words as they are, missing numbers as a dash."""
    rows = [{"change": "join", "p99_ms": 12.0}, {"change": "leave", "p99_ms": None}]
    console = Console(record=True, width=100)
    show_result(console, Result("scale", {}, [], [], more={"tables": {"changes": rows}}).as_dict())
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["change", "p99", "ms"] in lines
    assert ["join", "12"] in lines
    assert ["leave", "–"] in lines

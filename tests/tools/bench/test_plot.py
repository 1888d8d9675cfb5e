"""Pictures from the JSON of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.bench.plot import plot
from topics.errors import FleetError

HIGH = {"lane": "high", "p50_ms": 5.0, "p99_ms": 9.0}
FOUND: list[dict[str, Any]] = [
    {"benchmark": "drain", "ratio": 0.93, "ratio_min": 0.8, "ratio_max": 1.0},
    {"benchmark": "lanes", "tables": {"latency": [{"low": 0.0, **HIGH}, {"low": 2.0, **HIGH}]}},
    {
        "benchmark": "arrivals",
        "tables": {
            "burst, from its begin": [{"from_s": -1.0, "p50_ms": 1.0, "p99_ms": 2.0}, {"from_s": 0.0, "p99_ms": None}]
        },
    },
    {
        "benchmark": "scale",
        "tables": {
            "workers": [{"workers": 1, "decisions_per_s": 10.0}],
            "changes": [{"change": "leave", "p99_ms": 455.0, "gap_ms": None}],
        },
    },
    {"benchmark": "open", "lanes": {"high": HIGH}, "bare_lanes": {"high": HIGH}},
    {"benchmark": "long", "over_time": {"high": [[0.0, 9.0], [60.0, None]]}, "looks": [[0.0, 70.0, 3.0]]},
    {
        "benchmark": "peers",
        "drain": {"quix": {"decisions_per_s": 10.0, "fleet_decisions_per_s": 30.0}, "faust": {"failed": "no"}},
    },
    {"benchmark": "idle"},
]


def test_every_benchmark_with_a_picture_has_one(tmp_path: Path) -> None:
    """From a file of one result or of several; what failed or has no picture is left out."""
    one, many = tmp_path / "one.json", tmp_path / "many.json"
    one.write_text(json.dumps(FOUND[0]))
    many.write_text(json.dumps({str(at): found for at, found in enumerate(FOUND[1:])}))
    written = plot([one, many], tmp_path / "plots")
    names = {path.stem for path in written}
    assert names == {
        "floors",
        "open",
        "lanes",
        "burst",
        "scale",
        "join-leave",
        "long-p99",
        "long-memory",
        "peers-drain",
    }
    text = (tmp_path / "plots" / "peers-drain.svg").read_text()
    assert "decision-fleet" in text and "quix" in text and "faust" not in text


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"benchmark": 3}'])
def test_other_files_are_one_line(tmp_path: Path, text: str) -> None:
    """The file's name and what it should have been."""
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(FleetError, match=r"x\.json is not what `fleet bench"):
        plot([file], tmp_path)

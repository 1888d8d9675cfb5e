"""A recording of the demo, replayed against the shipped model: the same answers as when it was made.

tests/recordings/cartpole.mcap: `fleet record` beside `fleet demo --attach --agents 24 --seconds 6`, some of the agents.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tools.cli import application
from tools.diff.answers import Answer, Answers, Collector
from tools.diff.compare import Comparison
from tools.diff.distance import Tolerance
from tools.recording.read import Recording
from topics.wire import decode_state
from workers.models import load_model

ROOT = Path(__file__).parent.parent.parent.parent
RECORDING = ROOT / "tests" / "recordings" / "cartpole.mcap"
MODEL = ROOT / "tools" / "demo" / "models" / "cartpole"
STATES = tuple(f"cartpole.states.{lane}" for lane in ("high", "normal", "low"))


@pytest.fixture(scope="module")
def sides() -> tuple[Answers, Answers]:
    """The recorded answers, and those of the shipped model to the same states."""
    records = [record for part in Recording.open(RECORDING).records() for record in part]
    recorded = Collector(STATES)
    recorded.add(records)
    model = load_model(MODEL, threads=1)
    again = Collector(STATES)
    again.add([record for record in records if record.topic in STATES])
    (spec,) = model.manifest.inputs
    steps = list(again.answers.unanswered)
    asked = [decode_state(record.value or b"").observation for record in records if record.topic in STATES]
    for first in range(0, len(steps), model.manifest.buckets[-1]):
        part = slice(first, first + model.manifest.buckets[-1])
        outputs = model.predict({spec.name: np.stack(asked[part]).astype(spec.numpy)})
        for row, step in enumerate(steps[part]):
            given = {name: column[row] for name, column in outputs.items()}
            again.answers.by_step[step] = Answer(0, "action", given, "", str(model.manifest), 0, 0, 1)
    return recorded.answers, again.answers


def test_the_shipped_model_decides_as_recorded(sides: tuple[Answers, Answers]) -> None:
    """Every state of every agent: 100 % agreement. A change of the wire, the model or its runtime shows here."""
    found = Comparison(Tolerance())
    found.add(*sides)
    assert found.all.pairs == 1382 and found.agreement == 1.0, found.first_divergences(3)
    assert (found.missing_count, found.extra_count) == (0, 0)


def test_another_model_would_be_noticed(sides: tuple[Answers, Answers]) -> None:
    """The same comparison, one answer turned around."""
    recorded, again = sides
    step, answer = next(iter(again.by_step.items()))
    turned = replace(answer, outputs={**answer.outputs, "action": 1 - answer.outputs["action"]})
    found = Comparison(Tolerance())
    found.add(recorded, Answers({**again.by_step, step: turned}))
    assert found.all.agreeing == 1381 and found.first_divergences(1)[0].step == step


def test_a_recording_that_is_not_whole_is_told(tmp_path: Path) -> None:
    """Its missing answers would else look like the other side's."""
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(RECORDING.read_bytes()[:60_000])
    ran = CliRunner().invoke(application(["diff"]), ["diff", "--json", str(RECORDING), str(cut)])
    assert json.loads(ran.stdout)["incomplete"] == [str(cut)]
    assert f"{cut} is not whole" in " ".join(ran.stderr.split())

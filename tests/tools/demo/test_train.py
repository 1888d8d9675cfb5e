"""The training script runs from end to end; that it learns is what the shipped packages show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

from tools.demo import train
from workers.models import load_model


def test_a_short_training_writes_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two updates: a poor policy in a package that loads and names its seed; the same seed, the same
    weights."""
    recipe = replace(train.RECIPES["cartpole"], steps=512, horizon=32, epochs=1, evaluate_every=1)
    monkeypatch.setattr(train, "CHECK_SEEDS", range(2))
    monkeypatch.setattr(train, "FINAL_SEEDS", range(2))
    hashes = []
    for package in (tmp_path / "one", tmp_path / "two"):
        train.write_package(package, "cartpole", recipe, train.train(recipe, seed=5), seed=5)
        manifest = load_model(package).manifest
        assert manifest.training["seed"] == 5 and manifest.environment == "CartPole-v1"
        hashes.append(manifest.files["weights.safetensors"])
    assert hashes[0] == hashes[1]

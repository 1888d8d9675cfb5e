"""The packages we ship: found by environment, small, and as good and as steady as the demo needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tools.demo.packages import find_package, shipped_packages
from topics.errors import FleetError
from workers.models import load_model, read_manifest
from workers.models.invariance import measure_invariance

PACKAGES = sorted(shipped_packages().values())


def test_an_environment_finds_its_package() -> None:
    """The demo asks by Gymnasium id."""
    assert find_package("CartPole-v1").name == "cartpole"
    assert find_package("LunarLander-v3").name == "lunar_lander"
    with pytest.raises(FleetError, match=r'no shipped model plays "Pong-v5", expected one of CartPole-v1, Lunar'):
        find_package("Pong-v5")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_shipped_package_is_small_and_says_where_it_comes_from(package: Path) -> None:
    """It lives in the repository, and its script and seed make it again."""
    assert sum(path.stat().st_size for path in package.iterdir()) < 200_000
    training = read_manifest(package).training
    assert {"script", "seed", "mean_return", "episodes"} <= set(training)
    assert (Path(__file__).parents[3] / training["script"]).is_file()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_rows_answer_is_the_same_at_every_place_in_every_bucket(package: Path) -> None:
    """The demo's proof rests on this: returns through Kafka equal local play, whatever the batches were."""
    model = load_model(package)
    assert measure_invariance(model).exact


@pytest.mark.parametrize(("name", "goal"), [("CartPole-v1", 495.0), ("LunarLander-v3", 200.0)])
def test_a_shipped_policy_plays_as_well_as_it_claims(name: str, goal: float) -> None:
    """A few episodes, all in one batch per step as a fleet would serve them."""
    gymnasium = pytest.importorskip("gymnasium")
    package = find_package(name)
    assert read_manifest(package).training["mean_return"] >= goal
    model = load_model(package, threads=1)
    envs = [gymnasium.make(name) for _ in range(6)]
    observations = {i: env.reset(seed=500 + i)[0] for i, env in enumerate(envs)}
    returns = np.zeros(len(envs))
    while observations:
        rows = np.stack([observations[i] for i in observations]).astype(np.float32)
        actions = model.predict({"observation": rows})["action"]
        for i, action in zip(list(observations), actions, strict=True):
            observations[i], reward, terminated, truncated, _ = envs[i].step(int(action))
            returns[i] += reward
            if terminated or truncated:
                del observations[i]
    assert returns.mean() > 0.8 * goal

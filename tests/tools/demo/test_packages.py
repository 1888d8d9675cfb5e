"""The packages we ship: found by environment, small, and as good and as steady as the demo needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tools.demo.packages import find_package, shipped_packages
from topics.errors import FleetError
from workers.models import Model, load_model, read_manifest
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


def play(model: Model, environment: str, seeds: range, batch_sizes: Iterator[int]) -> dict[int, float]:
    """Return by seed when the states of all running episodes are answered in batches of these sizes."""
    gymnasium = pytest.importorskip("gymnasium")
    envs = {seed: gymnasium.make(environment) for seed in seeds}
    observations = {seed: env.reset(seed=seed)[0] for seed, env in envs.items()}
    returns = dict.fromkeys(seeds, 0.0)
    while observations:
        waiting = list(observations)
        while waiting:
            size = next(batch_sizes)
            batch, waiting = waiting[:size], waiting[size:]
            rows = np.stack([observations[seed] for seed in batch]).astype(np.float32)
            for seed, action in zip(batch, model.predict({"observation": rows})["action"], strict=True):
                observations[seed], reward, terminated, truncated, _ = envs[seed].step(int(action))
                returns[seed] += float(reward)
                if terminated or truncated:
                    del observations[seed]
    return returns


@pytest.mark.parametrize(("environment", "goal"), [("CartPole-v1", 495.0), ("LunarLander-v3", 200.0)])
def test_returns_do_not_depend_on_batches_and_are_as_good_as_claimed(environment: str, goal: float) -> None:
    """The demo's proof in small: one state at a time, or in batches of changing size, the same returns to
    the bit."""
    package = find_package(environment)
    assert read_manifest(package).training["mean_return"] >= goal
    model, seeds = load_model(package, threads=1), range(500, 510)
    alone = play(model, environment, seeds, itertools.repeat(1))
    assert play(model, environment, seeds, itertools.cycle([3, 1, 7, 2, 10])) == alone
    assert float(np.mean(list(alone.values()))) > 0.8 * goal

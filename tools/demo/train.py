"""Trains the policies that the demo ships, so that anybody can make them again from a script and a seed.

Off the hot path: `python -m tools.demo.train cartpole` plays Gymnasium on one CPU core for a minute or two,
learns with `ppo`, and writes a model package whose manifest names this script, the seed and the mean return
that the package itself reached. Never run by the demo, which takes the packages in `tools/demo/models` as
they are.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import safetensors.torch
import torch
import typer
from rich.console import Console
from torch import nn

from tools.demo.packages import SHIPPED
from tools.demo.ppo import Learner, Recipe
from topics.tensors import Array
from workers.models import Model, load_model
from workers.models.pack import pack

SEED = 1
CHECK_SEEDS = range(10_000, 10_030)  # episodes that pick the best actor while it learns
FINAL_SEEDS = range(100, 300)  # episodes, unseen by the choice, whose mean return the manifest states
GOLDEN_PAIRS = 8
GOLDEN_EVERY = 25  # steps between two golden observations: they should not all look alike

_console = Console()

RECIPES = {
    "cartpole": Recipe(
        "CartPole-v1", steps=400_000, envs=8, horizon=256, epochs=10, minibatch=256, learning_rate=1e-3,
        gamma=0.99, gae_lambda=0.95, entropy=0.0, evaluate_every=10, goal=500.0,
    ),
    "lunar_lander": Recipe(
        "LunarLander-v3", steps=1_600_000, envs=16, horizon=1024, epochs=4, minibatch=256, learning_rate=1e-3,
        gamma=0.999, gae_lambda=0.98, entropy=0.01, evaluate_every=5, goal=275.0,
    ),
}  # fmt: skip  # as a table


Policy = Callable[[Array], int]


def steps(policy: Policy, environment: str, seeds: range) -> Iterator[tuple[Array, float]]:
    """Observation and reward of every step of one episode per seed."""
    with gymnasium.make(environment) as env:
        for seed in seeds:
            observation, _ = env.reset(seed=seed)
            done = False
            while not done:
                before = observation
                observation, reward, terminated, truncated, _ = env.step(policy(before))
                done = terminated or truncated
                yield before, float(reward)


def mean_return(policy: Policy, environment: str, seeds: range) -> float:
    """Mean undiscounted return over one episode per seed."""
    return sum(reward for _, reward in steps(policy, environment, seeds)) / len(seeds)


def greedy(actor: nn.Module) -> Policy:
    """The most likely action."""

    @torch.no_grad()
    def policy(observation: Array) -> int:
        return int(actor(torch.from_numpy(observation)).argmax())

    return policy


def served(model: Model) -> Policy:
    """The action a worker would answer."""

    def policy(observation: Array) -> int:
        return int(model.predict({"observation": observation[None]})["action"][0])

    return policy


def train(recipe: Recipe, seed: int) -> nn.Sequential:
    """The actor with the best mean return over `CHECK_SEEDS`; stops early at the recipe's goal."""
    learner = Learner(recipe, seed)
    updates = recipe.steps // (recipe.envs * recipe.horizon)
    best, best_return, begun = learner.actor, float("-inf"), time.monotonic()
    for update in range(1, updates + 1):
        learner.learn(progress=(update - 1) / updates)
        if update % recipe.evaluate_every and update != updates:
            continue
        reached = mean_return(greedy(learner.actor), recipe.environment, CHECK_SEEDS)
        played = update * recipe.envs * recipe.horizon
        _console.print(f"{played:>9,} steps  {time.monotonic() - begun:5.0f} s  mean return {reached:7.1f}")
        if reached > best_return:
            best, best_return = copy.deepcopy(learner.actor), reached
        if reached >= recipe.goal:
            break
    return best


def draft_manifest(name: str, recipe: Recipe, actor: nn.Sequential, training: dict[str, Any]) -> dict[str, Any]:
    """The manifest but for hashes and golden pairs."""
    linears = [layer for layer in actor if isinstance(layer, nn.Linear)]
    return {
        "format": 1,
        "name": name.replace("_", "-"),
        "version": "1",
        "environment": recipe.environment,
        "inputs": [{"name": "observation", "dtype": "float32", "shape": [linears[0].in_features]}],
        "outputs": [
            {"name": "action", "dtype": "int64", "shape": []},
            {"name": "logits", "dtype": "float32", "shape": [linears[-1].out_features]},
        ],
        "buckets": [1, 2, 4, 8, 16, 32, 64, 128, 256],
        "compute": "float64",
        "finite": True,
        "allow_nan": False,
        "backend": {
            "kind": "torch",
            "factory": "mlp",
            "arguments": {"hidden": list(recipe.hidden), "activation": "relu", "head": "argmax"},
            "weights": "weights.safetensors",
        },
        "training": training,
    }


def write_package(path: Path, name: str, recipe: Recipe, actor: nn.Sequential, seed: int) -> float:
    """Write the package and give the mean return it reaches itself over `FINAL_SEEDS`."""
    path.mkdir(parents=True, exist_ok=True)
    weights = {
        f"layers.{int(key.split('.')[0]) // 2}.{key.split('.')[1]}": value for key, value in actor.state_dict().items()
    }
    (path / "weights.safetensors").write_bytes(safetensors.torch.save(weights))
    training: dict[str, Any] = {"script": "tools/demo/train.py", "recipe": name, "seed": seed}
    observations = [before for before, _ in steps(greedy(actor), recipe.environment, range(1, 3))]
    golden = {"observation": np.stack(observations[::GOLDEN_EVERY][:GOLDEN_PAIRS]).astype(np.float32)}
    _write_manifest(path, draft_manifest(name, recipe, actor, training))
    pack(path, inputs=golden)
    reached = mean_return(served(load_model(path)), recipe.environment, FINAL_SEEDS)
    training |= {"episodes": len(FINAL_SEEDS), "mean_return": round(reached, 1), "torch": torch.__version__}
    _write_manifest(path, draft_manifest(name, recipe, actor, training))
    pack(path, inputs=golden)
    return reached


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    (path / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def main(
    name: Annotated[str, typer.Argument(help=f"What to train: {', '.join(RECIPES)}.")],
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = SEED,
    out: Annotated[Path | None, typer.Option(help="Package directory (default: the shipped one).")] = None,
) -> None:
    """Train a policy and write its model package."""
    if name not in RECIPES:
        raise typer.BadParameter(f'no recipe "{name}", expected one of {", ".join(RECIPES)}')
    torch.set_num_threads(1)  # these layers are too small to share, and one thread adds in one order
    path = out or SHIPPED / name
    reached = write_package(path, name, RECIPES[name], train(RECIPES[name], seed), seed)
    _console.print(f"{path}: mean return {reached:.1f} over {len(FINAL_SEEDS)} episodes")


if __name__ == "__main__":
    typer.run(main)

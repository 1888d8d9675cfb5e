"""A group of Gymnasium agents that step together, and the record of what they did.

Played once through Kafka (`agents`) and once locally (`play_local`): both give it actions, and as all chance comes from
the seeds, equal actions make equal episodes. Knows neither Kafka nor a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from tools.demo.played import Played
from topics.errors import FleetError
from topics.tensors import Array, TensorSpec


class Group:
    """Agents `numbers`, each with an environment of its own whose chance comes from (seed, number) alone.

    `observations` [n, *spec.shape] is what the agents see now, in the model's dtype.

    Raises:
        FleetError: Gymnasium cannot make the environment, or the model does not take what it shows.
    """

    def __init__(self, environment: str, numbers: Sequence[int], seed: int, spec: TensorSpec) -> None:
        self.numbers = tuple(numbers)
        self.steps = 0
        self.episodes = 0
        self._envs = [make_environment(environment, spec) for _ in self.numbers]
        self._step = [env.step for env in self._envs]
        self._returns: list[list[float]] = [[] for _ in self.numbers]
        self._unfinished = [0.0] * len(self.numbers)
        self._actions: list[Array] = []
        self.observations = np.empty((len(self.numbers), *spec.shape), spec.numpy)
        for row, (env, number) in enumerate(zip(self._envs, self.numbers, strict=True)):
            self.observations[row], _ = env.reset(seed=seed_of(seed, number))

    def __len__(self) -> int:
        return len(self.numbers)

    def step(self, actions: Array) -> None:
        """Every agent acts once: `actions` [n] (discrete) or [n, *shape]. Who finishes an episode starts the next."""
        self._actions.append(actions)
        observations, unfinished = self.observations, self._unfinished
        for row, action in enumerate(actions):
            observation, reward, terminated, truncated, _ = self._step[row](action)
            unfinished[row] += float(reward)
            if terminated or truncated:
                observation = self._next_episode(row)
            observations[row] = observation
        self.steps += 1

    def _next_episode(self, row: int) -> Any:
        self._returns[row].append(self._unfinished[row])
        self._unfinished[row] = 0.0
        self.episodes += 1
        return self._envs[row].reset()[0]

    def mean_return(self) -> float | None:
        """Of the finished episodes; None before the first."""
        finished = [value for returns in self._returns for value in returns]
        return sum(finished) / len(finished) if finished else None

    def played(self) -> list[Played]:
        """Every agent's record so far."""
        actions = np.stack(self._actions, axis=1) if self._actions else np.empty((len(self), 0), np.int64)
        return [
            Played(
                number,
                self.steps,
                tuple(self._returns[row]),
                self._unfinished[row],
                hashlib.sha256(np.ascontiguousarray(actions[row]).tobytes()).hexdigest(),
            )
            for row, number in enumerate(self.numbers)
        ]

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def __repr__(self) -> str:
        return f"<Group of {len(self)} agents, {self.steps} steps, {self.episodes} episodes>"


def seed_of(seed: int, number: int) -> int:
    """The environment seed of agent `number`, unlike that of any other seed and agent."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def make_environment(environment: str, spec: TensorSpec) -> Any:
    """One environment; the model must take its observations and its actions must be what a model can give."""
    try:
        env = gymnasium.make(environment, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError) as error:
        raise FleetError(f"Gymnasium cannot make {environment}: {' '.join(str(error).split())}") from error
    shape = env.observation_space.shape
    if shape != spec.shape:
        raise FleetError(
            f"{environment} shows observations of shape {shape}, the model takes {spec.shape}: "
            "choose another --env or --model"
        )
    return env

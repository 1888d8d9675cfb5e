"""PPO in one file: how the demo's policies learn.

Off the hot path, used by `train` alone. Schulman et al. 2017 (arXiv:1707.06347) with generalised advantages
(Schulman et al. 2015, arXiv:1506.02438), one core, no other library than torch and Gymnasium. Takes a recipe
and a seed; `Learner` then holds an actor that gets better with every `learn`. Same seed, same torch, same
kind of CPU: same weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from topics.tensors import Array


@dataclass(frozen=True, slots=True)
class Recipe:
    """What it takes to learn one policy. `steps` counts those of all `envs` together."""

    environment: str
    steps: int
    envs: int
    horizon: int
    epochs: int
    minibatch: int
    learning_rate: float
    gamma: float
    gae_lambda: float
    entropy: float
    evaluate_every: int  # updates
    goal: float  # mean return at which learning stops
    hidden: tuple[int, ...] = (64, 64)


class Envs:
    """A few environments stepped in turn; each restarts by itself when its episode ends."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self._envs = [gymnasium.make(recipe.environment) for _ in range(recipe.envs)]
        starts = [env.reset(seed=seed + i)[0] for i, env in enumerate(self._envs)]
        self.observations = np.asarray(starts, dtype=np.float32)

    def step(self, actions: Array) -> tuple[Array, Array, dict[int, Array]]:
        """Give rewards and ends, both float32 [envs], and the last observation of every episode cut by its
        time limit."""
        rewards, ends = np.zeros((2, len(self._envs)), dtype=np.float32)
        cut: dict[int, Array] = {}
        for i, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            observation, rewards[i], terminated, truncated, _ = env.step(int(action))
            if terminated or truncated:
                ends[i] = 1.0
                if not terminated:
                    cut[i] = observation
                observation, _ = env.reset()
            self.observations[i] = observation
        return rewards, ends, cut


def network(sizes: tuple[int, ...], last_gain: float) -> nn.Sequential:
    """Linear layers with ReLU between them, orthogonal start values."""
    layers: list[nn.Module] = []
    for i, (width_in, width_out) in enumerate(itertools.pairwise(sizes)):
        last = i == len(sizes) - 2
        linear = nn.Linear(width_in, width_out)
        nn.init.orthogonal_(linear.weight, last_gain if last else 2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.ReLU()]
    return nn.Sequential(*layers)


@dataclass(slots=True)
class Rollout:
    """One horizon of play, flattened: observations [steps, *shape], everything else [steps]."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor

    def minibatches(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, ...]]:
        columns = (self.observations, self.actions, self.log_probs, self.advantages, self.returns)
        for rows in torch.randperm(len(self.actions), generator=generator).split(size):  # type: ignore[no-untyped-call]
            yield tuple(column[rows] for column in columns)


class Learner:
    """Actor, critic and their optimiser."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        torch.manual_seed(seed)
        self.recipe = recipe
        self.generator = torch.Generator().manual_seed(seed)
        self.envs = Envs(recipe, seed)
        width_in = self.envs.observations.shape[1]
        with gymnasium.make(recipe.environment) as env:
            actions = int(env.action_space.n)  # type: ignore[attr-defined]
        self.actor = network((width_in, *recipe.hidden, actions), 0.01)
        self.critic = network((width_in, *recipe.hidden, 1), 1.0)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimiser = torch.optim.Adam(self.parameters, lr=recipe.learning_rate, eps=1e-5)

    def learn(self, progress: float) -> None:
        """One update: play a horizon, then a few epochs over it. `progress` runs from 0 to 1 and cools the
        learning rate."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.learning_rate * (1.0 - progress)
        rollout = self._play()
        for _ in range(self.recipe.epochs):
            for minibatch in rollout.minibatches(self.recipe.minibatch, self.generator):
                self._improve(*minibatch)

    @torch.no_grad()
    def _play(self) -> Rollout:
        recipe, envs = self.recipe, self.envs
        shape = (recipe.horizon, recipe.envs)
        seen = torch.zeros(*shape, envs.observations.shape[1])
        actions = torch.zeros(shape, dtype=torch.int64)
        log_probs, values, rewards, ends = (torch.zeros(shape) for _ in range(4))
        for t in range(recipe.horizon):
            seen[t] = torch.from_numpy(envs.observations)
            log_p = self.actor(seen[t]).log_softmax(-1)
            actions[t] = torch.multinomial(log_p.exp(), 1, generator=self.generator)[:, 0]
            log_probs[t] = log_p.gather(1, actions[t][:, None])[:, 0]
            values[t] = self.critic(seen[t])[:, 0]
            reward, end, cut = envs.step(actions[t].numpy())
            for i, observation in cut.items():  # a time limit is no failure: what would have followed counts
                reward[i] += recipe.gamma * float(self.critic(torch.from_numpy(observation))[0])
            rewards[t], ends[t] = torch.from_numpy(reward), torch.from_numpy(end)
        advantages = self._advantages(rewards, ends, values)
        columns = (seen, actions, log_probs, advantages, advantages + values)
        return Rollout(*(column.flatten(0, 1) for column in columns))

    def _advantages(self, rewards: Tensor, ends: Tensor, values: Tensor) -> Tensor:
        """GAE; all [horizon, envs]."""
        advantages = torch.zeros_like(rewards)
        after = self.critic(torch.from_numpy(self.envs.observations))[:, 0]
        carried = torch.zeros(rewards.shape[1])
        for t in reversed(range(len(rewards))):
            goes_on = 1.0 - ends[t]
            error = rewards[t] + self.recipe.gamma * after * goes_on - values[t]
            carried = error + self.recipe.gamma * self.recipe.gae_lambda * goes_on * carried
            advantages[t], after = carried, values[t]
        return advantages

    def _improve(
        self, seen: Tensor, actions: Tensor, old_log_probs: Tensor, advantages: Tensor, returns: Tensor
    ) -> None:
        log_p = self.actor(seen).log_softmax(-1)
        ratio = (log_p.gather(1, actions[:, None])[:, 0] - old_log_probs).exp()
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        gain = torch.min(ratio * scaled, ratio.clamp(0.8, 1.2) * scaled).mean()
        entropy = -(log_p.exp() * log_p).sum(-1).mean()
        miss = (self.critic(seen)[:, 0] - returns).pow(2).mean()
        self.optimiser.zero_grad(set_to_none=True)
        (0.5 * miss - gain - self.recipe.entropy * entropy).backward()
        nn.utils.clip_grad_norm_(self.parameters, 0.5)
        self.optimiser.step()

"""The client for people with a blocking loop: `predict` like Stable-Baselines3's, and the two `decide` calls.

An AgentClient on an event loop in a thread of its own; every call hands over to it and waits.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from topics.client.client import AgentClient
from topics.client.errors import CLOSED, ClientClosed
from topics.client.replies import Replies, Reply
from topics.client.stats import ClientStats

T = TypeVar("T")
Shape = tuple[int, ...] | Mapping[str, tuple[int, ...]]

CLOSE_MARGIN_S = 5.0
"""What `close` may take longer than the client's own bound before the thread is left behind."""


class SyncAgentClient:
    """Connects when it is made; close it, or use it as a context manager.

        with SyncAgentClient("cartpole", observation_shape=(4,)) as policy:
            action, _ = policy.predict(observation)

    Takes what `AgentClient` takes. `agent_ids`: the agents that `predict` acts for, in the order of its observations
    (default: names of its own). `observation_shape` (by input name for maps) tells `predict` one observation from
    several; without it, an array with one axis or none is one observation, any other has the agents on its first axis.

    Raises:
        BrokerUnavailable, TopicMissing, SettingsError: as `AgentClient.start`.
    """

    def __init__(
        self,
        fleet: str | None = None,
        *,
        agent_ids: str | Sequence[str] | None = None,
        observation_shape: Shape | None = None,
        **client: Any,
    ) -> None:
        self._client = AgentClient(fleet, **client)
        self._ids = [agent_ids] if isinstance(agent_ids, str) else list(agent_ids or ())
        self._own_name = None if self._ids else f"agent-{os.urandom(4).hex()}"
        self._shape = observation_shape
        self._episodes: dict[str, int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name="agent-client", daemon=True)
        self._thread.start()
        # Also runs when the program ends without `close`, while the thread is still alive.
        self._finish = weakref.finalize(self, _finish, self._client, self._loop, self._thread)
        try:
            self._wait_for(self._client.start())
        except BaseException:
            self.close()
            raise

    @property
    def stats(self) -> ClientStats:
        """Counters since the start."""
        return self._client.stats

    def decide(self, agent_id: str, observation: Any, **asked: Any) -> Reply:
        """`AgentClient.decide`, waited for."""
        return self._wait_for(self._client.decide(agent_id, observation, **asked))

    def decide_many(self, ids: Sequence[str], observations: Any, **asked: Any) -> Replies:
        """`AgentClient.decide_many`, waited for."""
        return self._wait_for(self._client.decide_many(ids, observations, **asked))

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        **asked: Any,
    ) -> tuple[Any, Any]:
        """Action for one observation [*shape], or actions [n, *action] for a vector of them [n, *shape], and `state`.

        A recurrent policy's state lives in the fleet: `state` is handed back untouched. `episode_start` (a bool, or
        bool [n]) starts a new episode of the agent, which resets it there. `deterministic=False` is passed on in the
        state's `options`. `asked`: `lane`, `deadline_ms`, `kind`, `timeout_s` as in `decide`.

        Raises:
            ReplyTimeout, NotSent: an agent got no answer.
            NoAction: an agent got another outcome than an action.
            ValueError: the shape is neither one observation's nor a vector's.
        """
        if not deterministic:
            asked["options"] = {"deterministic": False}
        if self._is_single(observation):
            (agent_id,) = self._ids_for(1)
            episode = self._episodes_of([agent_id], episode_start)
            reply = self.decide(agent_id, observation, episode=episode and episode[0], **asked)
            return reply.action, state
        first = next(iter(observation.values())) if isinstance(observation, Mapping) else observation
        ids = self._ids_for(len(first))
        replies = self.decide_many(ids, observation, episode=self._episodes_of(ids, episode_start), **asked)
        return replies.raise_for_missing().actions, state

    def _is_single(self, observation: Any) -> bool:
        expected, found = self._shape, observation
        if isinstance(observation, Mapping):
            name = next(iter(observation))
            expected = expected[name] if isinstance(expected, Mapping) else None
            found = observation[name]
        shape = np.shape(found)
        if expected is None:
            return len(shape) <= 1
        if shape != expected and shape[1:] != expected:
            raise ValueError(f"observation has shape {list(shape)}, expected {expected} or [n, *{expected}]")
        return bool(shape == expected)

    def _ids_for(self, count: int) -> list[str]:
        if self._own_name is not None:
            self._ids += [f"{self._own_name}-{row}" for row in range(len(self._ids), count)]
        elif count > len(self._ids):
            raise ValueError(f"{count} observations, but agent_ids names only {len(self._ids)} agents")
        return self._ids[:count]

    def _episodes_of(self, ids: Sequence[str], starts: Any) -> list[int] | None:
        if starts is None:
            return None
        for agent_id, start in zip(ids, np.broadcast_to(np.asarray(starts), len(ids)).tolist(), strict=True):
            if start or agent_id not in self._episodes:
                self._episodes[agent_id] = self._episodes.get(agent_id, -1) + 1
        return [self._episodes[agent_id] for agent_id in ids]

    def close(self) -> None:
        """Close the client within its bound and end the thread. Calls of other threads raise `ClientClosed`."""
        self._finish()

    def _wait_for(self, answer: Coroutine[Any, Any, T]) -> T:
        if not self._finish.alive:
            answer.close()
            raise ClientClosed(CLOSED)
        waiting = asyncio.run_coroutine_threadsafe(answer, self._loop)
        try:
            return waiting.result()  # the call has its own time-out
        except BaseException:  # Ctrl-C: nobody will look at the answer
            waiting.cancel()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._client).replace("<AgentClient", "<SyncAgentClient")


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: runs the loop until it is stopped, then ends what is left on it."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _finish(client: AgentClient, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    closing = asyncio.run_coroutine_threadsafe(client.close(), loop)
    closing.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    if thread is not threading.current_thread():  # the garbage collector may run in it
        thread.join(client.close_s + CLOSE_MARGIN_S)

"""Is this worker alive, is it ready: the state behind the probes, and the one port that answers them.

Beside the path: `Health` is plain state that the worker writes in its event loop; `HealthServer` answers
/livez, /readyz and /metrics from a thread of its own, so that a stuck event loop is told apart from a dead
process. It never touches Kafka: `workers.supervise` tells it which layers stand still although they have work.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs

from prometheus_client import make_wsgi_app

from workers.metrics import Metrics
from workers.probe_port import Ask, Page, ProbePort
from workers.summary import summary

Phase = Literal["starting", "warming", "joining", "ready", "draining"]

STUCK_AFTER_S = 10.0
"""Our Kafka session time-out: a loop that stands longer has lost its partitions anyway."""

BEAT_S = 0.25
"""Four wake-ups a second cost an idle worker nothing measurable and show a stall of a quarter second."""


class Verdict(NamedTuple):
    """An answer to a probe, with its reason in one line."""

    ok: bool
    reason: str


class Health:
    """Phase, heartbeat and troubles of a worker. All times are seconds on the monotonic clock, given by the
    caller.

    Written by the event loop, read by the HTTP thread: every write replaces one attribute, so no lock is
    needed.
    """

    def __init__(self, *, stuck_after_s: float = STUCK_AFTER_S) -> None:
        self.phase: Phase = "starting"
        self._detail = ""
        self._stuck_after_s = stuck_after_s
        self._last_beat_s: float | None = None
        self._troubles: Mapping[str, str] = {}
        self.stalls: Mapping[str, str] = {}

    def __repr__(self) -> str:
        trouble = "; ".join(self._troubles.values())
        return f"<Health {self.phase}{f': {trouble}' if trouble else ''}>"

    def enter(self, phase: Phase, detail: str = "") -> None:
        """The worker is in this phase now; `detail` says how far it is ("bucket 16 of 64")."""
        self.phase, self._detail = phase, detail

    def loop_beat(self, now_s: float) -> None:
        """The event loop turned. Silence before the first beat is fine: models load, buckets warm up."""
        self._last_beat_s = now_s

    def trouble(self, part: str, reason: str) -> None:
        """`part` keeps the worker from serving for now: not ready until `recovered(part)`."""
        self._troubles = {**self._troubles, part: reason}

    def stalled(self, stalls: Mapping[str, str]) -> None:
        """Layers that are stuck now: /livez says no while there are any."""
        self.stalls = stalls

    def recovered(self, part: str) -> None:
        """`part` works again; fine when it always did."""
        self._troubles = {name: reason for name, reason in self._troubles.items() if name != part}

    def livez(self, now_s: float) -> Verdict:
        """Does this process still work? If not, only a restart helps."""
        silent_s = self._silent_s(now_s)
        if silent_s is not None and silent_s > self._stuck_after_s:
            return Verdict(False, f"event loop has not turned for {silent_s:.0f} s")
        if self.stalls:
            return Verdict(False, "; ".join(f"{layer} {reason}" for layer, reason in self.stalls.items()))
        return Verdict(True, f"alive ({self.phase})")

    def readyz(self, now_s: float) -> Verdict:
        """Does this worker serve states now?"""
        alive = self.livez(now_s)
        if not alive.ok:
            return alive
        if self.phase != "ready":
            return Verdict(False, f"{self.phase}: {self._detail}" if self._detail else self.phase)
        if self._troubles:
            return Verdict(False, "; ".join(f"{part}: {reason}" for part, reason in self._troubles.items()))
        return Verdict(True, "ready")

    def describe(self, now_s: float) -> dict[str, Any]:
        """Everything as plain values."""
        silent_s = self._silent_s(now_s)
        return {
            "phase": self.phase,
            "detail": self._detail,
            "loop_turned_s_ago": None if silent_s is None else round(silent_s, 3),
            "troubles": dict(self._troubles),
        }

    def _silent_s(self, now_s: float) -> float | None:
        return None if self._last_beat_s is None else now_s - self._last_beat_s


async def keep_beating(health: Health, metrics: Metrics, *, every_s: float = BEAT_S) -> None:
    """Tell `health` and `metrics` that the event loop turns, until cancelled; for the worker's task group."""
    clock = asyncio.get_running_loop().time
    while True:
        due_s = clock() + every_s
        await asyncio.sleep(every_s)
        now_s = clock()
        health.loop_beat(now_s)
        metrics.loop_turned(now_s, now_s - due_s)


class HealthServer:
    """Serves /livez, /readyz and /metrics on one port, from `start()` until `close()`.

    `?verbose` on the probes shows details as JSON. There is no access control: listen on the loopback, or
    inside a network that is trusted.

    Args:
        host: address to listen on.
        port: 0 takes a free one; `.port` says which.
        clock: the monotonic clock of `Health`'s beats.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        health: Health,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self.port = port
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._exposition = make_wsgi_app(metrics.registry)
        self._listening: ProbePort | None = None

    def __repr__(self) -> str:
        return f"<HealthServer {self.url} {self._health!r}>"

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Listen, and answer from daemon threads.

        Raises:
            FleetError: the port is taken or privileged, or the address is not one of this machine.
        """
        pages = {"/livez": self._livez, "/readyz": self._readyz, "/metrics": self._scrape}
        self._listening = ProbePort(self.host, self.port, pages)
        self.port = self._listening.port
        self._metrics.watch("fleet_ready", lambda: self._health.readyz(self._clock()).ok)

    def close(self) -> None:
        """Stop listening; fine when it never started."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def __enter__(self) -> HealthServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _livez(self, ask: Ask) -> Page:
        return self._probe(self._health.livez(self._clock()), ask)

    def _readyz(self, ask: Ask) -> Page:
        return self._probe(self._health.readyz(self._clock()), ask)

    def _probe(self, verdict: Verdict, ask: Ask) -> Page:
        status = 200 if verdict.ok else 503
        if "verbose" not in parse_qs(ask.query, keep_blank_values=True):
            return Page(status, f"{verdict.reason}\n".encode())
        now_s = self._clock()
        detail = {
            "ok": verdict.ok,
            "reason": verdict.reason,
            **self._health.describe(now_s),
            "metrics": summary(self._metrics.snapshot()),
        }
        return Page(status, json.dumps(detail, indent=1).encode() + b"\n", {"Content-Type": "application/json"})

    def _scrape(self, ask: Ask) -> Page:
        # prometheus-client's own application knows the text formats, OpenMetrics, gzip and name[] filters.
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": ask.query,
            "HTTP_ACCEPT": ask.headers.get("Accept", ""),
            "HTTP_ACCEPT_ENCODING": ask.headers.get("Accept-Encoding", ""),
        }
        headers: dict[str, str] = {}
        body = b"".join(self._exposition(environ, lambda _status, found: headers.update(found)))
        return Page(200, body, headers)

"""Probes: what they say with a clock moved by hand, also over HTTP while the event loop is stuck."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from topics.errors import FleetError
from workers.health import Health, HealthServer, Phase, keep_beating
from workers.metrics import Metrics
from workers.probe_port import CLIENTS_AT_ONCE, ProbePort


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Served:
    """A worker's health as others see it."""

    health: Health
    metrics: Metrics
    server: HealthServer
    clock: Clock

    def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture
def served() -> Iterator[Served]:
    """A health server on a free port."""
    health, metrics, clock = Health(), Metrics(max_batch=64), Clock()
    with HealthServer("127.0.0.1", 0, metrics, health, clock=clock) as server:
        yield Served(health, metrics, server, clock)


def test_a_worker_that_loads_its_model_is_alive_and_not_ready() -> None:
    """Loading may take minutes without a beat: killing it would only start it over."""
    health = Health()
    health.enter("warming", "bucket 16 of 64")
    assert health.livez(1e6).ok
    assert health.readyz(1e6) == (False, "warming: bucket 16 of 64")


def test_a_loop_that_stands_is_not_alive() -> None:
    """After the first beat, silence beyond the limit means that only a restart helps."""
    health = Health(stuck_after_s=10.0)
    health.enter("ready")
    health.loop_beat(100.0)
    assert health.livez(109.0).ok
    assert health.livez(112.0) == (False, "event loop has not turned for 12 s")
    assert health.readyz(112.0) == health.livez(112.0)
    health.loop_beat(113.0)
    assert health.readyz(114.0) == (True, "ready")


@pytest.mark.parametrize("phase", ["starting", "warming", "joining", "draining"])
def test_only_the_ready_phase_is_ready(phase: Phase) -> None:
    """A draining worker is alive: it must finish what it holds, and gets no new work."""
    health = Health()
    health.enter(phase)
    health.loop_beat(0.0)
    assert health.livez(1.0).ok
    assert health.readyz(1.0) == (False, phase)


def test_trouble_makes_not_ready_until_it_is_over() -> None:
    """A broker that is away is no reason to restart the worker."""
    health = Health()
    health.enter("ready")
    health.trouble("receive high", "no broker at 127.0.0.1:9092")
    health.trouble("reply", "not acknowledged for 30 s")
    assert health.livez(0.0).ok
    assert health.readyz(0.0).reason == ("receive high: no broker at 127.0.0.1:9092; reply: not acknowledged for 30 s")
    health.recovered("reply")
    health.recovered("receive high")
    health.recovered("never in trouble")
    assert health.readyz(0.0).ok


def test_probes_answer_over_http(served: Served) -> None:
    """200 and 503 with the reason as one line of text."""
    assert served.ask("/livez") == (200, "alive (starting)\n")
    assert served.ask("/readyz") == (503, "starting\n")
    served.health.enter("ready")
    assert served.ask("/readyz") == (200, "ready\n")
    served.health.loop_beat(served.clock.now_s)
    served.clock.now_s += 12
    assert served.ask("/livez") == (503, "event loop has not turned for 12 s\n")


def test_metrics_are_on_the_same_port(served: Served) -> None:
    """One port for all; readiness is a metric too."""
    served.metrics.polled("high", 3, 300, 0.1)
    status, text = served.ask("/metrics")
    assert status == 200
    assert 'fleet_received_records_total{lane="high"} 3.0' in text
    assert "fleet_ready 0.0" in text
    assert "process_cpu_seconds_total" in text
    served.health.enter("ready")
    assert "fleet_ready 1.0" in served.ask("/metrics")[1]


def test_openmetrics_and_filters_are_spoken(served: Served) -> None:
    """What prometheus-client offers is not lost on the way: name[] picks metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=5)
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    answer = connection.getresponse()
    assert (answer.getheader("Content-Type") or "").startswith("application/openmetrics-text")
    assert answer.read().endswith(b"# EOF\n")
    connection.close()


def test_verbose_shows_details_as_json(served: Served) -> None:
    """A person with curl sees phase, troubles and the numbers that matter."""
    served.health.enter("ready")
    served.health.trouble("reply", "not acknowledged for 30 s")
    status, text = served.ask("/readyz?verbose")
    detail = json.loads(text)
    assert status == 503
    assert detail["ok"] is False
    assert detail["phase"] == "ready"
    assert detail["troubles"] == {"reply": "not acknowledged for 30 s"}
    assert set(detail["metrics"]["lanes"]) == {"high", "normal", "low"}
    assert json.loads(served.ask("/livez?verbose")[1])["ok"] is True


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/nothing"])
def test_head_is_get_without_the_body(served: Served, path: str) -> None:
    """Load balancers probe with HEAD."""
    assert served.ask(path, "HEAD") == (served.ask(path)[0], "")


@pytest.mark.parametrize("path", ["/", "/nothing", "/livez/", "/metricsx"])
def test_an_unknown_path_names_the_known_ones(served: Served, path: str) -> None:
    """404 that helps, and does not repeat what was asked for."""
    status, text = served.ask(path)
    assert status == 404
    assert text == "nothing at this path; there are /livez, /readyz, /metrics\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed_through_the_port(served: Served, method: str) -> None:
    """It is for looking."""
    assert served.ask("/livez", method)[0] == 405


def test_nothing_is_printed(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    """No access log, and no traceback when a client goes away in the middle."""
    served.ask("/livez")
    served.ask("/nothing")
    with socket.create_connection(("127.0.0.1", served.server.port)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
    served.ask("/livez")
    out, err = capfd.readouterr()
    assert "GET" not in out + err
    assert "Traceback" not in out + err


def test_a_taken_port_is_one_clear_line(served: Served) -> None:
    """The text names the address, the reason and what to do."""
    second = HealthServer("127.0.0.1", served.server.port, Metrics(max_batch=64), Health())
    with pytest.raises(FleetError) as caught:
        second.start()
    assert f"127.0.0.1:{served.server.port}: address already in use" in str(caught.value)
    assert "http.port" in str(caught.value)
    assert "\n" not in str(caught.value)
    second.close()


def test_an_address_of_another_machine_is_one_clear_line() -> None:
    """192.0.2.1 is reserved for documents: no machine has it."""
    with pytest.raises(FleetError, match=r"192\.0\.2\.1:0"):
        HealthServer("192.0.2.1", 0, Metrics(max_batch=64), Health()).start()


def test_the_port_is_free_again_after_close(served: Served) -> None:
    """A worker that restarts at once gets the same port."""
    port = served.server.port
    served.server.close()
    with HealthServer("127.0.0.1", port, Metrics(max_batch=64), Health()) as again:
        assert again.url == f"http://127.0.0.1:{port}"


def test_a_page_that_raises_is_a_500_and_the_port_lives_on() -> None:
    """A bug in one page must not take the probes with it."""
    port = ProbePort("127.0.0.1", 0, {"/broken": lambda ask: 1 / 0})  # type: ignore[dict-item,return-value]
    try:
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", port.port, timeout=5)
            connection.request("GET", "/broken")
            assert connection.getresponse().status == 500
            connection.close()
    finally:
        port.close()


def test_clients_that_say_nothing_are_bounded(served: Served) -> None:
    """A crowd of silent connections costs a fixed number of threads, and none of them blocks the exit."""
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", served.server.port)) for _ in range(2 * CLIENTS_AT_ONCE)]
    closed = 0
    for client in silent[CLIENTS_AT_ONCE:]:
        client.settimeout(5)
        closed += client.recv(1) == b""
    assert closed == CLIENTS_AT_ONCE
    assert threading.active_count() - before <= CLIENTS_AT_ONCE
    for client in silent:
        client.close()


async def test_a_stuck_event_loop_still_gets_its_answer() -> None:
    """The whole reason for a thread of its own: the loop blocks, the probe says so."""
    health, metrics, clock = Health(stuck_after_s=10.0), Metrics(max_batch=64), Clock()
    with HealthServer("127.0.0.1", 0, metrics, health, clock=clock) as server:
        health.loop_beat(clock.now_s)
        clock.now_s += 12
        # A blocking call in the loop's own thread: while it waits, the loop cannot turn.
        found = Served(health, metrics, server, clock).ask("/livez")
    assert found == (503, "event loop has not turned for 12 s\n")


async def test_the_beat_reaches_health_and_metrics() -> None:
    """One task tells both, until it is cancelled."""
    beaten = asyncio.Event()

    class Watched(Metrics):
        def loop_turned(self, now_s: float, lag_s: float) -> None:
            super().loop_turned(now_s, lag_s)
            beaten.set()

    health, metrics = Health(), Watched(max_batch=64)
    beating = asyncio.create_task(keep_beating(health, metrics, every_s=0.001))
    async with asyncio.timeout(5):
        await beaten.wait()
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    assert metrics.registry.get_sample_value("fleet_event_loop_lag_seconds_count")
    assert health.describe(asyncio.get_running_loop().time())["loop_turned_s_ago"] < 5

"""What `fleet top` shows: from pages of real `Metrics`, on screens of several sizes, and under a real terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import generate_latest
from rich.console import Console
from typer.testing import CliRunner

from tests.stories.fleet import Fleet, states
from tests.stories.models import write_package
from tools.cli import application
from tools.top.figures import Figures, LaneRow, WorkerRow, figures
from tools.top.keys import named
from tools.top.pages import Page, addresses, parse
from tools.top.screen import SORTS, View, picture
from topics.errors import SettingsError
from topics.provision import ensure_topics
from topics.settings import FleetSettings, KafkaSettings
from workers.metrics import Metrics

RECORDING = Path("tests/recordings/cartpole.mcap").resolve()


class Worker:
    """A worker's metrics, told by hand."""

    def __init__(self) -> None:
        self.metrics = Metrics(max_batch=64)
        self.metrics.add_predictor("cpu")
        self.metrics.describe_worker(fleet="arena", worker="w1", model="walker", model_version="3", golden=True)
        self.metrics.watch("fleet_ready", lambda: 1)
        self.metrics.watch("fleet_lag_records", lambda: 7, lane="high")

    def answer(self, number: int, seconds: float) -> None:
        self.metrics.replied("high", "action", [seconds] * number)
        self.metrics.batch_finished("cpu", number, number, 0.004)

    def page(self, at_s: float) -> Page:
        return Page("w1:9464", at_s, parse(generate_latest(self.metrics.registry).decode()))


def test_a_page_is_read_back_as_the_workers_own_snapshot() -> None:
    """Counters, gauges, and histograms with their quantiles."""
    worker = Worker()
    worker.answer(32, 0.007)
    ours, theirs = worker.metrics.snapshot(), worker.page(0).snapshot
    assert theirs is not None
    assert theirs.counters["fleet_replies_total"] == ours.counters["fleet_replies_total"]
    assert theirs.gauge("fleet_lag_records", "high") == 7
    for q in (0.1, 0.5, 0.99):
        ours_s = ours.distribution("fleet_end_to_end_seconds", "high").quantile(q)
        assert theirs.distribution("fleet_end_to_end_seconds", "high").quantile(q) == pytest.approx(ours_s)


def test_rates_and_quantiles_are_those_between_two_looks() -> None:
    """What was before the first look does not count."""
    worker = Worker()
    worker.answer(500, 1.5)
    first = worker.page(10.0)
    worker.answer(64, 0.009)
    found = figures({first.address: first}, [worker.page(12.0)])
    (high, *_), (row,) = found.lanes, found.workers
    assert (high.answers_per_s, high.lag) == (32.0, 7)
    assert high.p99_ms == pytest.approx(10, abs=0.5)
    assert (row.name, row.state, row.model, row.answers_per_s, row.batch) == ("w1", "ready", "walker v3", 32.0, 64.0)


def test_a_worker_that_started_anew_counts_from_zero() -> None:
    """No negative rate, no gap."""
    old, new = Worker(), Worker()
    old.answer(1000, 0.01)
    new.answer(10, 0.01)
    before = old.page(0.0)
    (high, *_) = figures({before.address: before}, [new.page(2.0)]).lanes
    assert high.answers_per_s == 5.0


def test_a_first_look_has_no_rates() -> None:
    """Not those since the worker's start."""
    worker = Worker()
    worker.answer(1000, 0.01)
    (high, *_) = figures({}, [worker.page(5.0)]).lanes
    assert (high.answers_per_s, high.p99_ms, high.lag) == (0, None, 7)


def test_a_worker_that_does_not_answer_is_shown_with_its_reason() -> None:
    """Beside those that do."""
    found = figures({}, [Page("w2:9464", 0.0, None, "Connection refused"), Worker().page(0.0)])
    assert [(row.name, row.state) for row in found.workers] == [("w2:9464", "Connection refused"), ("w1", "ready")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9464", "127.0.0.1:9464"),
        ("worker.invalid:1", "worker.invalid:1"),
        ("http://10.0.0.1:80/metrics", "10.0.0.1:80"),
    ],
)
def test_workers_are_named_in_several_ways(text: str, expected: str) -> None:
    """Ports, host:port, URLs."""
    assert addresses([text]) == [expected]


@pytest.mark.parametrize("text", ["", "worker", "worker:port", "http://"])
def test_what_is_no_address_is_one_line(text: str) -> None:
    """With what was expected."""
    with pytest.raises(SettingsError, match="expected a port, host:port or a URL"):
        addresses([text])


def many(count: int) -> Figures:
    """A fleet of so many workers."""
    rows = [
        WorkerRow(f"w{at}:1", f"worker-{at:03}", "ready", "walker v3", answers_per_s=at, lag=count - at)
        for at in range(count)
    ]
    return Figures(2.0, [LaneRow(lane, 1234.5, p99_ms=25.0) for lane in ("high", "normal", "low")], rows)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_the_picture_fits_the_screen(width: int, height: int, count: int) -> None:
    """Lanes, the chosen worker, and never more lines than there are."""
    view = View(chosen=max(0, count - 1), details=True)
    console = Console(width=width, height=height, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(picture("fleet arena", many(count), view, height))
    lines = console.export_text().rstrip().splitlines()
    assert len(lines) <= height and all(len(line) <= width for line in lines)
    assert lines[0].startswith("fleet arena") and any(line.startswith("high") for line in lines)
    if count:
        assert any("▸" in line and f"worker-{count - 1:03}" in line for line in lines)


def test_keys_do_what_the_help_says() -> None:
    """And `q` leaves."""
    view = View()
    for key in ("s", "l", "down", "down", "up", "enter", "p", "?", "x"):
        assert view.press(key, 2)
    assert view == View(sort="answers", lane="high", chosen=0, details=True, paused=True, help=True)
    assert [view.press("down", 2) for _ in range(5)] and view.chosen == 1
    assert not view.press("q", 2)
    for _ in SORTS:
        view.press("s", 2)
    assert view.sort == "answers"


def test_keys_are_read_as_terminals_send_them() -> None:
    """Arrows in both modes, several at once, nothing of what is unknown."""
    assert named("q\x1b[A\x1bOB\r\tx\x1b[Z\x00") == ["q", "up", "down", "enter", "tab", "x"]


def test_a_recording_has_its_lanes() -> None:
    """Its rates and latencies over its whole time, as a table and as JSON."""
    ran = CliRunner().invoke(application(["top"]), ["top", "--recording", str(RECORDING), "--json"])
    assert ran.exit_code == 0
    lanes = {row["lane"]: row for row in json.loads(ran.stdout)["lanes"]}
    assert lanes and all(row["answers_per_s"] > 0 and row["p99_ms"] > 0 for row in lanes.values())


def test_nobody_there_is_one_line() -> None:
    """Not an empty table alone."""
    ran = CliRunner().invoke(application(["top"]), ["top", "--once", "--no-kafka", "--metrics", "1"])
    assert ran.exit_code and "no worker answers at 1" in str(ran.exception)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a pseudo terminal."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def read(terminal: int, until: str, within_s: float = 30.0) -> str:
    """What the program wrote to its terminal, until this is in it."""
    text, end_s = "", time.monotonic() + within_s
    while until not in text and time.monotonic() < end_s:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                text += os.read(terminal, 65536).decode(errors="ignore")
            except OSError:
                break
    assert until in text, text[-2000:]
    return text


@pytest.mark.broker
@pytest.mark.parametrize("leaving", ["q", "SIGTERM"])
async def test_a_real_worker_under_a_real_terminal(
    kafka: KafkaSettings, fleet_name: str, tmp_path: Path, terminal: tuple[int, int], leaving: str
) -> None:
    """It shows the worker, takes keys, and leaves the terminal as it was."""
    fleet = Fleet(FleetSettings(name=fleet_name, kafka=kafka), tmp_path)
    await ensure_topics(fleet.settings)
    worker = await fleet.worker(write_package(tmp_path / "probe"), FLEET_WORKER="w1").ready()
    ours, theirs = terminal
    termios.tcsetwinsize(theirs, (30, 110))
    before = termios.tcgetattr(theirs)
    port = worker.events("starting")[0]["probes"].rsplit(":", 1)[1]
    command = [
        sys.executable,
        "-c",
        "from tools.cli import main; main()",
        "top",
        "--metrics",
        port,
        "--interval",
        "0.3",
    ]
    command += ["--fleet", fleet_name, "--bootstrap-servers", kafka.bootstrap_servers]
    environment = {**os.environ, "TERM": "xterm-256color"}
    top = subprocess.Popen(  # noqa: ASYNC220  # returns at once
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    try:
        read(ours, "w1")
        await fleet.answers(await fleet.ask(states(20, 2)))
        os.write(ours, b"\r?")
        text = read(ours, "choose a worker")
        assert "predictor" in text + read(ours, "cpu")
        if leaving == "q":
            os.write(ours, b"q")
        else:
            top.send_signal(signal.SIGTERM)
        read(ours, "\x1b[?1049l")
        assert top.wait(10) == (0 if leaving == "q" else 143)
        assert termios.tcgetattr(theirs) == before
    finally:
        if top.poll() is None:
            top.kill()
        os.close(theirs)
        fleet.close()


def test_numbers_stay_plain() -> None:
    """Quantiles of numpy become JSON."""
    worker = Worker()
    first = worker.page(0.0)
    worker.metrics.replied("low", "expired", np.array([0.1, 0.2]))
    found = figures({first.address: first}, [worker.page(1.0)])
    assert json.loads(json.dumps(found.as_dict()))["lanes"][2]["other_outcomes"] == {"expired": 2.0}

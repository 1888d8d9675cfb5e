"""`fleet top`: a live view of lanes and workers; `--once` prints it, for scripts as JSON.

Asks the workers' /metrics (`tools.top.pages`) and now and then Kafka; joins no group and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live

from tools.options import Config, Fleet, Servers
from tools.top.figures import Figures, LaneRow, figures
from tools.top.keys import keyboard, pressed
from tools.top.pages import Page, addresses, fetch_all
from tools.top.screen import View, picture
from topics.errors import FleetError
from topics.settings import FleetSettings, load_settings
from workers.settings import Settings

KAFKA_EVERY_S: Final = 15.0
KAFKA_WITHIN_S: Final = 20.0
FIRST_LOOK_S: Final = 1.0
"""Between the two looks of `--once`: rates need two."""


def command(
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            help="Workers: ports, host:port or URLs; a name may stand for many (default: this machine's port 9464).",
        ),
    ] = None,
    recording: Annotated[Path | None, typer.Option("--recording", help="Show what a recording says instead.")] = None,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    kafka: Annotated[
        bool, typer.Option("--kafka/--no-kafka", help="Ask Kafka too: members without metrics, lag.")
    ] = True,
    config: Config = None,
    fleet: Fleet = None,
    servers: Servers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Like --once, as JSON for programs.")] = False,
) -> None:
    """Show what a fleet does now: lanes, workers, latencies, batches, lag, versions.

    Example: fleet top --fleet demo --metrics 9464,9465
    """  # fmt: skip
    flags = {"name": fleet, "kafka": {"bootstrap_servers": servers}}
    settings = load_settings(Settings, config=config, overrides=flags)
    if recording is not None:
        _show_recording(recording, as_json=as_json)
        return
    workers = metrics or [str(settings.http.port)]
    looking = Looking(settings, workers, ask_kafka=kafka)
    if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        looking.look()
        time.sleep(FIRST_LOOK_S)
        _print(looking.title, looking.look(wait_for_kafka=True), as_json=as_json)
        if not any(row.model for row in looking.found.workers):
            raise FleetError(f"no worker answers at {', '.join(workers)}: name their metrics ports with --metrics")
        return
    _live(looking, interval_s)


@dataclass(slots=True)
class Looking:
    """Looks again and again, and remembers the last look."""

    settings: Settings
    workers: Sequence[str]
    ask_kafka: bool
    found: Figures = field(default_factory=lambda: Figures(1.0, [], []))
    _pages: dict[str, Page] = field(default_factory=dict)
    _cluster: list[str] = field(default_factory=list)
    _asked_s: float = float("-inf")

    @property
    def title(self) -> str:
        return f"fleet {self.settings.name}"

    def look(self, *, wait_for_kafka: bool = False) -> Figures:
        """One round. Takes about 2 s at most, or until Kafka has answered."""
        pages = asyncio.run(fetch_all(addresses(self.workers)))  # a name may stand for others by now
        self.found = figures(self._pages, pages)
        self._pages = {page.address: page for page in pages}
        if self.ask_kafka and (wait_for_kafka or time.monotonic() - self._asked_s > KAFKA_EVERY_S):
            self._asked_s = time.monotonic()
            asking = threading.Thread(target=self._ask, daemon=True)  # a cluster that hangs must not freeze the view
            asking.start()
            if wait_for_kafka:
                asking.join()
        self.found.cluster = self._cluster
        return self.found

    def _ask(self) -> None:
        self._cluster = cluster_lines(self.settings, [row.name for row in self.found.workers])


def cluster_lines(settings: FleetSettings, known: Sequence[str]) -> list[str]:
    """What Kafka knows that no metrics say. Says so where it cannot be asked."""
    from tools.doctor.cluster import read
    from topics.kafka import quiet_library_logs

    quiet_library_logs()
    try:
        seen = asyncio.run(asyncio.wait_for(read(settings), KAFKA_WITHIN_S))
    except (FleetError, TimeoutError) as error:
        return [f"Kafka: {str(error) or 'did not answer in time'}"]
    lines = []
    for group in seen.groups:
        strangers = [name for name in group.members if not any(name.startswith(one) for one in known)]
        if group.error:
            lines.append(f"group {group.name}: {group.error}")
        elif not group.members:
            lines.append(f"group {group.name}: no worker, lag {group.lag:,}")
        elif strangers:
            lines.append(
                f"group {group.name}: {len(strangers)} workers without metrics here: {', '.join(strangers[:3])}"
            )
    return lines


def _live(looking: Looking, interval_s: float) -> None:
    """Until `q`, Ctrl-C or SIGTERM."""
    view, console = View(), Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the terminal is put back on the way out
    with keyboard() as has_keys, Live(console=console, screen=True, auto_refresh=False) as live:

        def draw() -> None:
            live.update(picture(looking.title, looking.found, view, console.height), refresh=True)

        while True:
            if not view.paused:
                looking.look()
            draw()
            if not _handle_keys(view, looking, interval_s, draw, has_keys=has_keys):
                return


def _handle_keys(view: View, looking: Looking, seconds: float, draw: Callable[[], None], *, has_keys: bool) -> bool:
    """Take keys for so long; False: they want to leave."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if not has_keys:
            time.sleep(left_s)
            continue
        for key in pressed(left_s):
            if not view.press(key, len(looking.found.workers)):
                return False
            draw()
    return True


def _print(title: str, found: Figures, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(found.as_dict(), indent=2) + "\n")
    else:
        console = Console()
        console.print(picture(title, found, View(), height=12 + len(found.workers) + len(found.cluster)))


def _show_recording(path: Path, *, as_json: bool) -> None:
    """The lanes of a recording, over its whole time."""
    from tools.recording.read import Recording
    from tools.recording.selection import Selection
    from tools.report.gather import gather

    recording = Recording.open(path)
    found = gather(recording, Selection())
    times = [moment for lane in found.lanes.values() for moment in lane.at_ms]
    seconds = max((max(times) - min(times)) / 1000, 1e-3) if times else 1.0
    rows = [_recorded(lane, found, seconds) for lane in found.lanes]
    shown = Figures(seconds, rows, [], [f"{found.unanswered:,} states without an answer"] if found.unanswered else [])
    _print(f"{path}, {seconds:,.0f} s, {', '.join(sorted(found.models))}", shown, as_json=as_json)


def _recorded(lane: str, found: Any, seconds: float) -> LaneRow:
    import numpy as np

    away = found.lanes[lane].away
    waits = np.asarray(found.lanes[lane].wait_us, np.float64)
    outcomes = {outcome: number for (name, outcome), number in found.outcomes.items() if name == lane}
    return LaneRow(
        lane,
        sum(outcomes.values()) / seconds,
        {outcome: number / seconds for outcome, number in outcomes.items() if outcome != "action"},
        float(np.percentile(away, 50)) if len(away) else None,
        float(np.percentile(away, 99)) if len(away) else None,
        float(np.percentile(waits, 99)) / 1e3 if len(waits) else None,
    )

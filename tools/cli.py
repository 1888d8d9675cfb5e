"""The `fleet` command: finds the sub-command's module, and turns what goes wrong into one line and an exit code.

Only the module of the sub-command that is asked for is imported: `fleet --help` needs no torch and no Kafka client.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, NoReturn

import typer

from topics.errors import FleetError

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
INTERNAL_ERROR = 70
"""sysexits' EX_SOFTWARE."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a sub-command lives: a Typer app with commands of its own, or one function."""

    module: str
    name: str
    help: str


COMMANDS = {
    "demo": Entry("tools.demo.cli", "command", "Agents play through Kafka: a live view, then a result table."),
    "broker": Entry("tools.broker.cli", "app", "Run a real Apache Kafka here: no Docker, no Java to install."),
    "topics": Entry("tools.topics", "app", "Create and check the fleet's topics. Nothing is ever deleted."),
    "worker": Entry("tools.worker", "command", "Serve decisions until SIGTERM, then drain and exit 0."),
    "shadow": Entry("tools.shadow", "command", "Let a candidate decide beside the live fleet; no agent notices."),
    "ask": Entry("tools.ask", "command", "Ask the fleet for one decision on each lane: does it answer?"),
    "model": Entry("tools.model", "app", "Look at, check and complete model packages."),
    "dead": Entry("tools.dead.cli", "app", "Look at dead letters, and send them again."),
    "record": Entry("tools.record.cli", "command", "Record the traffic of a fleet into files."),
    "recording": Entry("tools.recording.cli", "app", "Look at recordings of traffic, cut, merge and convert them."),
    "report": Entry("tools.report.cli", "command", "A recording as one HTML page that opens offline."),
    "diff": Entry("tools.diff.cli", "command", "Compare the answers of two recordings, state by state."),
    "replay": Entry("tools.replay.cli", "command", "Send recorded states again, in time, and record the answers."),
    "top": Entry("tools.top.cli", "command", "Watch a fleet: lanes, workers, latencies, lag; or look at a recording."),
    "doctor": Entry("tools.doctor.cli", "command", "Look over cluster, groups, model and machine; say what to do."),
    "settings": Entry("tools.settings", "command", "Show every setting, its value and where it came from."),
    "tune": Entry("tools.tune.cli", "command", "Find the settings that meet a target, and check them."),
    "bench": Entry("tools.bench.cli", "app", "Measure a worker beside a bare loop in the same run."),
}


def main() -> NoReturn:
    """The console script. Exits 0, with the code of a FleetError, 2 for a wrong call, 130 for Ctrl-C."""
    if os.getpid() == 1:
        heed_sigterm()
    try:
        application(sys.argv[1:])(prog_name="fleet")
        leave(0)
    except BaseException as err:
        leave(exit_code(err))


def heed_sigterm() -> None:
    """Process 1 of a container gets no signal that it has no handler for: SIGTERM while a command still loads would be
    lost, and the container killed when its grace is over. Commands that drain replace this handler by their own."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def leave(code: int) -> NoReturn:
    """End the process with this code, also while a model runs on in its predictor's thread: Python before 3.14 would
    end that thread inside torch's C++, which aborts the process with 134."""
    if any(thread.name.startswith("predictor-") for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def application(arguments: Sequence[str]) -> typer.Typer:
    """The whole command line, with the one sub-command loaded that `arguments` name."""
    app = typer.Typer(
        name="fleet",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for name, entry in COMMANDS.items():
        _add(app, name, entry, load=name == wanted)
    return app


def exit_code(err: BaseException) -> int:
    """Tell what went wrong in one line on stderr; the exit code for it."""
    cause = _first_cause(err)
    match cause:
        case SystemExit():
            return cause.code if isinstance(cause.code, int) else 1 if cause.code else 0
        case FleetError():
            _complain(str(cause))
            return cause.exit_code
        case KeyboardInterrupt():
            return INTERRUPTED
    at = traceback.extract_tb(cause.__traceback__)[-1]
    with tempfile.NamedTemporaryFile("w", prefix="fleet-error-", suffix=".log", delete=False) as report:
        report.writelines(traceback.format_exception(err))
    _complain(
        f"this is a fault of ours: {type(cause).__name__}: {str(cause)[:200]} "
        f"({at.name}, line {at.lineno}; please report it with {report.name})"
    )
    return INTERNAL_ERROR


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=lambda on: _version(on), is_eager=True),
    ] = False,
) -> None:
    """Decisions for hundreds of agents through Kafka: states in, micro-batched forward passes, actions out.

    Example: fleet demo --seconds 10 --agents 64
    """


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fleet {version('decision-fleet')}")
        raise typer.Exit


def _add(app: typer.Typer, name: str, entry: Entry, *, load: bool) -> None:
    found: Any = _load(name, entry) if load else None
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found or _placeholder(entry))


def _load(name: str, entry: Entry) -> Any:
    try:
        return getattr(importlib.import_module(entry.module), entry.name)
    except ModuleNotFoundError as err:
        if (err.name or "").split(".")[0] in ("topics", "workers", "tools"):
            raise
        extra = "demo" if (err.name or "").startswith(("gymnasium", "Box2D", "pygame")) else "dev"
        raise FleetError(
            f"fleet {name} needs {err.name}, which is not installed: pip install 'decision-fleet[{extra}]'"
        ) from err


def _placeholder(entry: Entry) -> Callable[[], None]:
    def command() -> None:
        raise AssertionError("only listed in the help")

    command.__doc__ = entry.help
    return command


def _first_cause(err: BaseException) -> BaseException:
    """The error inside a task group's group of errors: a FleetError if there is one, else the first."""
    if not isinstance(err, BaseExceptionGroup):
        return err
    causes = [_first_cause(one) for one in err.exceptions]
    return next((cause for cause in causes if isinstance(cause, FleetError)), causes[0])


def _complain(line: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("error:", style="bold red", end=" ")
    console.print(line, markup=False)

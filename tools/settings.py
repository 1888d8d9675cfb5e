"""`fleet settings`: every setting, its value and where it came from. Secrets are masked."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tools.options import Config
from topics.settings import Shown, describe, load_settings

Changed = Annotated[bool, typer.Option("--changed", help="Only what differs from the defaults.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def command(config: Config = None, changed: Changed = False, as_json: AsJson = False) -> None:
    """Show every setting, its value and its source (flag, variable, file or default)."""
    from workers.settings import Settings  # the worker's tree holds everything that agents read, too

    shown = [one for one in describe(load_settings(Settings, config=config)) if not changed or one.source != "default"]
    if as_json:
        listed = {one.key: {"value": one.value, "source": one.source} for one in shown}
        sys.stdout.write(json.dumps(listed, indent=2) + "\n")
    elif shown:
        Console().print(_table(shown))
    else:
        Console().print("every setting has its default")


def _table(shown: list[Shown]) -> Table:
    table = Table()
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for one in shown:
        table.add_row(one.key, _text(one.value), one.source, style="dim" if one.source == "default" else "")
    return table


def _text(value: Any) -> str:
    """As in fleet.toml; "–" is not set."""
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)

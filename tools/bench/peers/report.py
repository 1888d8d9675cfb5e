"""The comparison for people: one table, what failed, the goals. The numbers are those of the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tools.bench.report import goal_line, new_table, number

TITLES: Final = {
    "drain": "drain: the same backlog through one process of each",
    "closed": "closed: agents that wait for their answers, one request each",
}

COLUMNS: Final = {
    "decisions_per_s": "decisions/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_us_per_decision": "CPU µs",
}


def show_peers(console: Console, found: Mapping[str, Any]) -> None:
    """Print what `fleet bench peers` found."""
    for benchmark, title in TITLES.items():
        systems: Mapping[str, Any] = found.get(benchmark, {})
        if any("ratio" in one for one in systems.values()):
            console.print(f"\n[bold]{title}[/bold]")
            console.print(_table(benchmark, systems))
        for name, one in systems.items():
            if "failed" in one:
                console.print(Text(f"{name} {one['version']}: {one['failed']}", "yellow"))
    for goal in found["goals"]:
        console.print(goal_line(goal))


def _table(benchmark: str, systems: Mapping[str, Any]) -> Table:
    """Two rows for each system: its own, and the worker's beside it."""
    keys = ("decisions_per_s", *(("p50_ms", "p99_ms") if benchmark == "closed" else ()), "cpu_us_per_decision")
    table = new_table("", *(COLUMNS[key] for key in keys), "worker ÷ it (lowest–highest)")
    for name, one in systems.items():
        if "ratio" in one:
            spread = f"{one['ratio']:.1f} ({one['ratio_min']:.1f}–{one['ratio_max']:.1f})"
            table.add_row(f"{name} {one['version']}", *(number(one[key]) for key in keys), spread)
            table.add_row("  worker beside it", *(number(one[f"fleet_{key}"]) for key in keys), "", style="dim")
    return table

"""What a check finds, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["ok", "note", "warning", "problem", "unknown"]
"""`note`: worth knowing; `warning`: works now, may not later; `problem`: does not work; `unknown`: could not look."""

WORST_FIRST: Final[tuple[Level, ...]] = ("problem", "unknown", "warning", "note", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was found, and what to do about it ("" where nothing)."""

    level: Level
    check: str
    found: str
    do: str = ""


def exit_code(findings: list[Finding]) -> int:
    """1: there is a problem; 2: no problem, but something could not be looked at; else 0."""
    levels = {finding.level for finding in findings}
    return 1 if "problem" in levels else 2 if "unknown" in levels else 0

"""What a chaos run found: figures to publish and checks that must hold."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """Lines in the order in which they were found; `failures` are the checks that do not hold."""

    seed: int
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def title(self, text: str) -> None:
        self._say(f"== {text}")

    def figure(self, name: str, value: object) -> None:
        """Measured, and not judged."""
        self._say(f"   {name}: {value}")

    def check(self, what: str, holds: bool, found: object = "") -> None:
        """`what` must be true; `found` is the figure behind it."""
        if not holds:
            self.failures.append(f"{what}: {found}")
        self._say(f"   {'ok  ' if holds else 'FAIL'} {what}{f' ({found})' if found != '' else ''}")

    def _say(self, line: str) -> None:
        line = f"{time.monotonic() - self.began_s:7.1f} s {line}"
        self.lines.append(line)
        print(line, flush=True)

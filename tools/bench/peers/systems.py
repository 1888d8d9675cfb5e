"""Who the fleet is compared with, and what is installed for it: exact versions, every package named. Pure."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from topics.errors import SettingsError

PINS: Final = Path(__file__).parent / "pins"


@dataclass(frozen=True, slots=True)
class System:
    """One of them; `benchmark` is what it runs, `at_least` the goal for ours ÷ theirs, if there is one."""

    name: str
    package: str
    benchmark: Literal["drain", "closed"]
    at_least: float | None = None
    binary: bool = False
    """Behind HTTP: MessagePack rather than JSON, where its documents advise it."""
    rows: bool = False
    """Behind HTTP: a request holds a batch, here of one observation."""

    @property
    def module(self) -> str:
        """What its environment's Python runs."""
        return f"tools.bench.peers.{self.name}"

    @property
    def pins_file(self) -> Path:
        """Its packages, one `name==version` a line."""
        return PINS / f"{self.name}.txt"

    def pins(self) -> dict[str, str]:
        """Every package of its environment, with its version."""
        lines = self.pins_file.read_text().split()
        return {name: version for name, _, version in (line.partition("==") for line in lines)}

    @property
    def version(self) -> str:
        """Of the package that it is known by."""
        return self.pins()[self.package]

    @property
    def folder(self) -> str:
        """Its environment's name: another one for other packages or another Python."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        content = hashlib.sha256(self.pins_file.read_bytes()).hexdigest()[:8]
        return f"{self.name}-{self.version}-py{python}-{content}"


SYSTEMS: Final = (
    System("faststream", "faststream", "drain", 3),
    System("quix", "quixstreams", "drain", 10),
    System("faust", "faust-streaming", "drain", 10),
    System("ray", "ray", "closed"),
    System("bentoml", "bentoml", "closed", rows=True),
    System("litserve", "litserve", "closed"),
    System("mosec", "mosec", "closed", binary=True),
)


def chosen(text: str | None) -> list[System]:
    """The systems that `--only` names, all without it.

    Raises:
        SettingsError: there is no such system.
    """
    names = [name.strip() for name in text.split(",")] if text else [system.name for system in SYSTEMS]
    known = {system.name: system for system in SYSTEMS}
    for name in names:
        if name not in known:
            raise SettingsError(f"--only has {name!r}, expected one of {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]

"""Pins what the image installs, by version and hash, without addresses: `python -m tools.lock docker`.

Three files: what builds our wheel, torch with what it needs, and everything else with tracing. torch has a file of its
own, as whoever builds the image may take another build of it. Needs pip 23.3 or newer, of CPython 3.11 on x86-64 Linux.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

HEAD: Final = """\
# Wheels for CPython 3.11 on x86-64 Linux, by their hashes. `python -m tools.lock docker` writes it anew.
"""
PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def wanted(project: Path = PROJECT) -> Mapping[str, Sequence[str]]:
    """The requirements of each file, as the project has them."""
    told = tomllib.loads(project.read_text())
    needs = told["project"]["dependencies"] + told["project"]["optional-dependencies"]["otel"]
    return {
        "build.txt": told["build-system"]["requires"],
        "torch.txt": [one for one in needs if one.startswith("torch")],
        "requirements.txt": [one for one in needs if not one.startswith("torch")],
    }


def resolved(requirements: Sequence[str]) -> Mapping[str, Any]:
    """pip's report of what it would install into an empty environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    told = subprocess.run([*command, *requirements], check=True, stdout=subprocess.PIPE).stdout
    report: Mapping[str, Any] = json.loads(told)
    return report


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """One line for each wheel."""
    found = sorted((one["metadata"]["name"].lower().replace("_", "-"), one) for one in report["install"])
    for name, one in found:
        sha256 = one["download_info"]["archive_info"]["hashes"]["sha256"]
        yield f"{name}=={one['metadata']['version']} --hash=sha256:{sha256}"


if __name__ == "__main__":
    for file, requirements in wanted().items():
        pins = "".join(f"{line}\n" for line in lines(resolved(requirements)))
        (Path(sys.argv[1]) / file).write_text(HEAD + pins)

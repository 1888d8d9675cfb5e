"""Pins what the image installs, by version and hash, without addresses: `python -m tools.lock docker/requirements.txt`.

torch is left out: whoever builds the image chooses its build, for CPUs or for a CUDA version. Needs pip.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

HEAD: Final = """\
# What the image installs besides torch: wheels for CPython 3.11 on x86-64 Linux, by their hashes.
# `python -m tools.lock docker/requirements.txt` writes it anew.
"""
PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def wanted(project: Path = PROJECT) -> list[str]:
    """The project's own requirements, without torch."""
    listed: list[str] = tomllib.loads(project.read_text())["project"]["dependencies"]
    return [one for one in listed if not one.startswith("torch")]


def resolved(requirements: list[str]) -> Mapping[str, Any]:
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
    Path(sys.argv[1]).write_text(HEAD + "".join(f"{line}\n" for line in lines(resolved(wanted()))))

"""Finds the shipped model package that plays an environment. Reads manifests only, no torch, no Gymnasium."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from topics.errors import FleetError
from workers.models.package import read_manifest

SHIPPED: Final = Path(__file__).parent / "models"


def shipped_packages() -> dict[str, Path]:
    """Package directory by Gymnasium environment id."""
    found = {}
    for manifest in sorted(SHIPPED.glob("*/manifest.json")):
        environment = read_manifest(manifest.parent).environment
        if environment:
            found[environment] = manifest.parent
    return found


def find_package(environment: str) -> Path:
    """The shipped package for a Gymnasium id such as "CartPole-v1"; `FleetError` if there is none."""
    packages = shipped_packages()
    if environment not in packages:
        raise FleetError(
            f'no shipped model plays "{environment}", expected one of {", ".join(packages)}; '
            "train one and name its package with --model"
        )
    return packages[environment]

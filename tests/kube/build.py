"""The programs of the control plane, built from Go modules once and kept in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SOURCES = Path(__file__).parent / "go"
KUBERNETES: Final = "v1.36.3"
KEDA: Final = "github.com/kedacore/keda/v2"


class BuildError(Exception):
    """Go is missing or does not build."""


def cache() -> Path:
    """Where the programs stay between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "decision-fleet" / "kube"


def programs(say: Callable[[str], None], *, keda: bool) -> Path:
    """The folder with `kube` and, with `keda`, `keda-operator`, `keda-adapter` and the folder `keda-crds`.

    The first time takes about ten minutes of a core for each of the two large ones.

    Raises:
        BuildError: there is no Go, or it does not build; the log's path is in the text.
    """
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    version = "k8s.io/component-base/version", "k8s.io/client-go/pkg/version"
    major, minor = KUBERNETES[1:].split(".")[:2]
    fields = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    fields |= {"gitCommit": "0" * 40, "buildDate": "2026-01-01T00:00:00Z"}
    flags = " ".join(f"-X {package}.{name}={value}" for package in version for name, value in fields.items())
    _built(say, folder / "kube", "kube", ".", flags)
    if keda:
        _built(say, folder / "keda-operator", "keda", f"{KEDA}/cmd/operator")
        _built(say, folder / "keda-adapter", "keda", f"{KEDA}/cmd/adapter")
        if not (folder / "keda-crds").is_dir():
            found = _go(["list", "-m", "-f", "{{.Dir}}", KEDA], SOURCES / "keda", folder / "crds.log")
            shutil.copytree(Path(found.strip()) / "config/crd/bases", folder / "keda-crds")
    return folder


def _built(say: Callable[[str], None], program: Path, module: str, package: str, flags: str = "") -> None:
    if program.exists():
        return
    say(f"building {program.name} (once; some minutes)")
    begun_s = time.monotonic()
    partial = program.with_suffix(".new")
    command = ["build", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(partial), package]
    _go(command, SOURCES / module, program.with_suffix(".log"))
    partial.rename(program)
    say(f"built {program.name} in {time.monotonic() - begun_s:.0f} s")


def _go(arguments: list[str], folder: Path, log: Path) -> str:
    if shutil.which("go") is None:
        raise BuildError("go is not installed: `make kube` builds the control plane with Go 1.26 or newer")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=mod"}
    with log.open("w") as errors:
        ran = subprocess.run(["go", *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors)
    if ran.returncode:
        raise BuildError(f"go {arguments[0]} failed in {folder}: look at {log}")
    return ran.stdout.decode()

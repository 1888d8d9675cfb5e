"""Checks of this machine: compiled code, cores and threads, memory, files, disk, GPUs, the model package."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

from tools.doctor.findings import Finding
from topics.errors import FleetError
from topics.kafka import assert_fast_records
from workers.assembly import check_fits, shares
from workers.models.devices import devices
from workers.models.load import load_model
from workers.models.package import read_manifest
from workers.resources import Cpus, oversubscribed, read_cpus
from workers.settings import Settings

PACKAGES: Final = ("decision-fleet", "aiokafka", "torch", "msgpack", "numpy", "pydantic-settings", "prometheus-client")
FEW_FILES: Final = 1024
"""A client has a connection to every broker, for each of its five or six clients; logs and models come on top."""
LITTLE_MEMORY: Final = 1 << 30
"""A worker with torch takes 0.3–0.5 GiB before its model."""
LITTLE_DISK: Final = 2 << 30
NVIDIA: Final = Path("/dev/nvidiactl")


def versions() -> Iterator[Finding]:
    """Python and what matters of its packages."""
    found = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    yield Finding("note", "versions", f"Python {platform.python_version()}, {found}")


def compiled() -> Iterator[Finding]:
    """The compiled parts, without which a worker takes several times the CPU."""
    try:
        assert_fast_records()
        yield Finding("ok", "compiled code", "aiokafka reads and writes records with its compiled code")
    except FleetError as error:
        yield Finding("problem", "compiled code", str(error))
    import msgpack

    if msgpack.Packer.__module__.endswith("fallback"):
        found = "msgpack runs in pure Python, some 20 times slower"
        yield Finding("warning", "compiled code", found, "unset MSGPACK_PUREPYTHON, or reinstall msgpack from a wheel")


def cores(settings: Settings, cpus: Cpus | None = None) -> Iterator[Finding]:
    """Cores, the container's quota, and the threads that predictors would take of them."""
    cpus = cpus or read_cpus()
    quota = "no CPU quota" if cpus.quota is None else f"a CPU quota of {cpus.quota:g} cores"
    yield Finding("note", "cores", f"{len(cpus.cores)} of {cpus.machine} cores, {quota}")
    if cpus.usable < 1:
        found = f"{cpus.usable:g} cores are less than the event loop alone may need"
        yield Finding("warning", "cores", found, "give the container at least one core")
    if (settings.model.path / "manifest.json").is_file():
        try:
            parts = shares(settings)
        except FleetError as error:
            yield Finding("problem", "cores", str(error))
            return
        if text := oversubscribed(settings.predictors, parts, cpus):
            yield Finding("warning", "cores", str(text), "lower predictors[].threads, or give more cores")


def memory() -> Iterator[Finding]:
    """Free memory, and how many files may be open."""
    free = psutil.virtual_memory().available
    level, do = ("warning", "stop something, or take a larger machine") if free < LITTLE_MEMORY else ("ok", "")
    yield Finding(level, "memory", f"{free / 2**30:.1f} GiB are free", do)  # type: ignore[arg-type]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    level, do = ("warning", f"ulimit -n {4 * FEW_FILES}") if files < FEW_FILES else ("ok", "")
    yield Finding(level, "open files", f"{files} may be open at once", do)  # type: ignore[arg-type]


def disk(folders: tuple[Path, ...] = (Path(), Path("/tmp"))) -> Iterator[Finding]:
    """Room where recordings and temporary files go."""
    for folder in folders:
        free = shutil.disk_usage(folder).free
        level, do = (
            ("warning", "make room: a recorder stops when the disk is full") if free < LITTLE_DISK else ("ok", "")
        )
        yield Finding(level, "disk", f"{free / 2**30:.1f} GiB are free at {folder.resolve()}", do)  # type: ignore[arg-type]


def gpus(settings: Settings) -> Iterator[Finding]:
    """Whether torch sees the devices that the settings name, and the machine's."""
    found = devices()
    wanted = [one.device for one in settings.predictors if one.device.startswith("cuda")]
    names = f": {', '.join(found.gpus)}" if found.gpus else ""
    yield Finding("note", "GPUs", f"torch {found.torch} sees {len(found.gpus)} GPUs{names}")
    if wanted and not found.gpus:
        do = "install a CUDA build of torch" if found.cuda is None else f"see nvidia-smi: torch needs CUDA {found.cuda}"
        yield Finding("problem", "GPUs", f"predictors name {', '.join(wanted)}, and torch sees no GPU", do)
    for device in wanted:
        if found.gpus and int(device.partition(":")[2] or 0) >= len(found.gpus):
            text = f"predictors name {device}, there are {len(found.gpus)}"
            yield Finding("problem", "GPUs", text, "name cuda:0 and so on")
    if not wanted and not found.gpus and NVIDIA.exists():
        text = "the machine has an NVIDIA GPU that torch does not see"
        yield Finding("warning", "GPUs", text, "install a CUDA build of torch, or a driver that fits it")
    if found.gpus and not wanted:
        yield Finding("note", "GPUs", "no predictor uses one", "predictors[].device = cuda:0 would")


def model(settings: Settings) -> Iterator[Finding]:
    """The package loads, its golden pairs match on the CPU, and it fits the settings."""
    try:
        manifest = read_manifest(settings.model.path)
        check_fits(settings, manifest)
        load_model(settings.model.path, factories=settings.model.factories, threads=1)
    except FleetError as error:
        yield Finding("problem", "model", str(error))
        return
    pairs = "golden pairs match" if manifest.golden else "no golden pairs"
    do = "" if manifest.golden else f"fleet model pack {settings.model.path}"
    yield Finding("ok" if manifest.golden else "warning", "model", f"{manifest} loads, {pairs}", do)


def grace(environment: dict[str, str], settings: Settings) -> Iterator[Finding]:
    """In Kubernetes: the grace period cannot be seen from inside, what the drain takes can."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        found = f"a drain takes up to {settings.drain.timeout_s:g} s"
        yield Finding("note", "drain", found, "terminationGracePeriodSeconds must be above")


def of_machine(settings: Settings, *, with_model: bool) -> Iterator[tuple[str, Iterator[Finding]]]:
    """Every check of this machine, by name."""
    yield "versions", versions()
    yield "compiled code", compiled()
    yield "cores", cores(settings)
    yield "memory", memory()
    yield "disk", disk()
    yield "GPUs", gpus(settings)
    yield "drain", grace(dict(os.environ), settings)
    if with_model:
        yield "model", model(settings)

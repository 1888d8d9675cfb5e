"""What a figure was measured on, for its JSON. Names no host and no path."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any, Final

import psutil

from workers.models.package import Manifest
from workers.settings import Settings

LIBRARIES: Final = ("aiokafka", "msgpack", "numpy", "torch")


def machine(settings: Settings, manifest: Manifest) -> dict[str, Any]:
    """What every benchmark has, the model, and the settings that matter for speed."""
    return {
        **bare_machine(),
        "model": str(manifest),
        "partitions": settings.topics.partitions,
        "max_batch": settings.batch.max_batch,
        "max_wait_ms": settings.batch.max_wait_ms,
        "acks": settings.reply.acks,
    }


def bare_machine() -> dict[str, Any]:
    """Cores, load at the start, versions."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_1min": psutil.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.system(),
        **{name: version(name) for name in LIBRARIES},
    }

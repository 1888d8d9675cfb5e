"""What a benchmark stands on: a cluster, a fleet of its own with its topics, and the processes that serve it.

Everything that is made here is gone afterwards: topics are deleted, a cluster of our own is stopped.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiokafka.errors import KafkaError
from rich.console import Console

from tools.bench.bare import READY
from tools.bench.children import Child
from tools.bench.raw_echo import READY as ECHO_READY
from tools.broker import start_broker
from tools.broker.ports import free_ports
from topics.errors import SettingsError
from topics.kafka import make_admin, quiet_library_logs, started
from topics.provision import ensure_topics
from topics.settings import describe, load_settings
from topics.tensors import TensorSpec
from workers.models.package import Manifest, read_manifest
from workers.settings import Settings

WORKER: Final = ("-c", "from tools.cli import main; main()", "worker")
CLIENT_ID: Final = "fleet-bench"
FLOOD_READY: Final = "flood is ready"
SHIPPED_MODEL: Final = Path(__file__).parent.parent / "demo" / "models" / "cartpole"


class Rig:
    """One fleet on a cluster, its topics there, nothing running yet."""

    def __init__(self, settings: Settings, manifest: Manifest, logs: Path = Path()) -> None:
        self.settings = settings
        self.manifest = manifest
        self._logs = logs
        self._children = 0

    @property
    def observation(self) -> TensorSpec:
        """The model's one input."""
        return self.manifest.inputs[0]

    @contextlib.asynccontextmanager
    async def worker(self, *, ready: bool = True) -> AsyncIterator[Child]:
        """A worker as `fleet worker` starts it; `ready`: it has joined its groups."""
        async with self.workers(1, ready=ready) as (child,):
            yield child

    @contextlib.asynccontextmanager
    async def workers(self, count: int, *, ready: bool = True) -> AsyncIterator[list[Child]]:
        """So many workers, started together. The first has the settings' port for its probes, others have any."""
        ports = [self.settings.http.port, *free_ports(count - 1)]
        with contextlib.ExitStack() as stack:
            children = [stack.enter_context(self._child("worker", *WORKER, port=port)) for port in ports]
            for child, port in zip(children, ports, strict=True) if ready else ():
                await child.ready(partial(_says_yes, f"http://127.0.0.1:{port}/readyz"))
            yield children

    @contextlib.asynccontextmanager
    async def bare(self, *, backlog: bool = False) -> AsyncIterator[Child]:
        """The bare loop, reading from now on, or with `backlog` from the first state."""
        words = ("-m", "tools.bench.bare", *(["--backlog"] if backlog else []))
        with self._child("bare loop", *words) as child:
            await child.ready(lambda: READY in child.log.read_text(errors="replace"))
            yield child

    @contextlib.asynccontextmanager
    async def echo(self) -> AsyncIterator[Child]:
        """The raw echo on the high lane."""
        with self._child("raw echo", "-m", "tools.bench.raw_echo") as child:
            await child.ready(lambda: ECHO_READY in child.log.read_text(errors="replace"))
            yield child

    @contextlib.asynccontextmanager
    async def flood(self, rate_per_s: float, seconds: float) -> AsyncIterator[Child]:
        """So many states a second in `low`, from a process of its own that ends with the last answer."""
        with self._child("flood", "-m", "tools.bench.flood", str(rate_per_s), str(seconds)) as child:
            await child.ready(lambda: FLOOD_READY in child.log.read_text(errors="replace"))
            yield child

    @contextlib.asynccontextmanager
    async def one_more(self) -> AsyncIterator[tuple[Child, Callable[[], bool]]]:
        """Another worker beside those that run, and whether it is ready."""
        (port,) = free_ports(1)
        with self._child("worker", *WORKER, port=port) as child:
            yield child, partial(_says_yes, f"http://127.0.0.1:{port}/readyz")

    def _child(self, name: str, *command: str, port: int | None = None) -> Child:
        self._children += 1
        log = self._logs / f"{self._children:02d}-{name.replace(' ', '-')}.log"
        return Child(name, command, self._environment(port or self.settings.http.port), log)

    def _environment(self, port: int) -> dict[str, str]:
        """What differs, or may differ, from the settings that the process finds by itself, as we did."""
        settings = self.settings
        return {
            "FLEET_NAME": settings.name,
            "FLEET_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            "FLEET_MODEL__PATH": str(settings.model.path),
            "FLEET_PREDICTORS": json.dumps([predictor.model_dump(mode="json") for predictor in settings.predictors]),
            "FLEET_BATCH__MAX_BATCH": str(settings.batch.max_batch),
            "FLEET_BATCH__MAX_WAIT_MS": str(settings.batch.max_wait_ms),
            "FLEET_BATCH__FAST_PASS_WAIT_MS": str(settings.batch.fast_pass_wait_ms),
            "FLEET_HTTP__PORT": str(port),
            "FLEET_LOG__FORMAT": "json",
        }


@contextlib.asynccontextmanager
async def open_rig(settings: Settings) -> AsyncIterator[Rig]:
    """A rig for `settings`, whose fleet must not exist yet.

    Raises:
        SettingsError: the bare loop cannot serve the model.
        ModelError, BrokerUnavailable: no such model, no such cluster.
    """
    manifest = served(settings)
    logs = Path(tempfile.mkdtemp(prefix="fleet-bench-"))
    await ensure_topics(settings)
    try:
        yield Rig(settings, manifest, logs)
    finally:
        await _delete_topics(settings)
    shutil.rmtree(logs, ignore_errors=True)  # after a failure the logs stay: the error names them


def served(settings: Settings) -> Manifest:
    """The model's manifest.

    Raises:
        ModelError: there is none.
        SettingsError: the model takes something other than one tensor, which is all that the bare loop can read.
    """
    manifest = read_manifest(settings.model.path)
    if len(manifest.inputs) != 1 or manifest.inputs[0].dtype == "bool":
        found = ", ".join(f"{spec.name} {spec}" for spec in manifest.inputs)
        raise SettingsError(f"{manifest} takes {found}: the bare loop serves models with one input of numbers")
    return manifest


async def _delete_topics(settings: Settings) -> None:
    with contextlib.suppress(KafkaError, OSError):
        async with started(make_admin(settings.kafka, client_id=CLIENT_ID), settings.kafka) as admin:
            await admin.delete_topics(list(settings.names.all_topics()))


def _says_yes(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def bench_settings(
    benchmark: str, model: Path | None, servers: str | None, console: Console, special: Mapping[str, Any] | None = None
) -> Iterator[Settings]:
    """Settings of a new fleet on the cluster that is configured, else on one that is started for us.

    `special` are sections that this benchmark wants as they are, whatever else says.

    Raises:
        SettingsError: a setting is wrong.
        BrokerFault: the cluster cannot be started.
    """
    quiet_library_logs()
    overrides: dict[str, Any] = {
        "name": f"bench-{benchmark}-{secrets.token_hex(3)}",
        "model": {"path": model.absolute() if model else None},
        "kafka": {"bootstrap_servers": servers},
        "http": {"port": free_ports(1)[0]},
        **(special or {}),
    }
    configured = {
        shown.key for shown in describe(load_settings(Settings, overrides=overrides)) if shown.source != "default"
    }
    if "model.path" not in configured:
        overrides["model"] = {"path": SHIPPED_MODEL}
    settings = load_settings(Settings, overrides=overrides)
    served(settings)  # a mistake is told before anything is started
    if "kafka.bootstrap_servers" in configured:
        yield settings
        return
    with console.status("starting a Kafka of our own"):
        cluster = start_broker()
    try:
        overrides["kafka"] = {"bootstrap_servers": cluster.bootstrap_servers}
        yield load_settings(Settings, overrides=overrides)
    finally:
        cluster.stop()

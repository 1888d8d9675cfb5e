"""What every part of the harness works with: the cluster, a Kafka, a release of the chart, and what its Pods say."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from helm_python import Config

from tests.kube.api import Api
from tests.kube.lab import Lab, eventually
from topics.settings import FleetSettings, KafkaSettings, TopicSettings

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm"
NAMESPACE: Final = "fleet"
RELEASE: Final = "fleet"
PARTITIONS: Final = 12
INSTALLED_WITHIN_S: Final = 240
MODELS: Final = ROOT / "tools" / "demo" / "models"
BATCH: Final = 8
DEVICE: Final = {"device": "simulated", "simulated": {"batch_us": 20_000, "row_us": 2500, "jitter": 0.0}}
"""40 ms a full batch of 8: 200 decisions/s a worker, so that a few hundred states a second need several."""
CAPACITY_PER_S: Final = 200.0


class World:
    """One lab, one broker, one namespace."""

    def __init__(self, lab: Lab, api: Api, servers: str, say: Callable[[str], None]) -> None:
        self.lab, self.api, self.servers, self.say = lab, api, servers, say
        kafka = KafkaSettings(bootstrap_servers=servers)
        self.settings = FleetSettings(name="fleet", kafka=kafka, topics=TopicSettings(partitions=PARTITIONS))
        self.helm = Config(kubeconfig_path=lab.kubeconfig, namespace=NAMESPACE)
        self.plots = ROOT / "docs" / "plots"

    def prepare(self) -> None:
        """A namespace that refuses what is not restricted, and volumes as an administrator would make them."""
        security = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
        self.api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": security}})
        for name in ("models", f"{RELEASE}-decision-fleet-recorder"):
            self.volume(name)
        for version in ("1", "2"):
            self.package(version)

    def volume(self, name: str) -> None:
        """A volume bound to the claim `name`; the chart makes the recorder's claim itself."""
        reference = {"namespace": NAMESPACE, "name": name}
        spec = {"capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"}}
        self.api.post(
            "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": {**spec, "claimRef": reference}}
        )
        if name == "models":
            claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name}
            claim |= {"resources": {"requests": {"storage": "1Gi"}}}
            path = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
            self.api.post(path, {"metadata": {"name": name}, "spec": claim})

    def package(self, version: str) -> None:
        """The shipped CartPole policy under another version, on the claim `models`."""
        folder = self.lab.folder / "claims" / "models" / version
        shutil.copytree(MODELS / "cartpole", folder)
        manifest = folder / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"version": "1"', f'"version": "{version}"'))

    def values(self, version: str = "1", **pool: Any) -> dict[str, Any]:
        """Of a release with one pool on the simulated device."""
        main = {"device": "simulated", "predictors": [DEVICE], "drainSeconds": 15, "terminationGracePeriodSeconds": 30}
        main |= {"settings": {"batch": {"max_batch": BATCH, "fast_pass_wait_ms": 100}}}
        main |= {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
        return {
            "kafka": {"bootstrapServers": self.servers},
            "fleet": {"name": self.settings.name},
            "topics": {"partitions": PARTITIONS},
            "model": {"source": "pvc", "pvc": {"claimName": "models", "subPath": version}},
            "recorder": {"enabled": True, "resources": {"requests": {"cpu": "50m"}}},
            "workers": {"pools": {"main": main | pool}},
        }

    async def install(self, values: dict[str, Any], *, wait: bool = True) -> None:
        """As `helm install --wait` does."""
        await asyncio.to_thread(
            self.helm.install, str(CHART), RELEASE, values, namespace=NAMESPACE,
            timeout=INSTALLED_WITHIN_S, wait="legacy" if wait else "hookOnly",
        )  # fmt: skip

    async def upgrade(self, values: dict[str, Any]) -> None:
        """As `helm upgrade --wait` does."""
        await asyncio.to_thread(
            self.helm.upgrade, str(CHART), RELEASE, values, namespace=NAMESPACE,
            timeout=INSTALLED_WITHIN_S, wait="legacy",
        )  # fmt: skip

    async def rollback(self) -> None:
        """To the revision before, and wait for its Pods."""
        await asyncio.to_thread(self.helm.rollback, RELEASE, timeout=INSTALLED_WITHIN_S, wait="legacy")

    async def uninstall(self) -> None:
        """And wait until the Pods have drained."""
        await asyncio.to_thread(self.helm.uninstall, RELEASE, timeout=INSTALLED_WITHIN_S)
        await self.until("all Pods are gone", lambda: not self.pods())

    async def until(self, what: str, holds: Callable[[], Any], within_s: float = 120.0) -> Any:
        """`eventually` beside running traffic."""
        return await asyncio.to_thread(eventually, what, holds, within_s)

    def pods(self, pool: str | None = None) -> list[dict[str, Any]]:
        """Those of workers, or of one pool."""
        label = f"decision-fleet/pool={pool}" if pool else "decision-fleet/pool"
        found = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={label.replace('/', '%2F')}")
        items: list[dict[str, Any]] = found["items"]
        return items

    def ready(self, pool: str | None = None) -> list[str]:
        """Names of the workers that serve and are not on their way out."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods(pool)
            if not pod["metadata"].get("deletionTimestamp")
            and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
        ]

    def stops(self) -> dict[str, tuple[float, float]]:
        """Pod → (seconds from SIGTERM to its end, its grace) of every worker that was stopped."""
        pattern = re.compile(r" (\S+) stopped in ([\d.]+) of ([\d.]+) s$", re.M)
        logs = "".join(path.read_text() for path in self.lab.folder.glob("kubelet-*.log"))
        return {name: (float(took), float(grace)) for name, took, grace in pattern.findall(logs) if float(grace)}

    def log(self, pod: str, container: str = "worker") -> list[dict[str, Any]]:
        """A worker's events."""
        text = "".join(path.read_text() for path in self.lab.folder.glob(f"node-*/{pod}.{container}.log"))
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def rebalances(self) -> int:
        """Assignments of the high lane in all logs: each is one worker's part in one rebalance."""
        texts = [path.read_text() for path in self.lab.folder.glob("node-*/*.worker.log")]
        return sum(line.count('"assigned"') for text in texts for line in text.splitlines() if '"lane": "high"' in line)

    def processes(self, pod: str) -> list[int]:
        """Process IDs of a Pod's worker."""
        listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
        environments = ((int(line.split()[0]), line) for line in listed.splitlines()[1:] if " worker" in line)
        return [pid for pid, _ in environments if f"HOSTNAME={pod}".encode() in environment(pid)]

    def models(self) -> set[str]:
        """Versions that the ready workers say they serve."""
        found = set()
        for pod in self.ready():
            found |= {event["model"] for event in self.log(pod) if event.get("event") == "ready"}
        return found


def environment(pid: int) -> list[bytes]:
    """Of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []

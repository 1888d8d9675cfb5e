"""A kubelet without images: runs the containers of the Pods that are bound to one node as processes of this machine.

usage: kubelet.py KUBECONFIG NODE FOLDER IMAGE COMMAND…    (COMMAND runs in place of IMAGE's entry point)

It does what the chart uses: environment (values, secrets, config maps, fields), init containers, restart policies, HTTP
probes, volumes (emptyDir, secret, configMap, persistentVolumeClaim) by bind mounts in a namespace of the container,
SIGTERM, the grace period, SIGKILL. It knows no images, limits, users, exec probes or networks: Pods share the loopback,
so every declared port is mapped to a free one, also in variables that hold just that number.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.kube.api import Api

LOOK_S = 0.5
"""Between two looks at a container and its probes."""
CAPACITY = {"cpu": "8", "memory": "16Gi", "pods": "50", "nvidia.com/gpu": "8"}
ZONES = 2


class NotThere(Exception):
    """A Secret, a ConfigMap, one of its keys, or an image is missing; the Pod waits and says so."""


class Pod:
    """One Pod from its start to its end, in threads of its own."""

    def __init__(self, kubelet: Kubelet, found: dict[str, Any]) -> None:
        self.found = found
        self._kubelet = kubelet
        self._spec = found["spec"]
        self._scratch = Path(tempfile.mkdtemp(prefix="pod-", dir=kubelet.folder))
        self._ports = {
            port["containerPort"]: free_port()
            for container in self._spec["containers"]
            for port in container.get("ports", ())
        }
        self._stopping = threading.Event()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        names = [container["name"] for container in self._spec["containers"]]
        self._states: dict[str, Any] = {name: {"waiting": {"reason": "PodInitializing"}} for name in names}
        self._ready = dict.fromkeys(names, False)
        self._restarts = dict.fromkeys(names, 0)

    @property
    def path(self) -> str:
        metadata = self.found["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    @property
    def name(self) -> str:
        return str(self.found["metadata"]["name"])

    def run(self) -> None:
        """Init containers one after the other, then the others side by side until they end or the Pod is deleted."""
        for container in self._spec.get("initContainers", ()):
            while not self._stopping.is_set():
                try:
                    process = self._launch(container)
                except NotThere as missing:
                    self._waits_for(missing)
                    continue
                code = self._finished(container["name"], process)
                if code == 0:
                    break
                if self._spec.get("restartPolicy") == "Never":
                    self._tell("Failed")
                    return
                self._stopping.wait(2)
        keepers = [threading.Thread(target=self._keep, args=(one,)) for one in self._spec["containers"]]
        for keeper in keepers:
            keeper.start()
        for keeper in keepers:
            keeper.join()
        if not self._stopping.is_set():
            codes = [state["terminated"]["exitCode"] for state in self._states.values()]
            self._tell("Failed" if any(codes) else "Succeeded")

    def _finished(self, name: str, process: subprocess.Popen[bytes]) -> int:
        self._processes[name] = process
        code = process.wait()
        self._kubelet.say(self.name, name, "exit", code)
        return code

    def _waits_for(self, missing: NotThere) -> None:
        waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": str(missing)}}
        self._states = dict.fromkeys(self._states, waiting)
        self._tell("Pending")
        self._stopping.wait(2)

    def _keep(self, container: dict[str, Any]) -> None:
        """Run a container again and again, as its Pod's restart policy says."""
        name, policy = container["name"], self._spec.get("restartPolicy", "Always")
        while not self._stopping.is_set():
            try:
                process = self._launch(container)
            except NotThere as missing:
                self._waits_for(missing)
                continue
            self._processes[name] = process
            self._states[name] = {"running": {"startedAt": now()}}
            self._tell("Running")
            self._watch(container, process)
            self._ready[name] = False
            code = process.wait() & 255
            reason = "Error" if code else "Completed"
            self._states[name] = {"terminated": {"exitCode": code, "finishedAt": now(), "reason": reason}}
            self._kubelet.say(self.name, name, "exit", code)
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            self._restarts[name] += 1
            if not self._stopping.is_set():
                self._tell("Running")
            self._stopping.wait(min(self._restarts[name], 10))

    def _watch(self, container: dict[str, Any], process: subprocess.Popen[bytes]) -> None:
        """Probe until the process ends; kill it where a probe says so."""
        name, since_s, failures = container["name"], time.monotonic(), 0.0
        started = "startupProbe" not in container
        while process.poll() is None:
            if not started:
                started = self._asked(container, "startupProbe")
                if not started and time.monotonic() - since_s > allowed_s(container["startupProbe"]):
                    self._kubelet.say(self.name, name, "not started in time: killed")
                    process.kill()
            else:
                ready = self._asked(container, "readinessProbe")
                if ready != self._ready[name]:
                    self._ready[name] = ready
                    self._kubelet.say(self.name, name, "ready" if ready else "not ready")
                    self._tell("Running")
                failures = 0.0 if self._asked(container, "livenessProbe") else failures + LOOK_S
                if failures and failures > allowed_s(container["livenessProbe"]):
                    self._kubelet.say(self.name, name, "not alive: restarted")
                    process.terminate()
                    failures = 0.0
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)

    def _asked(self, container: dict[str, Any], which: str) -> bool:
        """The probe's answer; True where there is none."""
        probe = container.get(which)
        if probe is None:
            return True
        port = probe["httpGet"]["port"]
        if isinstance(port, str):
            port = next(one["containerPort"] for one in container["ports"] if one["name"] == port)
        url = f"http://127.0.0.1:{self._ports[port]}{probe['httpGet'].get('path', '/')}"
        try:
            with urllib.request.urlopen(url, timeout=probe.get("timeoutSeconds", 1)) as answer:
                return bool(answer.status < 400)
        except (OSError, urllib.error.URLError):
            return False

    def _launch(self, container: dict[str, Any]) -> subprocess.Popen[bytes]:
        env = self._environment(container)
        binds = list(self._mounts(container))
        steps = "".join(f"mkdir -p '{at}' && mount --bind '{source}' '{at}' && " for source, at in binds)
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{steps}exec "$@"', "sh"]
        command += self._entry_point(container)
        with (self._kubelet.folder / f"{self.name}.{container['name']}.log").open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)

    def _entry_point(self, container: dict[str, Any]) -> list[str]:
        if "command" in container:
            return [*container["command"], *container.get("args", ())]
        if self._kubelet.image not in container["image"]:
            raise NotThere(f"image {container['image']!r} is not here, only {self._kubelet.image}")
        return [*self._kubelet.command, *container.get("args", ())]

    def _environment(self, container: dict[str, Any]) -> dict[str, str]:
        env = {"PATH": os.environ["PATH"], "HOSTNAME": self.name}
        for source in container.get("envFrom", ()):
            for key, kind in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
                if key in source:
                    env |= {name: data.decode() for name, data in self._data(kind, source[key]["name"]).items()}
        for entry in container.get("env", ()):
            env[entry["name"]] = self._value(entry)
        mapped = {str(port): str(free) for port, free in self._ports.items()}
        return {name: mapped.get(value, value) for name, value in env.items()}

    def _value(self, entry: dict[str, Any]) -> str:
        origin = entry.get("valueFrom", {})
        for key, kind in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            if key in origin:
                data = self._data(kind, origin[key]["name"])
                if origin[key]["key"] not in data:
                    raise NotThere(f"key {origin[key]['key']!r} is not in {kind[:-1]} {origin[key]['name']!r}")
                return data[origin[key]["key"]].decode()
        if "fieldRef" in origin:
            node: Any = self.found
            for part in origin["fieldRef"]["fieldPath"].split("."):
                node = node[part]
            return str(node)
        return str(entry.get("value", ""))

    def _mounts(self, container: dict[str, Any]) -> Iterator[tuple[Path, str]]:
        volumes = {volume["name"]: volume for volume in self._spec.get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            source = self._source(volumes[mount["name"]]) / mount.get("subPath", "")
            yield source, mount["mountPath"]

    def _source(self, volume: dict[str, Any]) -> Path:
        here = self._scratch / volume["name"]
        if "persistentVolumeClaim" in volume:
            here = self._kubelet.folder.parent / "claims" / volume["persistentVolumeClaim"]["claimName"]
        here.mkdir(parents=True, exist_ok=True)
        for key, kind, name in (("secret", "secrets", "secretName"), ("configMap", "configmaps", "name")):
            if key in volume:
                data = self._data(kind, volume[key][name])
                items = {item["key"]: item["path"] for item in volume[key].get("items", ())} or {
                    one: one for one in data
                }
                for one, file in items.items():
                    if one not in data:
                        raise NotThere(f"key {one!r} is not in {kind[:-1]} {volume[key][name]!r}")
                    (here / file).write_bytes(data[one])
        return here

    def _data(self, kind: str, name: str) -> dict[str, bytes]:
        try:
            found = self._kubelet.api.get(f"/api/v1/namespaces/{self.found['metadata']['namespace']}/{kind}/{name}")
        except urllib.error.HTTPError as error:
            raise NotThere(f"{kind[:-1]} {name!r} not found") from error
        return {
            key: base64.b64decode(value) if kind == "secrets" else value.encode()
            for key, value in found.get("data", {}).items()
        }

    def _tell(self, phase: str) -> None:
        ready = "True" if all(self._ready.values()) else "False"
        conditions = [
            {"type": kind, "status": status, "lastTransitionTime": now()}
            for kind, status in (("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready))
        ]
        containers = [
            {
                "name": one["name"], "image": one["image"], "imageID": "", "restartCount": self._restarts[one["name"]],
                "ready": self._ready[one["name"]], "started": True, "state": self._states[one["name"]],
            }
            for one in self._spec["containers"]
        ]  # fmt: skip
        status = {"phase": phase, "podIP": "127.0.0.1", "hostIP": "127.0.0.1", "conditions": conditions}
        status |= {"startTime": self.found["metadata"]["creationTimestamp"], "containerStatuses": containers}
        with contextlib.suppress(urllib.error.HTTPError):  # deleted meanwhile
            self._kubelet.api.patch(f"{self.path}/status", {"status": status})

    def stop(self, metadata: Mapping[str, Any]) -> None:
        """SIGTERM, the grace period, SIGKILL; then the Pod is gone."""
        self._stopping.set()
        grace_s, begun_s = float(metadata.get("deletionGracePeriodSeconds") or 0), time.monotonic()
        running = [process for process in self._processes.values() if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                process.wait(max(0.1, grace_s - (time.monotonic() - begun_s)))
            except subprocess.TimeoutExpired:
                self._kubelet.say(self.name, "killed after its grace of", grace_s, "s")
                self.kill()
        self._kubelet.say(self.name, f"stopped in {time.monotonic() - begun_s:.1f} of {grace_s:g} s")
        with contextlib.suppress(urllib.error.HTTPError):
            self._kubelet.api.delete(f"{self.path}?gracePeriodSeconds=0")

    def kill(self) -> None:
        """All its processes at once."""
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


class Kubelet:
    """One node."""

    def __init__(self, api: Api, node: str, folder: Path, image: str, command: list[str]) -> None:
        self.api, self.node, self.folder, self.image, self.command = api, node, folder, image, command
        self._pods: dict[str, Pod] = {}

    def say(self, *words: object) -> None:
        """A line of its log; the harness reads some of them."""
        print(now(), self.node, *words, flush=True)

    def run(self) -> None:
        """Register the node, then follow its Pods until killed."""
        number = int(self.node.rsplit("-", 1)[1])
        labels = {"kubernetes.io/hostname": self.node, "topology.kubernetes.io/zone": f"zone-{number % ZONES}"}
        self.api.post("/api/v1/nodes", {"metadata": {"name": self.node, "labels": labels}})
        threading.Thread(target=self._heartbeat, daemon=True).start()
        while True:
            for event in self.api.watch(f"/api/v1/pods?fieldSelector=spec.nodeName={self.node}"):
                self._seen(event)

    def _seen(self, event: dict[str, Any]) -> None:
        metadata = event["object"]["metadata"]
        if event["type"] not in ("ADDED", "MODIFIED"):
            return
        pod = self._pods.get(metadata["uid"])
        if metadata.get("deletionTimestamp"):
            if pod is not None and not pod._stopping.is_set():
                threading.Thread(target=pod.stop, args=(metadata,), daemon=True).start()
        elif pod is None:
            pod = self._pods[metadata["uid"]] = Pod(self, event["object"])
            threading.Thread(target=pod.run, daemon=True).start()

    def _heartbeat(self) -> None:
        while True:
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            ready |= {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
            status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
            with contextlib.suppress(OSError):
                self.api.patch(f"/api/v1/nodes/{self.node}/status", {"status": status})
            time.sleep(8)

    def leave(self, *_: object) -> None:
        """Take the Pods along."""
        for pod in self._pods.values():
            pod.kill()
        os._exit(0)


def allowed_s(probe: Mapping[str, Any]) -> float:
    """How long a probe may fail."""
    return float(probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10))


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def now() -> str:
    """As Kubernetes writes times."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def main() -> None:
    kubeconfig, node, folder, image, *command = sys.argv[1:]
    kubelet = Kubelet(Api.of(json.loads(Path(kubeconfig).read_text())), node, Path(folder), image, command)
    signal.signal(signal.SIGTERM, kubelet.leave)
    kubelet.run()


if __name__ == "__main__":
    main()

"""A control plane on this machine's loopback: etcd, API server, controllers, scheduler, kubelets, and KEDA.

Everything ends with the process that started it: `python -m tests.kube` runs in a process namespace of its own.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.kube.api import Api

ETCD, ETCD_PEERS, API, CONTROLLERS, SCHEDULER = 22379, 22380, 26443, 20257, 20259
KEDA_HEALTH, KEDA_METRICS, KEDA_ADAPTER = 28081, 29666, 26444
READY_WITHIN_S: Final = 90.0
NAMES: Final = ("127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc")
KEDA_NAMES: Final = (
    "localhost",
    "127.0.0.1",
    "keda-metrics-apiserver.keda.svc",
    "keda-operator.keda.svc.cluster.local",
)


class LabError(Exception):
    """Something did not come up; the text names its log."""


class Lab:
    """Programs in `bin`, everything else below `folder`."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._bin = programs
        self._authority = trustme.CA()
        self._token = secrets.token_hex(16)
        self._programs: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def start(self, nodes: int, image: str, command: list[str]) -> Api:
        """etcd, API server, controllers, scheduler, and kubelets that run `command` for `image`."""
        self._write_secrets()
        self._start_etcd()
        self._start_api_server()
        api = Api.of(json.loads(self.kubeconfig.read_text()))
        eventually("the API server is ready", lambda: answers(lambda: api.get("/api/v1/namespaces/default")))
        for name, port in (("controller-manager", CONTROLLERS), ("scheduler", SCHEDULER)):
            config = [f"--{kind}kubeconfig={self.kubeconfig}" for kind in ("", "authentication-", "authorization-")]
            own = ["--bind-address=127.0.0.1", f"--secure-port={port}", "--leader-elect=false"]
            if name == "controller-manager":
                own += [f"--service-account-private-key-file={self.folder}/accounts.key"]
                own += [f"--root-ca-file={self.folder}/ca.crt", "--use-service-account-credentials=false"]
                own += ["--horizontal-pod-autoscaler-sync-period=3s"]
                own += ["--horizontal-pod-autoscaler-downscale-stabilization=10s"]
            self._run(name, self._bin / "kube", name, *config, *own)
        for number in range(nodes):
            folder = self.folder / f"node-{number}"
            folder.mkdir()
            arguments = [self.kubeconfig, f"node-{number}", folder, image, *command]
            self._run(f"kubelet-{number}", sys.executable, "-m", "tests.kube.kubelet", *arguments)
        eventually("the nodes are there", lambda: len(api.get("/api/v1/nodes")["items"]) == nodes)
        return api

    def start_keda(self, api: Api) -> None:
        """Operator and metrics adapter, as Deployments would run them."""
        self.kubectl("apply", "--server-side", "-f", self._bin / "keda-crds")
        eventually("KEDA's types are there", lambda: answers(lambda: api.get("/apis/keda.sh/v1alpha1/scaledobjects")))
        self.kubectl("create", "namespace", "keda")
        certificates = self.folder / "keda-certificates"
        certificates.mkdir()
        self._write_pair(certificates / "tls", self._authority.issue_cert(*KEDA_NAMES, common_name="keda"))
        self._authority.cert_pem.write_to_path(str(certificates / "ca.crt"))
        environment = {"POD_NAMESPACE": "keda", "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda", "WATCH_NAMESPACE": ""}
        self._run(
            "keda-operator", self._bin / "keda-operator", "--kubeconfig", self.kubeconfig, "--leader-elect=false",
            "--metrics-bind-address=127.0.0.1:28080", f"--health-probe-bind-address=127.0.0.1:{KEDA_HEALTH}",
            f"--metrics-service-bind-address=127.0.0.1:{KEDA_METRICS}", f"--cert-dir={certificates}",
            "--enable-cert-rotation=false", **environment,
        )  # fmt: skip
        config = [
            f"--{kind}kubeconfig={self.kubeconfig}" for kind in ("", "lister-", "authentication-", "authorization-")
        ]
        self._run(
            "keda-adapter", self._bin / "keda-adapter", *config, "--bind-address=127.0.0.1",
            f"--secure-port={KEDA_ADAPTER}", f"--client-ca-file={self.folder}/ca.crt",
            f"--tls-cert-file={certificates}/tls.crt", f"--tls-private-key-file={certificates}/tls.key",
            f"--cert-dir={certificates}", f"--metrics-service-address=localhost:{KEDA_METRICS}", "--port=28082",
            **environment,
        )  # fmt: skip
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": KEDA_ADAPTER}]}
        name = "keda-metrics-apiserver"
        api.post("/api/v1/namespaces/keda/services", {"metadata": {"name": name}, "spec": service})
        authority = base64.b64encode(self._authority.cert_pem.bytes()).decode()
        spec = {"service": {"name": name, "namespace": "keda", "port": KEDA_ADAPTER}, "caBundle": authority}
        spec |= {"group": "external.metrics.k8s.io", "version": "v1beta1"}
        spec |= {"groupPriorityMinimum": 100, "versionPriority": 100}
        metadata = {"name": "v1beta1.external.metrics.k8s.io"}
        api.post("/apis/apiregistration.k8s.io/v1/apiservices", {"metadata": metadata, "spec": spec})
        url = f"http://127.0.0.1:{KEDA_HEALTH}/readyz"
        eventually("KEDA is ready", lambda: answers(lambda: urllib.request.urlopen(url, timeout=2).close()))
        group = "/apis/external.metrics.k8s.io/v1beta1"
        eventually("KEDA's metrics are there", lambda: answers(lambda: api.get(group)))

    def kubectl(self, *arguments: object, text: str = "") -> str:
        """Raises LabError with kubectl's own words."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *map(str, arguments)]
        ran = subprocess.run(command, input=text.encode(), capture_output=True)
        if ran.returncode:
            raise LabError(f"kubectl {' '.join(command[3:6])}: {ran.stderr.decode()[-600:]}")
        return ran.stdout.decode()

    def _write_secrets(self) -> None:
        folder = self.folder
        self._authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        self._write_pair(folder / "api-server", self._authority.issue_cert(*NAMES, common_name="kube-apiserver"))
        self._write_pair(folder / "front-proxy", self._authority.issue_cert("front-proxy", common_name="front-proxy"))
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        plain = serialization.NoEncryption()
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        (folder / "accounts.key").write_bytes(key.private_bytes(pem, pkcs8, plain))
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (folder / "accounts.pub").write_bytes(public)
        (folder / "tokens.csv").write_text(f'{self._token},admin,admin,"system:masters"\n')
        cluster = {"server": f"https://127.0.0.1:{API}", "certificate-authority": str(folder / "ca.crt")}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "admin", "namespace": "default"}}],
        }  # fmt: skip
        self.kubeconfig.write_text(json.dumps(config))

    @staticmethod
    def _write_pair(path: Path, pair: trustme.LeafCert) -> None:
        pair.private_key_pem.write_to_path(f"{path}.key")
        with Path(f"{path}.crt").open("wb") as file:
            file.writelines(blob.bytes() for blob in pair.cert_chain_pems)

    def _start_etcd(self) -> None:
        clients, peers = f"http://127.0.0.1:{ETCD}", f"http://127.0.0.1:{ETCD_PEERS}"
        self._run(
            "etcd", self._bin / "kube", "etcd", f"--data-dir={self.folder}/etcd", f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}", f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync", "--log-level=warn",
        )  # fmt: skip

    def _start_api_server(self) -> None:
        here = self.folder
        self._run(
            "apiserver", self._bin / "kube", "apiserver", f"--etcd-servers=http://127.0.0.1:{ETCD}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={API}",
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC",
            f"--token-auth-file={here}/tokens.csv", f"--client-ca-file={here}/ca.crt",
            f"--tls-cert-file={here}/api-server.crt", f"--tls-private-key-file={here}/api-server.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={here}/accounts.pub",
            f"--service-account-signing-key-file={here}/accounts.key",
            f"--requestheader-client-ca-file={here}/ca.crt", "--requestheader-allowed-names=front-proxy",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User", f"--proxy-client-cert-file={here}/front-proxy.crt",
            f"--proxy-client-key-file={here}/front-proxy.key",
        )  # fmt: skip

    def _run(self, name: str, *command: object, **variables: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            words = ["nice", "-n", "10", *map(str, command)]
            self._programs[name] = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **variables})

    def require_running(self) -> None:
        """Raises LabError for a program that ended."""
        for name, process in self._programs.items():
            if process.poll() is not None:
                raise LabError(f"{name} ended with {process.returncode}: look at {self.folder / f'{name}.log'}")


def answers(ask: Callable[[], object]) -> bool:
    """Whether asking raises nothing of the network's."""
    try:
        ask()
    except (OSError, urllib.error.URLError, json.JSONDecodeError):
        return False
    return True


def eventually(what: str, holds: Callable[[], object], within_s: float = READY_WITHIN_S, every_s: float = 0.3) -> Any:
    """Wait until `holds()` gives something true, and give that.

    Raises:
        LabError: it did not within this time.
    """
    end_s = time.monotonic() + within_s
    while True:
        if found := holds():
            return found
        if time.monotonic() > end_s:
            raise LabError(f"not within {within_s:g} s: {what}")
        time.sleep(every_s)

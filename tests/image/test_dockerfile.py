"""The image's recipe, read and partly done; there is no container engine in the tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.lock import wanted

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PIN = r"^([a-z0-9.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$"


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of every instruction, comments and line ends aside."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in DOCKERFILE.splitlines() if not line.startswith("#")))
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in joined.splitlines() if line.strip()]


def final_stage() -> list[tuple[str, str]]:
    found = instructions()
    last = max(at for at, (word, _) in enumerate(found) if word == "FROM")
    return found[last + 1 :]


def test_the_result_has_no_root_and_no_compiler() -> None:
    """A numeric user, which Kubernetes can check; nothing is installed in the last stage."""
    words = dict(final_stage())
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", words["USER"])
    assert "RUN" not in words and "build-essential" not in DOCKERFILE and "apt" not in DOCKERFILE
    values = yaml.safe_load((ROOT / "helm" / "values.yaml").read_text())["podSecurityContext"]
    assert words["USER"] == f"{values['runAsUser']}:{values['runAsGroup']}"


def test_signals_reach_the_command() -> None:
    """Exec form: a shell as process 1 would swallow SIGTERM, and no worker would ever drain."""
    words = dict(final_stage())
    assert json.loads(words["ENTRYPOINT"]) == ["fleet"] and json.loads(words["CMD"]) == ["worker"]
    assert "STOPSIGNAL" not in words


def test_health_is_asked_where_the_worker_answers() -> None:
    """Liveness, not readiness: a worker without Kafka need not be killed."""
    health = dict(final_stage())["HEALTHCHECK"]
    command = json.loads(health[health.index("CMD") + 4 :])
    assert "/livez" in command[2] and "FLEET_HTTP__PORT" in command[2]
    compile(command[2], "health", "exec")


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    """.dockerignore lets through exactly that."""
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignore if line.startswith("!")]
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    assert all((ROOT / source).exists() for source in copied)
    for source in copied:
        assert any(fnmatch(source, pattern) or source.startswith(f"{pattern}/") for pattern in kept), source


def test_bases_are_pinned_and_labelled() -> None:
    """By a tag at least; no `latest`, no ADD from afar, no sudo."""
    text = DOCKERFILE.lower()
    assert ":latest" not in text and "\nadd " not in text and "sudo" not in text and "curl" not in text
    assert "org.opencontainers.image.licenses" in DOCKERFILE


def pins(file: str) -> dict[str, tuple[str, str]]:
    """(version, hash) by name; every line is one."""
    text = (ROOT / "docker" / file).read_text()
    found = {name: (version, sha256) for name, version, sha256 in re.findall(PIN, text, re.M)}
    assert len(found) == len([line for line in text.splitlines() if not line.startswith("#")])
    return found


def test_every_requirement_is_locked_by_hash_and_without_an_address() -> None:
    """In a version that the project takes; what two files name, they name alike."""
    everything: dict[str, tuple[str, str]] = {}
    for file, requirements in wanted().items():
        assert "://" not in (ROOT / "docker" / file).read_text()
        locked = pins(file)
        for text in requirements:
            required = Requirement(text)
            assert Version(locked[canonicalize_name(required.name)][0]) in required.specifier, text
        if file != "build.txt":
            assert all(everything.setdefault(name, pin) == pin for name, pin in locked.items())


def test_torch_of_another_index_is_of_the_same_version() -> None:
    """The build argument and the locked one."""
    assert f'ARG TORCH="torch=={pins("torch.txt")["torch"][0]}"' in DOCKERFILE


def test_the_label_tells_the_version_of_the_project() -> None:
    """As the chart's appVersion does, which is the default tag."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f'image.version="{version}"' in DOCKERFILE
    assert yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text())["appVersion"] == version


SANDBOX = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
READ_ONLY = 'mount -t proc proc /proc && mount -o remount,bind,ro / && cd / && exec "$@"'
# Somebody else who may read everything, as in the image; the tests' Python may lie in root's home.
USER = [
    "setpriv", "--reuid=10001", "--regid=10001", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip
FLEET = [sys.executable, "-c", "from tools.cli import main; main()"]


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], int, Path]]]:
    """Starts `fleet` as in a container: process 1, user 10001, no home, a read-only root. Gives the sandbox,
    the outer number of process 1, and the file with what it says."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become somebody else")
    if subprocess.run([*SANDBOX, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make namespaces")
    started: list[subprocess.Popen[bytes]] = []
    environment = {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent", "FLEET_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "FLEET_MODEL__PATH": str(ROOT / "tools/demo/models/cartpole"), "FLEET_HTTP__PORT": "0",
        "FLEET_KAFKA__CONNECT_TIMEOUT_S": "60", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip

    def start(*arguments: str) -> tuple[subprocess.Popen[bytes], int, Path]:
        command = [*SANDBOX, "sh", "-ec", READ_ONLY, "sh", *USER, *FLEET, *arguments]
        said = tmp_path / "said"
        with said.open("wb") as log:
            sandbox = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        started.append(sandbox)
        return sandbox, _child(sandbox.pid), said

    yield start
    for sandbox in started:
        sandbox.kill()
        sandbox.wait()


def _child(pid: int) -> int:
    end_s = time.monotonic() + 10
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return int(children[0])


def _await(sandbox: subprocess.Popen[bytes], said: Path, text: bytes) -> None:
    end_s = time.monotonic() + 60
    while text not in said.read_bytes():
        assert sandbox.poll() is None and time.monotonic() < end_s, said.read_text()
        time.sleep(0.05)


def test_a_worker_needs_no_home_and_nothing_writable(contained: Callable[..., Any]) -> None:
    """As process 1 of any user on a read-only root: settings from the environment, JSON logs, an end on SIGTERM."""
    sandbox, worker, said = contained("worker")
    _await(sandbox, said, b'"warm"')
    os.kill(worker, signal.SIGTERM)
    code = sandbox.wait(30)
    lines = said.read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert events[:2] == ["starting", "warm"] and "signal" in events, lines
    assert code in (0, 3), lines


def test_process_1_heeds_sigterm_while_it_loads(contained: Callable[..., Any]) -> None:
    """The kernel would drop it: a pod that goes again at once would serve on until it is killed."""
    sandbox, worker, said = contained("worker")
    end_s = time.monotonic() + 30
    while not int(_status(worker, "SigCgt"), 16) & 1 << (signal.SIGTERM - 1):
        assert sandbox.poll() is None and time.monotonic() < end_s, said.read_text()
        time.sleep(0.001)
    os.kill(worker, signal.SIGTERM)
    assert sandbox.wait(10) == 128 + signal.SIGTERM
    assert b'"warm"' not in said.read_bytes()


def _status(pid: int, key: str) -> str:
    return re.search(rf"^{key}:\s*(\S+)$", Path(f"/proc/{pid}/status").read_text(), re.M)[1]  # type: ignore[index]

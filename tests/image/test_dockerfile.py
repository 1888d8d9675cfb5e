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
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCKED = (ROOT / "docker" / "requirements.txt").read_text()


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
    assert "9464/livez" in command[2]
    compile(command[2], "health", "exec")


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    """.dockerignore lets through exactly that."""
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignore if line.startswith("!")}
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    assert all((ROOT / source).exists() for source in copied)
    assert all(source in kept or source.split("/")[0] in kept for source in copied)


def test_bases_are_pinned_and_labelled() -> None:
    """By a tag at least; no `latest`, no ADD from afar, no sudo."""
    text = DOCKERFILE.lower()
    assert ":latest" not in text and "\nadd " not in text and "sudo" not in text and "curl" not in text
    assert "org.opencontainers.image.licenses" in DOCKERFILE


def test_every_requirement_is_locked_by_hash_and_without_an_address() -> None:
    """In a version that the project takes; torch is the builder's choice."""
    assert "http" not in LOCKED
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$", LOCKED, re.M))
    assert len(locked) == len([line for line in LOCKED.splitlines() if not line.startswith("#")])
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        wanted = Requirement(text)
        if wanted.name != "torch":
            assert Version(locked[canonicalize_name(wanted.name)]) in wanted.specifier, text


def test_a_worker_runs_without_a_home_and_a_writable_folder(tmp_path: Path) -> None:
    """As process of any user: it reads its settings from the environment, logs JSON, and ends on SIGTERM."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become somebody else")
    environment = {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent", "FLEET_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "FLEET_MODEL__PATH": str(ROOT / "tools/demo/models/cartpole"), "FLEET_HTTP__PORT": "0",
        "FLEET_KAFKA__CONNECT_TIMEOUT_S": "60", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    (tmp_path / "empty").mkdir(mode=0o555)
    # Somebody else who may read everything, as in the image; the tests' Python may lie in root's home.
    user = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups"]
    user += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    command = [*user, sys.executable, "-c", "from tools.cli import main; main()", "worker"]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, env=environment, cwd=tmp_path / "empty", stdout=log, stderr=log)
    try:
        end_s = time.monotonic() + 60
        while b'"warm"' not in (tmp_path / "log").read_bytes():
            assert worker.poll() is None and time.monotonic() < end_s, (tmp_path / "log").read_text()
            time.sleep(0.1)
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(30)
    finally:
        worker.kill()
    lines = (tmp_path / "log").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert events[:2] == ["starting", "warm"], lines
    assert code in (0, 3), lines

"""Downloads jars through jgo (Maven in Python, with the repositories that the user has configured for it).

Each jar lands in a folder of its own, is checked against the lock and only then moved to where the broker takes
it from: neither a download that is cut short nor a repository that serves other bytes leaves a wrong jar behind.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.broker.errors import DiskFull, JarsUnavailable
from tools.broker.jars import Jar

CONNECTIONS = 4
TRIES = 3
Advance = Callable[[int], None]
"""Called with the number of bytes that have come in since the last call, from several threads."""


def fetch(jars: Sequence[Jar], folder: Path, advance: Advance) -> None:
    """Put `jars` into `folder`, each with the bytes that the lock promises.

    Raises:
        JarsUnavailable: the repository cannot be reached, lacks a jar, or serves other bytes.
        DiskFull: no space left for them.
    """
    logging.getLogger("jgo").setLevel(logging.CRITICAL)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=".download-") as incoming,
            ThreadPoolExecutor(CONNECTIONS) as pool,
        ):
            context = _maven(Path(incoming), advance)
            fetched = [pool.submit(_fetch_one, context, jar, folder, advance) for jar in jars]
            try:
                for one in fetched:
                    one.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    except OSError as err:
        if isinstance(err, ConnectionError) or not err.errno:
            raise _unavailable(jars[0], err) from err
        raise DiskFull(f"cannot store Kafka's jars in {folder}: {err.strerror}") from err


def _maven(incoming: Path, advance: Advance) -> Any:
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.maven import MavenContext, PythonResolver

    @contextlib.contextmanager
    def counting(_name: str, _size_bytes: int) -> Iterator[Advance]:
        yield advance

    configured = GlobalSettings.load()
    return MavenContext(
        resolver=PythonResolver(progress_callback=counting),
        repo_cache=incoming,
        local_repos=[configured.repo_cache],
        remote_repos={"central": MAVEN_CENTRAL_URL} | configured.repositories,
        timeout=30,
    )


def _fetch_one(maven: Any, jar: Jar, folder: Path, advance: Advance) -> None:
    artifact = maven.project(jar.group, jar.artifact).at_version(jar.version).artifact()
    target = folder / jar.name
    for local in maven.local_repos:
        path = local / artifact.component.path_prefix / jar.name
        if jar.is_at(path):
            _place(path, target, copy=True)
            advance(jar.size_bytes)
            return
    _place(_download(maven, artifact, jar), target)


def _download(maven: Any, artifact: Any, jar: Jar) -> Path:
    problem: Exception | None = None
    for _ in range(TRIES):
        artifact.cached_path.unlink(missing_ok=True)
        try:
            path: Path = maven.resolver.download(artifact)
        except (
            OSError,
            RuntimeError,
            ValueError,
        ) as err:  # requests' errors are OSErrors, jgo's RuntimeErrors
            if getattr(err, "errno", None):
                raise
            problem = err
            continue
        if jar.is_at(path):
            return path
        problem = ValueError(f"its sha256 is not {jar.sha256[:12]}…, which decision-fleet was tested with")
    raise _unavailable(jar, problem)


def _place(path: Path, target: Path, *, copy: bool = False) -> None:
    if not copy:
        path.replace(target)
        return
    part = target.with_suffix(f".part-{threading.get_ident()}")
    shutil.copyfile(path, part)
    part.replace(target)


def _unavailable(jar: Jar, problem: Exception | None) -> JarsUnavailable:
    from requests import ConnectionError, Timeout

    if isinstance(problem, ConnectionError | Timeout):
        reason = "the Maven repository cannot be reached"
    else:
        reason = str(problem).splitlines()[0][:160] if problem else "unknown reason"
    return JarsUnavailable(
        f"cannot fetch {jar.name} of Apache Kafka: {reason}. "
        "The first start needs a connection (or a proxy in HTTPS_PROXY); later ones work offline"
    )

"""Workers' metrics pages: found, fetched side by side, and read back into the worker's own `Snapshot`."""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from topics.errors import SettingsError
from workers.snapshot import Distribution, Labels, Snapshot

WITHIN_S: Final = 2.0
"""A worker that has not answered by then is shown as unreachable; the others do not wait for it."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one worker said, or why it did not. `at_s`: monotonic, when it was asked."""

    address: str
    at_s: float
    snapshot: Snapshot | None
    error: str = ""


def addresses(texts: Sequence[str]) -> list[str]:
    """host:port of every worker, from ports, host:port or URLs; a name with several addresses is all of them.

    Raises:
        SettingsError: one is none of these.
    """
    found: list[str] = []
    for text in (one.strip() for part in texts for one in part.split(",")):
        parts = urlsplit(text if "//" in text else f"//{f'127.0.0.1:{text}' if text.isdecimal() else text}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or not port:
            raise SettingsError(
                f"--metrics is {text!r}, expected a port, host:port or a URL such as http://worker:9464"
            )
        found += [f"{name}:{port}" for name in resolved(host, port)]
    return list(dict.fromkeys(found))


def resolved(host: str, port: int) -> list[str]:
    """The IPv4 addresses of a name, or the name itself where it has one or none."""
    try:
        hosts = sorted(
            {str(found[4][0]) for found in socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)}
        )
    except OSError:
        return [host]
    return hosts if len(hosts) > 1 else [host]


async def fetch_all(workers: Sequence[str]) -> list[Page]:
    """One page of each, in this order; takes `WITHIN_S` at most."""
    return list(await asyncio.gather(*(asyncio.to_thread(fetch, worker) for worker in workers)))


def fetch(worker: str) -> Page:
    """One page. Raises nothing: what went wrong is in it."""
    at_s = time.monotonic()
    try:
        with urllib.request.urlopen(f"http://{worker}/metrics", timeout=WITHIN_S) as answer:
            return Page(worker, at_s, parse(answer.read().decode()))
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return Page(worker, at_s, None, str(getattr(reason, "strerror", None) or reason))


def parse(page: str) -> Snapshot:
    """The page as the worker's own kind of snapshot. Raises ValueError: it is no metrics page."""
    counters: dict[str, dict[Labels, float]] = {}
    gauges: dict[str, dict[Labels, float]] = {}
    distributions: dict[str, dict[Labels, Distribution]] = {}
    for family in text_string_to_metric_families(page):
        if family.type == "histogram":
            distributions[family.name] = _distributions(family.samples)
        elif family.type in ("counter", "gauge"):
            into = counters if family.type == "counter" else gauges
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    into.setdefault(sample.name, {})[_values(sample.labels)] = sample.value
    return Snapshot(counters, gauges, distributions)


def _values(labels: dict[str, str]) -> Labels:
    return tuple(labels[name] for name in sorted(labels) if name != "le")


def _distributions(samples: Sequence[object]) -> dict[Labels, Distribution]:
    cumulative: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    totals: dict[Labels, float] = {}
    for sample in samples:
        name, labels, value = sample.name, sample.labels, sample.value  # type: ignore[attr-defined]
        if name.endswith("_bucket"):
            cumulative[_values(labels)].append((float(labels["le"]), value))
        elif name.endswith("_sum"):
            totals[_values(labels)] = value
    found = {}
    for labels, pairs in cumulative.items():
        counts = np.diff([value for _, value in sorted(pairs)], prepend=0).astype(np.int64)
        found[labels] = Distribution(tuple(bound for bound, _ in sorted(pairs)[:-1]), counts, totals.get(labels, 0.0))
    return found


def since(before: Snapshot | None, after: Snapshot) -> Snapshot:
    """What happened between two snapshots; everything of `after` where the worker has started anew meanwhile."""
    if before is None or _restarted(before, after):
        return after
    counters = {
        name: {labels: value - before.counters.get(name, {}).get(labels, 0.0) for labels, value in series.items()}
        for name, series in after.counters.items()
    }
    distributions = {
        name: {labels: _less(one, before.distributions.get(name, {}).get(labels)) for labels, one in series.items()}
        for name, series in after.distributions.items()
    }
    return Snapshot(counters, after.gauges, distributions)


def _restarted(before: Snapshot, after: Snapshot) -> bool:
    return any(
        value < before.counters.get(name, {}).get(labels, 0.0)
        for name, series in after.counters.items()
        for labels, value in series.items()
    )


def _less(after: Distribution, before: Distribution | None) -> Distribution:
    if before is None or before.bounds != after.bounds:
        return after
    return Distribution(after.bounds, after.counts - before.counts, after.total - before.total)

"""A worker's /metrics over a stretch of time: what a benchmark cannot see from outside."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from workers.settings import Settings

ANSWER_WITHIN_S: Final = 5.0
Key = tuple[str, str]
"""Name of a sample, and its labels as `lane=low`; a histogram's buckets are left out."""


def parsed(page: str) -> dict[Key, float]:
    """The samples of a metrics page."""
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return {
        (sample.name, ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for sample in samples
        if "le" not in sample.labels
    }


def grown(before: dict[Key, float], after: dict[Key, float], name: str) -> float:
    """How much a counter grew, all its labels together."""
    return sum(value - before.get(key, 0.0) for key, value in after.items() if key[0] == name)


async def scrape(settings: Settings) -> dict[Key, float]:
    """What the (first) worker says now.

    Raises:
        OSError: nobody answers.
    """

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{settings.http.port}/metrics", timeout=ANSWER_WITHIN_S) as page:
            return str(page.read().decode())

    return parsed(await asyncio.to_thread(read))

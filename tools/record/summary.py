"""What a run of `fleet record` did, and what the recording holds now: for people and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from tools.record.record import Report
from tools.recording.read import Recording


def line_of(path: Path, report: Report, recording: Recording) -> dict[str, Any]:
    """For programs. Times are ISO 8601 in UTC; `deleted` are offsets [begin, end)."""
    begin, end = _span(recording)
    return {
        "path": str(path),
        "records": report.records,
        "seconds": round(report.seconds, 3),
        "records_per_s": round(_rate(report), 1),
        "lag": report.lag,
        "deleted": [asdict(gone) for gone in report.deleted],
        "offsets_without_record": report.offsets_without_record,
        "left_out": report.left_out,
        "redacted_out": report.redacted_out,
        "recording": {
            "files": len(recording.files),
            "bytes": _bytes(recording),
            "records": sum(recording.counts.values()),
            "begin": begin,
            "end": end,
            "topics": dict(_by_topic(recording)),
        },
    }


def table_of(path: Path, report: Report, recording: Recording) -> Table:
    """For people."""
    run = f"{report.records:,} records in {report.seconds:.1f} s ({_rate(report):,.0f}/s), lag {report.lag:,}"
    table = Table(title=Text(f"{path}: {run}"), title_justify="left", show_header=False)
    for topic, count in sorted(_by_topic(recording).items()):
        table.add_row(Text(topic), f"{count:,} records")
    begin, end = _span(recording)
    files = len(recording.files)
    table.add_row(
        "in all", f"{sum(recording.counts.values()):,} records, {_bytes(recording) / 1e6:,.1f} MB, {files} file(s)"
    )
    if begin is not None:
        table.add_row("from, to", f"{begin} – {end}")
    for what, number in (
        ("left out by the filters", report.left_out),
        ("left out by the redaction", report.redacted_out),
        ("offsets without a record", report.offsets_without_record),
        ("deleted before they were read", sum(gone.end - gone.begin for gone in report.deleted)),
    ):
        if number:
            table.add_row(what, f"{number:,}")
    return table


def _rate(report: Report) -> float:
    return report.records / report.seconds if report.seconds else 0.0


def _by_topic(recording: Recording) -> Counter[str]:
    topics: Counter[str] = Counter()
    for (topic, _), count in recording.counts.items():
        topics[topic] += count
    return topics


def _bytes(recording: Recording) -> int:
    return sum(file.stat().st_size for file in recording.files)


def _span(recording: Recording) -> tuple[str | None, str | None]:
    if recording.span_us is None:
        return None, None
    begin, end = (datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds") for us in recording.span_us)
    return begin, end

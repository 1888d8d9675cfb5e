"""What a run of `fleet record` did, and what the recording holds now: for people and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from tools.record.record import Report
from tools.recording.about import utc
from tools.recording.read import Recording


def line_of(report: Report, recording: Recording) -> dict[str, Any]:
    """For programs. Times are ISO 8601 in UTC; `deleted` are offsets [begin, end)."""
    begin, end = _span(recording)
    return {
        "path": str(recording.path),
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


def table_of(report: Report, recording: Recording) -> Table:
    """For people: what the run did, then what the recording holds."""
    run = f"{report.records:,} records in {report.seconds:.1f} s ({_rate(report):,.0f}/s), lag {report.lag:,}"
    table = Table(title=Text(f"{recording.path}: {run}"), title_justify="left", show_header=False)
    for what, number in (
        ("left out by the filters", report.left_out),
        ("left out by the redaction", report.redacted_out),
        ("offsets without a record", report.offsets_without_record),
        ("deleted before they were read", sum(gone.end - gone.begin for gone in report.deleted)),
    ):
        if number:
            table.add_row(what, f"{number:,}")
    table.add_section()
    for topic, count in sorted(_by_topic(recording).items()):
        table.add_row(Text(topic), f"{count:,} records")
    total, files = sum(recording.counts.values()), len(recording.files)
    table.add_row("in all", f"{total:,} records, {_bytes(recording) / 1e6:,.1f} MB in {files} files")
    begin, end = _span(recording)
    if begin is not None:
        table.add_row("from, to", f"{begin}, {end}")
    return table


def _rate(report: Report) -> float:
    return report.records / report.seconds if report.seconds else 0.0


def _by_topic(recording: Recording) -> Counter[str]:
    topics: Counter[str] = Counter()
    for (topic, _), count in recording.counts.items():
        topics[topic] += count
    return topics


def _bytes(recording: Recording) -> int:
    return sum(file.path.stat().st_size for file in recording.files)


def _span(recording: Recording) -> tuple[str | None, str | None]:
    if recording.span_us is None:
        return None, None
    return utc(recording.span_us[0]), utc(recording.span_us[1])

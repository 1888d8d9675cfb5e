"""The page: one HTML file with everything in it, readable on a telephone, in light and in dark. Pure.

Agents' IDs, settings and texts come from anywhere: everything is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tools.plots import bar_chart, line_chart
from tools.recording.about import utc
from tools.report.gather import BINS, Gathered, LaneTimes, Numbers

LANES: Final = ("high", "normal", "low")
MOST_CHARACTERS: Final = 200
"""Of a setting that people read: the recorder's own notes are longer."""
EDGES_MS: Final = np.geomspace(0.1, 10_000, 41)

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6676; --page: #f6f7f9; --card: #ffffff; --line: #dde2e9;
  --good: #1d7f46; --bad: #b8321f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7ebf1; --soft: #9aa6b6; --page: #12161d; --card: #1b212b;
  --line: #303a48; --good: #53c987; --bad: #ff8a72; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1rem; background: var(--page); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; }
h1 { font-size: 1.5rem; margin: .2rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
p { margin: .3rem 0; color: var(--soft); }
.tiles, .cards { display: grid; gap: .8rem; margin-top: 1rem; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.cards { grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem;
  min-width: 0; }
.tile b { display: block; font-size: 1.35rem; } .tile span { color: var(--soft); font-size: .85rem; }
.good b { color: var(--good); } .bad b { color: var(--bad); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere;
  min-width: 7.5rem; }
th { color: var(--soft); font-weight: 600; } svg { width: 100%; height: auto; display: block; }
"""


def page(info: Mapping[str, Any], found: Gathered, diff: Mapping[str, Any] | None = None) -> str:
    """`info` as of `fleet recording info`, `diff` as of `fleet diff`, both as figures."""
    cards = [*_traffic(found), *_latency(found), *_batches(found), _outcomes(found), _agents(found)]
    if diff is not None:
        cards += _agreement(diff)
    cards += [_facts("settings", info["settings"]), _facts("versions", info["versions"])]
    title = f"fleet {info['fleet']}"
    when = f"{info['begin']} to {info['end']} ({info['seconds']:,.1f} s)" if info["begin"] else "no records"
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(title)}</h1><p>{escape(when)}</p>{_notes(info)}"
        f"<section class=tiles>{''.join(_tiles(info, found, diff))}</section>"
        f"<section class=cards>{''.join(cards)}</section></main></body></html>\n"
    )


def _notes(info: Mapping[str, Any]) -> str:
    notes = [f"only {info['filters']}"] if info["filters"] else []
    notes += [] if info["complete"] else ["its recorder was killed: what it had not written yet is missing"]
    notes += [
        f"gap: {gap['topic']} partition {gap['partition']}, offsets {gap['begin']} to {gap['end'] - 1}: {gap['why']}"
        for gap in info["gaps"]
    ]
    return "".join(f"<p>{escape(note)}</p>" for note in notes)


def _tiles(info: Mapping[str, Any], found: Gathered, diff: Mapping[str, Any] | None) -> list[str]:
    states = sum(sum(seconds.values()) for seconds in found.sent_per_s.values())
    answers = sum(found.outcomes.values())
    peak = max((sum(part) for part in _per_second(found)), default=0)
    tiles = [
        _tile(f"{states:,}", "states"),
        _tile(f"{answers:,}", "answers"),
        _tile(f"{found.unanswered:,}", "states without an answer here", "bad" if found.unanswered else "good"),
        _tile(f"{found.agent_count:,}", "agents"),
        _tile(f"{peak:,}", "states in the busiest second"),
    ]
    for lane, times in _lanes(found):
        if len(times.away):
            tiles.append(_tile(f"{np.percentile(times.away, 99):,.0f} ms", f"p99 of {lane}, state to answer"))
    if diff is not None and diff["agreement"] is not None:
        tiles.append(
            _tile(f"{diff['agreement']:.3%}", "of the answers agree", "good" if diff["agreement"] == 1 else "")
        )
    return tiles


def _per_second(found: Gathered) -> list[list[int]]:
    seconds = sorted({second for counted in found.sent_per_s.values() for second in counted})
    return [[counted[second] for counted in found.sent_per_s.values()] for second in seconds]


def _lanes(found: Gathered) -> list[tuple[str, LaneTimes]]:
    return [(lane, found.lanes[lane]) for lane in sorted(found.lanes, key=_rank)]


def _rank(lane: str) -> int:
    return LANES.index(lane) if lane in LANES else len(LANES)


def _traffic(found: Gathered) -> list[str]:
    seconds = [second for counted in found.sent_per_s.values() for second in counted]
    if not seconds:
        return []
    begin, end = min(seconds), max(seconds) + 1
    width = -(-(end - begin) // BINS)
    series = {}
    for topic, counted in found.sent_per_s.items():
        if counted:
            starts = range(begin, end, width)
            sums = [sum(counted[second] for second in range(start, start + width)) for start in starts]
            series[topic.rpartition(".")[2]] = [
                (start - begin, n / width) for start, n in zip(starts, sums, strict=True)
            ]
    chart = line_chart(series, title="", x_label=f"s since {utc(begin * 1_000_000)}", y_label="states/s")
    return [_card("traffic", _svg(chart))]


def _latency(found: Gathered) -> list[str]:
    cards = []
    rows = []
    for lane, times in _lanes(found):
        for stage, values in _stages(times).items():
            if len(values):
                shown = [f"{value:,.2f}" for value in (*np.percentile(values, (50, 95, 99)), values.max())]
                rows.append([f"{lane}: {stage}", *shown])
    if rows:
        cards.append(_card("ms by lane and stage", _table(["", "p50", "p95", "p99", "max"], rows)))
    for stage in STAGES:
        series = {lane: _shares(_stages(times)[stage]) for lane, times in _lanes(found)}
        series = {lane: points for lane, points in series.items() if points}
        if series:
            chart = line_chart(series, title="", x_label="ms", y_label="% of the answers", log_x=True)
            cards.append(_card(f"distribution: {stage}", _svg(chart)))
    over = {lane: _p99_over_time(times, _first_ms(found)) for lane, times in _lanes(found)}
    over = {lane: points for lane, points in over.items() if points}
    if over:
        chart = line_chart(over, title="", x_label="s since the first answer", y_label="p99 in ms")
        cards.append(_card("p99 from state to answer, over time", _svg(chart)))
    return cards


STAGES: Final = ("state to answer", "wait in the lane", "forward pass")


def _stages(times: LaneTimes) -> dict[str, Numbers]:
    """ms by stage. Kafka's times have ms, the worker's µs."""
    wait, run = np.asarray(times.wait_us, np.float64) / 1000, np.asarray(times.predict_us, np.float64) / 1000
    return dict(zip(STAGES, (times.away, wait, run), strict=True))


def _shares(values: Numbers) -> list[tuple[float, float]]:
    """% of the values in each range of `EDGES_MS`, by its middle; empty ranges at the ends are left out."""
    if not len(values):
        return []
    counts, _ = np.histogram(np.clip(values, EDGES_MS[0], EDGES_MS[-1]), EDGES_MS)
    middles, used = np.sqrt(EDGES_MS[1:] * EDGES_MS[:-1]), np.flatnonzero(counts)
    inside = range(max(0, used[0] - 1), min(len(counts), used[-1] + 2))
    return [(float(middles[at]), float(counts[at]) / len(values) * 100) for at in inside]


def _first_ms(found: Gathered) -> int:
    return min((min(times.at_ms) for times in found.lanes.values() if times.at_ms), default=0)


def _p99_over_time(times: LaneTimes, first_ms: int) -> list[tuple[float, float]]:
    away, at = np.asarray(times.away_ms, np.float64), np.asarray(times.at_ms, np.float64) - first_ms
    at, away = at[away >= 0], away[away >= 0]
    if not len(at):
        return []
    width = max(1000.0, (at.max() + 1) / BINS)
    bins = (at // width).astype(int)
    return [(float(one * width / 1000), float(np.percentile(away[bins == one], 99))) for one in np.unique(bins)]


def _batches(found: Gathered) -> list[str]:
    sizes = [np.asarray(times.batch_size) for times in found.lanes.values()]
    if not sizes:
        return []
    joined = np.concatenate(sizes)
    largest = int(joined.max())
    edges = [1, *(2**power + 1 for power in range(max(1, int(np.ceil(np.log2(max(largest, 2))))))), largest + 1]
    edges = sorted({edge for edge in edges if edge <= largest + 1})
    counts, _ = np.histogram(joined, edges)
    labels = [f"{low}–{high - 1}" if high - low > 1 else f"{low}" for low, high in pairwise(edges)]
    shares = {label: float(n) / len(joined) * 100 for label, n in zip(labels, counts, strict=True)}
    chart = bar_chart(shares, title="", x_label="% of the answers", y_label="rows in their batch")
    # Of answers, not of batches: a batch of 64 counts 64 times.
    mean = len(joined) / float((1 / joined).sum())
    return [_card(f"batches: {mean:.1f} rows in the mean, {largest} at most", _svg(chart))]


def _outcomes(found: Gathered) -> str:
    outcomes = sorted({outcome for _, outcome in found.outcomes})
    lanes = sorted({lane for lane, _ in found.outcomes}, key=_rank)
    rows = [[lane or "–", *(f"{found.outcomes[lane, outcome]:,}" for outcome in outcomes)] for lane in lanes]
    models = f"<p>models: {escape(', '.join(sorted(found.models)) or 'none')}</p>"
    second = f"<p>second answers to one state, left out: {found.repeated:,}</p>" if found.repeated else ""
    return _card("outcomes", _table(["lane", *outcomes], rows) + models + second)


def _agents(found: Gathered) -> str:
    rows = [
        [
            row.agent.decode(errors="backslashreplace"),
            f"{row.answers:,}",
            f"{row.refused:,}",
            f"{row.unanswered:,}",
            f"{row.worst_ms:,}" if row.worst_ms >= 0 else "–",
        ]
        for row in found.agents.values()
    ]
    head = ["agent", "answers", "no action", "unanswered", "worst ms"]
    return _card("agents that fared worst", _table(head, rows))


def _agreement(diff: Mapping[str, Any]) -> list[str]:
    rows = [[one["agent"], f"{one['agreement']:.3%}", f"{one['pairs']:,}"] for one in diff["agents"][:15]]
    rows_first = [[one["agent"], str(one["seq"]), one["why"]] for one in diff["first_divergences"][:15]]
    numbers = [
        ["answers", f"{diff['answers']:,}"],
        ["agreeing", f"{diff['agreeing']:,}"],
        ["missing", f"{diff['missing']:,}"],
        ["extra", f"{diff['extra']:,}"],
        *([f"{one['from']} became {one['to']}", f"{one['count']:,}"] for one in diff["outcome_changes"]),
        *(
            [f"largest difference of {name}", f"{spread['max']:.4g}"]
            for name, spread in diff["distances"].items()
            if spread["max"] is not None
        ),
    ]
    cards = [_card(f"agreement with {diff['other']}", _table(["", ""], numbers))]
    points = [(float(at), (one["agreement"] or 0.0) * 100) for at, one in enumerate(diff["over_time"])]
    if len(points) > 1:
        chart = line_chart({"": points}, title="", x_label="stretch of time", y_label="% agree")
        cards.append(_card("agreement over time", _svg(chart)))
    if rows:
        cards.append(_card("agents that differ most", _table(["agent", "agree", "pairs"], rows)))
    if rows_first:
        cards.append(_card("where agents first differ", _table(["agent", "seq", "what"], rows_first)))
    return cards


def _facts(title: str, facts: Mapping[str, str]) -> str:
    rows = [[name, value] for name, value in sorted(facts.items()) if len(value) <= MOST_CHARACTERS]
    return _card(title, _table(["", ""], rows)) if rows else ""


def _tile(value: str, label: str, kind: str = "") -> str:
    return f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(label)}</span></div>'


def _card(title: str, inner: str) -> str:
    return f"<div class=card><h2>{escape(title)}</h2>{inner}</div>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{top}</tr>{body}</table></div>" if rows else "<p>none</p>"


def _svg(text: str) -> str:
    return text[text.index("<svg") :]

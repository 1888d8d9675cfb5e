"""A comparison for people, and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tools.diff.answers import Step
from tools.diff.compare import Comparison, Share, over_time
from tools.diff.spread import Spread
from tools.recording.about import utc

SHOWN: Final = 10
"""Agents and states that a person sees of each list."""
BARS: Final = " ▁▂▃▄▅▆▇█"


def figures(found: Comparison, sides: tuple[str, str]) -> dict[str, Any]:
    """Everything as plain values. Times in ISO 8601, UTC."""
    return {
        "reference": sides[0],
        "other": sides[1],
        "agreement": found.agreement,
        "answers": found.all.pairs + found.missing_count,
        "pairs": found.all.pairs,
        "agreeing": found.all.agreeing,
        "missing": found.missing_count,
        "extra": found.extra_count,
        "repeated": list(found.repeated),
        "models": [sorted(models) for models in found.models],
        "outcome_changes": [
            {"from": wanted, "to": given, "count": n} for (wanted, given), n in found.outcomes.most_common()
        ],
        "distances": {name: _spread(values) for name, values in found.distances.items()},
        "lanes": {lane: _share(share) for lane, share in sorted(found.lanes.items())},
        "agents": [{"agent": _text(agent), **_share(share)} for agent, share in found.worst_agents(len(found.agents))],
        "over_time": [{"from": utc(second * 1_000_000), **_share(share)} for second, share in over_time(found.seconds)],
        "first_divergences": [
            {**_step(one.step), "at": utc(one.at_ms * 1000), "why": one.why}
            for one in found.first_divergences(len(found.first))
        ],
        "missing_states": [_step(step) for step in found.missing],
        "extra_states": [_step(step) for step in found.extra],
        "times": [
            {
                lane: {
                    "wait_us": _spread(times.wait_us),
                    "predict_us": _spread(times.predict_us),
                    "batch_size": _spread(times.batch_size),
                    "away_ms": _spread(times.away_ms),
                }
                for lane, times in sorted(lanes.items())
            }
            for lanes in found.times
        ],
    }


def sheet(found: Mapping[str, Any]) -> RenderableType:
    """`figures`, for people."""
    parts: list[RenderableType] = [_head(found)]
    rows: list[tuple[str, ...]]
    if found["outcome_changes"]:
        rows = [(f"{one['from']} became {one['to']}", f"{one['count']:,}") for one in found["outcome_changes"]]
        parts.append(_table("outcomes that changed", ("", "answers"), rows))
    if found["distances"]:
        rows = [
            (name, *(_number(spread[key]) for key in ("p50", "p99", "max")))
            for name, spread in found["distances"].items()
        ]
        parts.append(_table("largest difference within an output", ("", "p50", "p99", "max"), rows))
    if len(found["lanes"]) > 1:
        rows = [(lane or "–", _percent(one), f"{one['pairs']:,}") for lane, one in found["lanes"].items()]
        parts.append(_table("lanes", ("", "agree", "pairs"), rows))
    if found["agents"]:
        rows = [(one["agent"], _percent(one), f"{one['pairs']:,}") for one in found["agents"][:SHOWN]]
        parts.append(_table(_first_of("agents that differ most", found["agents"]), ("", "agree", "pairs"), rows))
    if found["first_divergences"]:
        rows = [(one["agent"], str(one["seq"]), one["at"], one["why"]) for one in found["first_divergences"][:SHOWN]]
        title = _first_of("where agents first differ", found["first_divergences"])
        parts.append(_table(title, ("agent", "seq", "at", "what"), rows, left=4))
    if any(one["pairs"] != one["agreeing"] for one in found["over_time"]):
        sparks = "".join(BARS[int((one["agreement"] or 0) * 8)] for one in found["over_time"])
        parts.append(Text(f"\nagreement over time  {sparks}"))
    for what in ("missing", "extra"):
        names = ", ".join(f"{one['agent']} seq {one['seq']}" for one in found[f"{what}_states"][:SHOWN])
        if names:
            more = " …" if found[what] > SHOWN else ""
            parts.append(Text(f"\n{what}: {names}{more}"))
    parts.append(_times(found["times"]))
    return Group(*parts)


def _head(found: Mapping[str, Any]) -> Text:
    agreement = found["agreement"]
    text = Text()
    text.append("no answers" if agreement is None else f"{agreement:.4%} agree", style="bold")
    text.append(f": {found['agreeing']:,} of {found['answers']:,} answers of {found['reference']}")
    text.append(f"\nmissing {found['missing']:,}, extra {found['extra']:,} in {found['other']}")
    if any(found["repeated"]):
        text.append(f"; second answers left out: {found['repeated'][0]:,} and {found['repeated'][1]:,}")
    first, second = (", ".join(models) or "no model" for models in found["models"])
    text.append(f"\nmodels: {first} | {second}")
    return text


def _times(sides: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, title="\ntimes, reference | other", title_justify="left")
    for at, title in enumerate(("lane", "away ms p50", "p99", "wait ms p50", "p99", "pass ms p50", "rows")):
        table.add_column(title, justify="right" if at else "left")
    for lane in sorted({*sides[0], *sides[1]}):
        both = [side.get(lane) for side in sides]
        cells = []
        for key, of, divisor in (
            ("away_ms", "p50", 1),
            ("away_ms", "p99", 1),
            ("wait_us", "p50", 1000),
            ("wait_us", "p99", 1000),
            ("predict_us", "p50", 1000),
            ("batch_size", "mean", 1),
        ):
            values = [None if one is None or one[key][of] is None else one[key][of] / divisor for one in both]
            cells.append(" | ".join(map(_number, values)))
        table.add_row(lane or "–", *cells)
    return table


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], left: int = 1) -> Table:
    table = Table(box=None, pad_edge=False, title=f"\n{title}", title_justify="left")
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _first_of(title: str, rows: list[Any]) -> str:
    return f"{title} ({SHOWN} of {len(rows):,})" if len(rows) > SHOWN else title


def _spread(values: Spread) -> dict[str, float | None]:
    p50, p99 = values.percentile(50), values.percentile(99)
    return {"n": values.n, "mean": values.mean, "p50": p50, "p99": p99, "max": values.max}


def _share(share: Share) -> dict[str, Any]:
    return {"pairs": share.pairs, "agreeing": share.agreeing, "agreement": share.agreement}


def _step(step: Step) -> dict[str, Any]:
    return {"agent": _text(step.agent), "seq": step.seq, "occurrence": step.k}


def _text(agent: bytes) -> str:
    return agent.decode(errors="backslashreplace")


def _percent(share: Mapping[str, Any]) -> str:
    return "–" if share["agreement"] is None else f"{share['agreement']:.3%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"

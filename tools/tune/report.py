"""What was found, for people: tables and bars on the terminal, a chart as SVG; and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tools.bench.stats import rounded
from tools.tune.fleet import Fleet, Outcome
from tools.tune.live import Measured
from tools.tune.search import Found
from topics.names import Lane

SHOWN: Final = 10
"""Rows of the trade-off table; the rest is in the JSON."""
BAR: Final = 40
"""Characters up to the target."""
PAST: Final = 1.5
"""Bars end at this many times the target."""
LEFT_OUT: Final = (
    "the simulation runs the worker's own lanes and schedule; fetching, decoding, encoding and the event loop's time "
    "are only in the round trip, which is added to each state's wait as if the two had nothing to do with each other"
)


def as_dict(fleet: Fleet, found: Found, measured: Measured | None) -> dict[str, Any]:
    """Everything as plain values."""
    trip, lanes = fleet.trip, list(fleet.target.rate_per_s)
    plain: dict[str, Any] = {
        "target": asdict(fleet.target),
        "traffic": fleet.traffic.about,
        "batch_us": fleet.curve.batch_us,
        "jitter": fleet.curve.jitter,
        "round_trip": {
            "measured": trip.measured,
            "cpu_us": trip.cpu_us,
            "rate_per_s": trip.rate_per_s if trip.measured else None,
            "p50_ms": {lane: trip.p50_ms(lane) for lane in lanes},
            "p99_ms": {lane: trip.p99_ms(lane) for lane in lanes},
        },
        "recommended": asdict(found.best),
        "as_set": asdict(found.now) if found.now else None,
        "sizes": [asdict(outcome) for outcome in found.sizes],
        "nearby": [asdict(outcome) for outcome in found.nearby],
        "by_rate": [{"rate_per_s": rate, "p99_ms": outcome.p99_ms} for rate, outcome in found.by_rate],
        "left_out": LEFT_OUT,
    }
    if measured is not None:
        plain["check"] = {
            "p50_ms": {lane: measured.p50_ms(lane) for lane in measured.ms},
            "p99_ms": {lane: measured.p99_ms(lane) for lane in measured.ms},
            "unanswered": measured.unanswered,
            "cpu_us": measured.cpu_us,
            "sent_late_p99_ms": measured.sent_late_p99_ms,
            "met": met(fleet, found, measured),
        }
    values: dict[str, Any] = rounded(plain)
    return values


def met(fleet: Fleet, found: Found, measured: Measured | None) -> bool:
    """Whether every lane kept its limit and every state was answered; without a check, whether that is predicted."""
    if measured is None:
        return found.best.strain <= 1
    p99_ms = {lane: measured.p99_ms(lane) for lane in fleet.target.p99_ms}
    return not measured.unanswered and fleet.target.strain(p99_ms) <= 1


def show_found(console: Console, fleet: Fleet, found: Found) -> None:
    """The tables and the bars."""
    console.print(f"\n[bold]{fleet.traffic.about}[/bold]: " + ", ".join(_wanted(fleet)))
    times = ", ".join(f"{rows}: {us / 1000:.3g}" for rows, us in fleet.curve.batch_us.items())
    console.print(f"a batch takes, ms by rows: {times}; ± {fleet.curve.jitter:.0%}")
    console.print(_round_trip(fleet))
    if found.sizes:
        _show_search(console, fleet, found)
    title = "Recommended, looked at with more states" if found.sizes else "As set, one worker"
    console.print(_outcomes(f"\n{title}", [("→", found.best)], fleet))
    for lane, limit_ms in fleet.target.p99_ms.items():
        console.print(f"\np99 of {lane} by states/s of all lanes; ┃ is the target, {limit_ms:g} ms")
        for line in bars([(rate, outcome.p99_ms[lane]) for rate, outcome in found.by_rate], limit_ms):
            console.print(line, highlight=False)
    console.print(f"\n[dim]{LEFT_OUT}[/dim]")


def _show_search(console: Console, fleet: Fleet, found: Found) -> None:
    sizes = [("as set", found.now)] if found.now else []
    sizes += [("", outcome) for outcome in found.sizes]
    console.print(_outcomes("\nHow many predictors: the best of each size that was tried", sizes, fleet))
    if found.now is None:
        console.print("as set, one worker would fall ever further behind")
    nearby = [("", outcome) for outcome in _different(found.nearby)[:SHOWN]]
    console.print(_outcomes("\nOther batches in a fleet of that size", nearby, fleet))


def _different(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Without those that come to the same as one before: batches that never fill."""
    return list({tuple(outcome.p99_ms.values()): outcome for outcome in reversed(outcomes)}.values())[::-1]


def _wanted(fleet: Fleet) -> Iterator[str]:
    for lane, rate in fleet.target.rate_per_s.items():
        limit_ms = fleet.target.p99_ms.get(lane)
        yield f"{lane} {rate:,.6g}/s" + (f" within {limit_ms:g} ms" if limit_ms else "")


def _round_trip(fleet: Fleet) -> str:
    trip = fleet.trip
    if not trip.measured:
        return f"a round trip without a model takes {trip.p50_ms('normal'):g} ms, as you say"
    lanes = ", ".join(f"{lane} {trip.p50_ms(lane):.3g}/{trip.p99_ms(lane):.3g}" for lane in fleet.target.rate_per_s)
    few = f", at {trip.rate_per_s:,.0f}/s only" if trip.rate_per_s < fleet.target.total_per_s * 0.99 else ""
    return f"a round trip without a model takes, p50/p99 in ms: {lanes}; {trip.cpu_us:.3g} µs of the worker's CPU{few}"


def _outcomes(title: str, rows: Sequence[tuple[str, Outcome]], fleet: Fleet) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    lanes = list(fleet.target.rate_per_s)
    headings = ["", "workers ×\npredictors", "max\nbatch", "max wait\nms", *(f"{lane}\np99 ms" for lane in lanes)]
    for heading in [*headings, "\nbusy", "\nrows"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, outcome in rows:
        ours = outcome.candidate
        settings = (f"{ours.workers} × {ours.predictors}", f"{ours.max_batch}", f"{ours.max_wait_ms:g}")
        p99 = [_against(outcome.p99_ms.get(lane), fleet.target.p99_ms.get(lane)) for lane in lanes]
        table.add_row(name, *settings, *p99, f"{outcome.busy:.0%}", f"{outcome.rows:.1f}")
    return table


def _against(ms: float | None, limit_ms: float | None) -> str:
    """A p99, in colour where it has a limit."""
    if ms is None:
        return "–"
    if limit_ms is None:
        return _ms(ms)
    return f"[{'green' if ms <= limit_ms else 'red'}]{_ms(ms)}[/]"


def _ms(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def bars(points: Sequence[tuple[float, float]], limit_ms: float) -> Iterator[str]:
    """A line for each rate: a bar as long as its p99, and where the target lies."""
    for rate, ms in points:
        length = round(min(ms / limit_ms, PAST) * BAR)
        bar = "█" * length if ms <= PAST * limit_ms else "█" * (length - 1) + "▶"
        drawn = bar[:BAR].ljust(BAR) + "┃" + bar[BAR:].ljust(round((PAST - 1) * BAR))
        yield f"{rate:>9,.0f}/s {drawn} {_ms(ms)} ms"


def svg(fleet: Fleet, found: Found) -> str:
    """p99 by rate of every lane, and the targets."""
    from tools.plots import line_chart  # matplotlib takes a while, and is an extra

    series: dict[str, list[tuple[float, float]]] = {}
    for lane in fleet.target.rate_per_s:
        points = [(rate, outcome.p99_ms[lane]) for rate, outcome in found.by_rate if lane in outcome.p99_ms]
        series[lane] = points
    first, last = found.by_rate[0][0], found.by_rate[-1][0]
    for lane, limit_ms in fleet.target.p99_ms.items():
        series[f"target of {lane}"] = [(first, limit_ms), (last, limit_ms)]
    ours = found.best.candidate
    title = f"{ours.workers} workers of {ours.predictors} predictors, max_batch {ours.max_batch}"
    return line_chart(series, title=title, x_label="states/s", y_label="p99, ms", log_y=True)


def show_check(console: Console, fleet: Fleet, found: Found, measured: Measured) -> None:
    """Predicted beside measured, and what it comes to."""
    table = Table(box=None, pad_edge=False, title="\nFor real", title_justify="left")
    for heading in ("lane", "states", "p50 ms", "predicted", "p99 ms", "predicted", "target"):
        table.add_column(heading, justify="right")
    for lane, ms in measured.ms.items():
        limit_ms = fleet.target.p99_ms.get(lane)
        p50 = (_ms(measured.p50_ms(lane)), _predicted(found.best.p50_ms, lane))
        p99 = (_against(measured.p99_ms(lane), limit_ms), _predicted(found.best.p99_ms, lane))
        table.add_row(lane, f"{len(ms):,}", *p50, *p99, f"{limit_ms:g}" if limit_ms else "–")
    console.print(table)
    console.print(
        f"{measured.unanswered} unanswered; {measured.cpu_us:.3g} µs of the workers' CPU per decision; "
        f"the client sent 1 % of its states {measured.sent_late_p99_ms:.2g} ms late or later"
    )
    console.print("[green]the target is met[/]" if met(fleet, found, measured) else "[red]the target is missed[/]")


def _predicted(ms: Mapping[Lane, float], lane: Lane) -> str:
    return _ms(ms[lane]) if lane in ms else "–"

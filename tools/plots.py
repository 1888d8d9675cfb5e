"""Plots as SVG text, for documents and reports: readable on white and on black, the same bytes for the same figures.

Takes numbers, gives text. matplotlib draws; it comes with the extra `plots` and is imported when a plot is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from topics.errors import FleetError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = ("#2a7fd4", "#d9632a", "#2f9e58", "#b04ec2", "#a38410", "#2aa5a5")
"""Told apart by most colour-blind people, and with contrast on white and on near black."""
INK: Final = "#010203"
"""Stands for the text's colour while matplotlib draws."""
SIZE_INCHES: Final = (5.2, 3.1)
"""Scaled to the width of a telephone, letters are still 10 pixels high."""


class PlotsMissing(FleetError):
    """matplotlib is not installed."""


def line_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """A line for each series of (x, y), with a legend where there are several."""

    def draw(axes: Axes) -> None:
        for colour, (name, points) in zip(_colours(len(series)), series.items(), strict=True):
            marker = "o" if len(points) < 30 else ""
            axes.plot(*_columns(points), color=colour, label=name, linewidth=1.6, marker=marker, markersize=4)
        if log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
        if log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)

    return _drawn(draw, title, x_label, y_label, legend=len(series) > 1)


def bar_chart(
    bars: Mapping[str, float],
    *,
    title: str,
    x_label: str,
    y_label: str,
    goal: float | None = None,
    spread: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """A horizontal bar for each name, the first on top; `goal`: a line to reach; `spread`: lowest and highest."""

    def draw(axes: Axes) -> None:
        names = list(bars)
        drawn = axes.barh(names, [bars[name] for name in names], color=COLOURS[0], height=0.6)
        if spread is None:
            axes.bar_label(drawn, fmt="%.3g", padding=3)
        else:
            axes.hlines(names, *_columns([spread[name] for name in names]), color=COLOURS[3], linewidth=2.5)
            axes.bar_label(drawn, fmt="%.3g", padding=-3, color="white")
        axes.invert_yaxis()
        if goal is not None:
            axes.axvline(goal, color=COLOURS[1], linewidth=1.4, linestyle="--")

    return _drawn(draw, title, y_label, x_label, legend=False)


def histogram(values: Sequence[float], *, title: str, x_label: str, y_label: str, bins: int = 40) -> str:
    """How often values fall into each of `bins` equal ranges."""

    def draw(axes: Axes) -> None:
        axes.hist(values, bins=bins, color=COLOURS[0])

    return _drawn(draw, title, x_label, y_label, legend=False)


def _drawn(draw: Any, title: str, x_label: str, y_label: str, *, legend: bool) -> str:
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotsMissing(
            "plots need matplotlib, which is not installed: pip install 'decision-fleet[plots]'"
        ) from error
    style: Any = {"svg.hashsalt": "decision-fleet", "svg.fonttype": "none", "font.family": "sans-serif"}
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style |= dict.fromkeys(inks, INK)
    with matplotlib.rc_context(style):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        draw(axes)
        # `$` would begin mathematics, and names come from anywhere.
        axes.set_title(_plain(title), loc="left", fontsize=11)
        axes.set_xlabel(_plain(x_label))
        axes.set_ylabel(_plain(y_label))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            label.set_parse_math(False)
        if legend:
            axes.legend(frameon=False)
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return text.getvalue().replace(INK, "currentColor")


def _plain(text: str) -> str:
    return text.replace("$", r"\$")


def _colours(n: int) -> list[str]:
    return [COLOURS[at % len(COLOURS)] for at in range(n)]


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]

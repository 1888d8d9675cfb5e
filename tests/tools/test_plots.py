"""Plots are well-formed SVG that takes the page's text colour, the same for the same figures."""

from __future__ import annotations

import builtins
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tools.plots import PlotsMissing, bar_chart, histogram, line_chart

SERIES = {"high": [(0.0, 1.0), (1.0, 3.0)], "low $x^2$ <&>": [(0.0, 10.0), (1.0, 2.0)]}


def lines(**more: Any) -> str:
    return line_chart(SERIES, title="p99 <b>", x_label="s", y_label="ms", **more)


@pytest.mark.parametrize(
    "svg",
    [
        lines(),
        lines(log_y=True),
        bar_chart({"a": 1.0, "$b_1": 2.5}, title="t", x_label="x", y_label="y", goal=2),
        histogram([1.0, 2.0, 2.5], title="t", x_label="x", y_label="y"),
    ],
)
def test_a_plot_is_svg_in_the_pages_ink(svg: str) -> None:
    """It parses, has text, and no ink of its own that would vanish on a dark page."""
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and root.attrib["viewBox"]
    assert "currentColor" in svg and "#010203" not in svg and "#000000" not in svg
    assert root.findall(".//{http://www.w3.org/2000/svg}text")


def test_the_same_figures_give_the_same_bytes() -> None:
    """So that a committed plot changes only when its figures do."""
    assert lines() == lines()


def test_names_from_anywhere_are_shown_as_they_are() -> None:
    """Neither mathematics nor markup."""
    assert "low $x^2$ &lt;&amp;&gt;" in lines() and "p99 &lt;b&gt;" in lines()


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no traceback."""
    there = builtins.__import__

    def gone(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return there(name, *rest)

    monkeypatch.setattr(builtins, "__import__", gone)
    with pytest.raises(PlotsMissing, match=r"decision-fleet\[plots\]"):
        lines()

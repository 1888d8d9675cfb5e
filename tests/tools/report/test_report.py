"""The page says what the recording holds, opens in a real browser, and believes nobody's text."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.tools.diff.test_diff import Traffic
from tools.cli import application
from tools.recording.read import Recording
from tools.recording.selection import Selection
from tools.report.gather import gather
from topics.records import Timing

EVIL = "<script>document.title='owned'</script>"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def traffic(tmp_path: Path) -> Traffic:
    """Three agents; one answer missing, one refused, one agent with a name that is markup."""
    traffic = Traffic(tmp_path / "a.mcap")
    for seq in range(40):
        for agent in ("x", "y", EVIL):
            traffic.ask(agent, seq)
            if (agent, seq) != ("x", 39):
                action = None if (agent, seq) == ("y", 3) else np.array(seq)
                traffic.answer(agent, seq, action, lane="high" if agent == "x" else "low", timing=Timing(500, 700, 4))
    return traffic


class Words(HTMLParser):
    """The text of a page, and its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name in ("src", "href") and value and "//" in value for name, value in attrs), (
            "nothing is fetched"
        )


def page_of(traffic: Traffic, *flags: str) -> tuple[Path, Words]:
    """The page of a recording."""
    if not traffic.path.exists():
        traffic.written()
    out = traffic.path.with_suffix(".html")
    words = ["report", str(traffic.path), "--out", str(out), *flags]
    result = CliRunner().invoke(application(words), words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return out, Words(out.read_text())


def test_what_is_gathered_is_what_is_there(traffic: Traffic) -> None:
    """Every state and answer counted once, times from state to answer, the worst agents first."""
    found = gather(traffic.written() and Recording.open(traffic.path), Selection())
    assert sum(sum(counted.values()) for counted in found.sent_per_s.values()) == 120
    assert found.outcomes == {("high", "action"): 39, ("low", "action"): 79, ("low", "expired"): 1}
    assert (found.unanswered, found.agent_count) == (1, 3)
    assert [row.agent for row in found.agents.values()][:2] == [b"x", b"y"]
    assert set(found.lanes["high"].away) == {5.0}
    assert set(found.lanes["high"].batch_size) == {4}


def test_the_page_shows_figures_and_plots(traffic: Traffic) -> None:
    """And fetches nothing."""
    _, words = page_of(traffic)
    text = " ".join(words.text)
    for shown in ("120", "119", "states without an answer here", "agents that fared worst", "fleet demo"):
        assert shown in text
    assert words.tags.count("svg") >= 5 and "script" not in words.tags and "link" not in words.tags


def test_two_recordings_are_compared_on_the_page(traffic: Traffic, tmp_path: Path) -> None:
    """Agreement, and where agents first differ."""
    other = Traffic(tmp_path / "b.mcap", "trial")
    for seq in range(40):
        other.answer("x", seq, np.array(seq if seq < 20 else -1), lane="high")
    other.written()
    _, words = page_of(traffic, "--compare", str(other.path))
    text = " ".join(words.text)
    assert "where agents first differ" in text and "of the answers agree" in text and "action differs by 21" in text


def test_an_empty_recording_has_a_page(tmp_path: Path) -> None:
    """Nothing to show is no error."""
    _, words = page_of(Traffic(tmp_path / "a.mcap"))
    assert "no records" in " ".join(words.text)


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")
@pytest.mark.parametrize("width", [360, 1280])
def test_a_real_browser_shows_it(traffic: Traffic, tmp_path: Path, width: int) -> None:
    """Nothing runs that an agent put into its name, and at a telephone's width nothing is cut off."""
    out, _ = page_of(traffic)
    probe = "<script>document.title=document.title+'|'+document.documentElement.scrollWidth+'|'+innerWidth</script>"
    framed = tmp_path / "probe.html"
    framed.write_text(out.read_text().replace("</body>", probe + "</body>"))
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run(
        [*command, f"--window-size={width},900", "--dump-dom", framed.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    title = shown[shown.index("<title>") + 7 : shown.index("</title>")]
    name, scroll, inner = title.split("|")
    assert name == "fleet demo"
    assert int(scroll) <= int(inner)

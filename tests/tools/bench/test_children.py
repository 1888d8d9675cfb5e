"""Processes under test: started, watched, ended."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tools.bench.children import Child, ChildFailed, last_words

SLEEP = ("-c", "import time; print('up', flush=True); time.sleep(60)")


async def test_a_child_is_gone_after_its_block(tmp_path: Path) -> None:
    """Also when the block raises."""
    with pytest.raises(KeyError), Child("sleeper", SLEEP, {}, tmp_path / "log") as child:
        await child.ready(lambda: "up" in child.log.read_text())
        assert child.cpu_s() >= 0
        raise KeyError
    assert not psutil.pid_exists(child.pid)


async def test_a_child_that_ended_is_named_with_its_last_words(tmp_path: Path) -> None:
    """One line: who, with which code, why, where the rest is."""
    words = ("-c", "import sys; sys.exit('error: model package nowhere: found nothing')")
    with Child("worker", words, {}, tmp_path / "log") as child:
        with pytest.raises(ChildFailed, match=r"the worker ended with code 1: error: model package nowhere") as caught:
            await child.ready(lambda: False)
        assert "\n" not in str(caught.value)


async def test_a_child_that_never_gets_ready_is_not_waited_for(tmp_path: Path) -> None:
    """The bound holds."""
    with Child("worker", SLEEP, {}, tmp_path / "log") as child:
        began_s = time.monotonic()
        with pytest.raises(ChildFailed, match="not ready after"):
            await child.ready(lambda: False, within_s=0.2)
        assert time.monotonic() - began_s < 10


def test_last_words_read_structured_logs(tmp_path: Path) -> None:
    """The text of the last line, not its braces."""
    log = tmp_path / "log"
    log.write_text('{"event": "starting"}\n{"event": "stopped", "error": "no room"}\n\n')
    assert last_words(log) == "no room"
    log.write_text("plain\n")
    assert last_words(log) == "plain"
    log.write_text("")
    assert last_words(log) == "it said nothing"

"""Keys from a terminal, one at a time and without waiting; the terminal is as it was afterwards, however it ends."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Final

NAMES: Final = {
    "\x03": "ctrl-c", "\r": "enter", "\n": "enter", "\t": "tab",
    "\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down",
}  # fmt: skip


@contextlib.contextmanager
def keyboard() -> Iterator[bool]:
    """Within it keys come unechoed and one by one; gives whether there is a keyboard."""
    if not sys.stdin.isatty():
        yield False
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield True
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def pressed(within_s: float) -> list[str]:
    """Keys that were pressed, after waiting for one for so long."""
    number = sys.stdin.fileno()
    if not select.select([number], [], [], within_s)[0]:
        return []
    return named(os.read(number, 256).decode(errors="ignore"))


def named(text: str) -> list[str]:
    """What a terminal sent, as keys; unknown sequences are left out."""
    found = []
    while text:
        length = 3 if text.startswith(("\x1b[", "\x1bO")) else 1
        key, text = text[:length], text[length:]
        name = NAMES.get(key, key)
        if name.isprintable():
            found.append(name)
    return found

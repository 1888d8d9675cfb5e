"""What a person reads of an error is one line."""

from __future__ import annotations

import pytest

from topics.errors import MAX_LINE_CHARACTERS, FleetError, SettingsError


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("found 1, expected 2 … – ×", "found 1, expected 2 … – ×"),
        ("no file a\nb\x1b[31m", "no file a b [31m"),
        ("\ud800 is no name", "  is no name"),
        ("x" * 5000, "x" * (MAX_LINE_CHARACTERS - 1) + "…"),
    ],
)
def test_an_error_is_one_line_whatever_it_quotes(text: str, line: str) -> None:
    """Names from the environment, paths and a broker's texts may hold anything; a terminal is not told to do things."""
    assert str(SettingsError(text)) == line == str(FleetError(text))

"""The operator's redaction function: what it may change, and what its mistakes look like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.record.redact import RedactionError, load_redaction
from tools.recording.recorded import Recorded

RECORD = Recorded("demo.actions", 3, 17, 1_700_000_000_000, 0, b"agent-1", b"value", (("name", b"secret"),))


def hook(folder: Path, body: str) -> str:
    """A file with `def redact(record)` of this body, as the command line names it."""
    path = folder / "hook.py"
    path.write_text(f"def redact(record):\n    {body}\n")
    return f"{path}:redact"


def test_a_function_changes_key_value_and_headers_or_leaves_the_record_out(tmp_path: Path) -> None:
    """Where the record was in Kafka stays as it is."""
    redact = load_redaction(hook(tmp_path, "return record._replace(key=None, value=b'', headers=(('n', None),))"))
    assert redact(RECORD) == RECORD._replace(key=None, value=b"", headers=(("n", None),))
    assert load_redaction(hook(tmp_path, "return record"))(RECORD) is RECORD
    assert load_redaction(hook(tmp_path, "return None"))(RECORD) is None


def test_a_module_of_the_present_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `python -m`."""
    (tmp_path / "our_redaction.py").write_text("def redact(record):\n    return None\n")
    monkeypatch.chdir(tmp_path)
    assert load_redaction("our_redaction:redact")(RECORD) is None


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return record.nothing", r"failed on demo.actions 3:17: AttributeError: .* \(hook.py line 2\)"),
        ("return b'value'", "gave bytes for demo.actions 3:17, expected a Recorded or None"),
        ("return record._replace(offset=18)", "offset is changed to 18; only key, value and headers may be"),
        ("return record._replace(value='text')", "value is str, expected bytes or None"),
        ("return record._replace(headers=None)", "headers is NoneType, expected a tuple"),
        ("return record._replace(headers=(('name', 'text'),))", "is no pair of a name"),
    ],
)
def test_mistakes_of_the_function_are_one_line(tmp_path: Path, body: str, line: str) -> None:
    """They name the record and, where there is one, the line of the function."""
    redact = load_redaction(hook(tmp_path, body))
    with pytest.raises(RedactionError, match=line) as raised:
        redact(RECORD)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("no_colon", "expected MODULE:FUNCTION or FILE.py:FUNCTION"),
        ("no_such_module_here:redact", "cannot be loaded: ModuleNotFoundError"),
        ("missing.py:redact", "there is no such file"),
        ("json:nothing", "json has no function nothing"),
        ("json:__name__", "json is not a function: __name__"),
    ],
)
def test_a_function_that_cannot_be_found_is_one_line(name: str, line: str) -> None:
    """It says what is missing."""
    with pytest.raises(RedactionError, match=re.escape(line)):
        load_redaction(name)


def test_a_file_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    """Wherever the mistake is in it."""
    (tmp_path / "hook.py").write_text("def redact(record:\n")
    with pytest.raises(RedactionError, match="cannot be loaded: SyntaxError"):
        load_redaction(f"{tmp_path}/hook.py:redact")

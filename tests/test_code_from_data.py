"""Nothing that comes from a record, a file or the network is run: read from the source, as `test_layering` does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = [path for layer in ("topics", "workers", "tools") for path in sorted((ROOT / layer).rglob("*.py"))]
MAY_IMPORT_BY_NAME = {"workers/models/factories.py", "tools/cli.py", "tools/record/redact.py"}
"""The operator's list of factories; the command line's own modules; the function that `fleet record --redact` names."""


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """(last part of the called name, call) of every call in the file."""
    for node in ast.walk(ast.parse(path.read_text(), path)):
        if isinstance(node, ast.Call):
            called = node.func
            yield called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", ""), node


def test_no_text_becomes_code() -> None:
    """No eval and no exec; `model.eval()` of torch takes no argument."""
    for path in SOURCES:
        for name, call in calls(path):
            assert not (name in ("eval", "exec") and call.args), f"{path}:{call.lineno} calls {name}"
            by_name = name in ("__import__", "compile") and isinstance(call.func, ast.Name)
            assert not by_name, f"{path}:{call.lineno} calls {name}"


def test_no_command_goes_through_a_shell() -> None:
    """Words stay words."""
    for path in SOURCES:
        for name, call in calls(path):
            assert not (name in ("system", "popen") and call.args), f"{path}:{call.lineno} calls {name}"
            shell = [word for word in call.keywords if word.arg == "shell"]
            assert not shell, f"{path}:{call.lineno} uses a shell"


def test_only_named_places_import_by_name() -> None:
    """A factory is on the operator's list before its module is imported."""
    found = {str(path.relative_to(ROOT)) for path in SOURCES for name, _ in calls(path) if name == "import_module"}
    assert found <= MAY_IMPORT_BY_NAME, found - MAY_IMPORT_BY_NAME

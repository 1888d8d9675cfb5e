"""The documents say what is there: modules, tests, settings, links."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from topics.settings import describe, load_settings
from workers.settings import Settings

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()


def test_the_code_map_has_every_module_once() -> None:
    """And none that is gone."""
    mapped: list[str] = []
    for folder, table in re.findall(r"^### (\w+)/[^\n]*\n(.*?)(?=^###|^`tests/|\Z)", ARCHITECTURE, re.M | re.S):
        mapped += [f"{folder}/{name}" for name in re.findall(r"^\| `([\w/]+)` \|", table, re.M)]
    there = [
        str(path.relative_to(ROOT).with_suffix(""))
        for layer in ("topics", "workers", "tools")
        for path in (ROOT / layer).rglob("*.py")
        if path.stem != "__init__"
    ]
    assert sorted(mapped) == sorted(there)


def test_every_test_that_a_document_names_exists() -> None:
    """A rule without its test is a wish."""
    for document in DOCUMENTS:
        for file, name in re.findall(r"`((?:[\w/]+/)?test_\w+\.py)(?:::(test_\w+))?`", document.read_text()):
            path = next((path for path in (ROOT / "tests" / file, ROOT / file) if path.is_file()), None)
            assert path, f"{document.name} names {file}"
            names = {node.name for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "name")}
            assert not name or name in names, f"{document.name} names {file}::{name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    """Files and headings."""
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
        file, _, anchor = target.partition("#")
        path = document if not file else document.parent / file
        assert path.exists(), f"{document.name} → {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{document.name} → {target}"


def test_the_readme_lists_every_setting() -> None:
    """By its full key, or by its table."""
    readme = (ROOT / "README.md").read_text()
    for shown in describe(load_settings(Settings)):
        table, _, name = shown.key.rpartition(".")
        assert f"`{shown.key}`" in readme or f"`{table}.*`" in readme or f"`.{name}`" in readme, shown.key

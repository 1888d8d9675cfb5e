"""The rules about who may import whom, read from the source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYERS = ("topics", "workers", "tools")  # each may import itself and those before it
TRAINING = {"tools.demo.ppo", "tools.demo.train"}  # made the shipped policies; no running part imports them
MAY_IMPORT_TORCH = ("workers.models", "workers.predictors")
UNSAFE = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> dict[str, Path]:
    """Every module of ours, by its dotted name."""
    return {module_name(path): path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))}


def imported_names(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of every import anywhere in the file, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(path.read_text(), path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} uses a relative import, write the whole name"
            yield from ((node.module or "", alias.name) for alias in node.names)


@cache
def imports(module: str) -> frozenset[str]:
    """What `module` imports, as dotted names; a name taken from a package is the submodule where it is one."""
    found = set()
    for source, name in imported_names(sources()[module]):
        submodule = f"{source}.{name}"
        found.add(submodule if submodule in sources() else source)
    return frozenset(found)


def top(module: str) -> str:
    return module.split(".")[0]


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_imports_go_from_tools_to_workers_to_topics_and_never_back() -> None:
    """No module imports from a layer above its own."""
    for module in sources():
        allowed = LAYERS[: LAYERS.index(top(module)) + 1]
        for imported in imports(module):
            assert top(imported) not in LAYERS or top(imported) in allowed, f"{module} imports {imported}"


def test_the_code_never_imports_the_tests() -> None:
    """What is installed works without the tests."""
    for module in sources():
        assert not [name for name in imports(module) if top(name) == "tests"], f"{module} imports tests"


def test_torch_is_imported_only_where_models_run() -> None:
    """Everything else starts without torch, which takes seconds and hundreds of megabytes."""
    for module in sources():
        if not within(module, MAY_IMPORT_TORCH) and module not in TRAINING:
            assert not [name for name in imports(module) if top(name) == "torch"], f"{module} imports torch"


def test_no_running_part_imports_the_training() -> None:
    """The scripts that trained the shipped policies may use torch because nothing else uses them."""
    for module in sources():
        if module not in TRAINING:
            assert not imports(module) & TRAINING, f"{module} imports the training"


def test_nothing_that_runs_code_from_bytes_is_imported() -> None:
    """No pickle, anywhere: neither in the code nor in its tests."""
    paths = [*sources().values(), *(ROOT / "tests").rglob("*.py")]
    for path in paths:
        for source, _ in imported_names(path):
            assert top(source) not in UNSAFE, f"{path.relative_to(ROOT)} imports {source}"


def test_no_module_imports_itself_through_others() -> None:
    """No import cycle, also not through TYPE_CHECKING or inside a function."""
    finished: set[str] = set()
    for module in sources():
        cycle = find_cycle(module, [], finished)
        assert not cycle, " → ".join(cycle)


def find_cycle(module: str, path: list[str], finished: set[str]) -> list[str]:
    """The first cycle that is reachable from `module`, or nothing."""
    if module in path:
        return [*path[path.index(module) :], module]
    if module in finished or module not in sources():
        return []
    for imported in sorted(imports(module)):
        if cycle := find_cycle(imported, [*path, module], finished):
            return cycle
    finished.add(module)
    return []

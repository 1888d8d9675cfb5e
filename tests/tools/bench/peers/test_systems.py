"""Who the fleet is compared with, and what is installed for it."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from tools.bench.peers import systems
from tools.bench.peers.systems import SYSTEMS, System, chosen
from topics.errors import SettingsError


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_package_is_pinned_by_name_and_version(system: System) -> None:
    """Nothing but `name==version`: no address, no range; the system itself is among them, and its module is there."""
    for line in system.pins_file.read_text().splitlines():
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+", line), line
    assert system.version == system.pins()[system.package]
    assert find_spec(system.module)


def test_no_environment_holds_torch_or_cuda() -> None:
    """It is lent; seven more of them would take tens of gigabytes."""
    for system in SYSTEMS:
        assert not [name for name in system.pins() if name == "torch" or name.startswith("nvidia-cu")]


def test_an_environments_name_changes_with_its_packages(monkeypatch: pytest.MonkeyPatch, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    """So an old one is never taken for a new one."""
    names = []
    for version in ("1.0", "1.0", "1.1"):
        folder = tmp_path_factory.mktemp("pins")
        (folder / "mosec.txt").write_text(f"mosec==2.0\nmsgspec=={version}\n")
        monkeypatch.setattr(systems, "PINS", folder)
        names.append(System("mosec", "mosec", "closed").folder)
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("mosec-2.0-py3.")


def test_only_picks_systems_by_name() -> None:
    """In the order given, each once, all without it; an unknown one is named."""
    assert [system.name for system in chosen("quix, faust,quix")] == ["quix", "faust"]
    assert chosen(None) == list(SYSTEMS)
    with pytest.raises(SettingsError, match="--only has 'triton', expected one of faststream"):
        chosen("quix,triton")

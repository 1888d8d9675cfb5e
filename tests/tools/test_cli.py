"""The `fleet` command: every mistake is one line and an exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tools import cli
from tools.cli import COMMANDS, Entry, exit_code
from topics.errors import BrokerUnavailable, FleetError, SettingsError


def fleet(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tools.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_help_lists_every_command() -> None:
    """Both spellings; a newcomer sees what there is."""
    for flag in ("-h", "--help"):
        found = fleet(flag)
        assert found.returncode == 0
        assert all(name in found.stdout for name in COMMANDS)


def test_help_imports_no_sub_command() -> None:
    """It must be there at once; torch alone takes seconds."""
    code = (
        "import sys; from tools.cli import application; application(['--help']);"
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'aiokafka', 'gymnasium', 'jgo')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "[]\n"


def test_version_is_the_installed_one() -> None:
    """As bug reports need it."""
    assert fleet("--version").stdout.startswith("fleet 0.")


def test_an_unknown_command_exits_2() -> None:
    """The shell's code for a wrong call."""
    found = fleet("nonsense")
    assert found.returncode == 2
    assert "nonsense" in found.stderr


@pytest.mark.parametrize(
    ("error", "code"), [(FleetError("text"), 1), (SettingsError("text"), 2), (BrokerUnavailable("text"), 3)]
)
def test_a_fleet_error_is_one_line_with_its_own_code(
    error: FleetError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same line wherever it was raised."""
    assert exit_code(error) == code
    assert capsys.readouterr().err == "error: text\n"


def test_a_fleet_error_is_found_inside_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """Task groups wrap what their tasks raise."""
    inner = ExceptionGroup("inner", [ValueError("noise"), SettingsError("the cause")])
    assert exit_code(ExceptionGroup("outer", [OSError("noise"), inner])) == 2
    assert capsys.readouterr().err == "error: the cause\n"


def test_square_brackets_in_a_line_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    """They are shapes, not colours."""
    exit_code(FleetError("shape [4] [bold]"))
    assert capsys.readouterr().err == "error: shape [4] [bold]\n"


def test_ctrl_c_exits_130_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """128 + SIGINT."""
    assert exit_code(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


def test_a_bug_of_ours_is_one_line_with_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    """No stack trace on the screen, but none is lost either."""
    try:
        raise KeyError("surprise")
    except KeyError as error:
        assert exit_code(error) == 70
    line = capsys.readouterr().err
    assert "KeyError: 'surprise'" in line
    assert len(line.splitlines()) == 1
    with open(line.rpartition("report it with ")[2].rstrip(")\n")) as report:
        assert "Traceback" in report.read()


def test_a_model_that_still_runs_does_not_change_the_exit_code() -> None:
    """A hung one, or a long batch after the second SIGTERM; nothing can end its thread."""
    code = (
        "import threading, time, torch; from tools.cli import leave; m = torch.ones(2000, 2000);"
        "run = lambda: [torch.mm(m, m) for _ in iter(int, 1)];"
        "threading.Thread(target=run, name='predictor-cpu', daemon=True).start(); time.sleep(0.2);"
        "print('last words'); leave(5)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (5, "last words\n", "")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is the command that installs it."""

    def no_gymnasium(name: str) -> None:
        raise ModuleNotFoundError("No module named 'gymnasium'", name="gymnasium")

    monkeypatch.setattr(cli.importlib, "import_module", no_gymnasium)
    with pytest.raises(FleetError, match=r"pip install 'decision-fleet\[demo\]'"):
        cli._load("demo", Entry("tools.demo.cli", "command", ""))

"""`make fuzz`: coverage-guided fuzzing of everything that reads bytes of others, with atheris (libFuzzer).

Each target has a process of its own, bounded in time and in memory; one input may take 10 s. What is found lies in
`.fuzz/<target>/`, as a seed of the next run, and `--again FILE` runs it alone. The exit code is 1 where a promise was
broken.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil

FOLDER = Path(".fuzz")
ONE_INPUT_S = 10
MEMORY_MB = 512
"""What one input may take: more of it is a MemoryError, which is a promise broken."""
MAX_BYTES = 4096
MAX_TREE_BYTES = 16
"""Eight places replaced."""
TARGET_NAMES = (
    *("state", "state_tree", "action", "action_tree", "headers", "finished_map"),
    *("manifest", "manifest_tree", "note", "note_tree", "settings_file", "settings_tree"),
)


def fuzz(name: str, seconds: int) -> None:
    """One target in this process; never returns."""
    import atheris

    with atheris.instrument_imports(
        include=["topics", "workers", "tools", "json", "tomllib"], enable_loader_override=False
    ):
        from tests.fuzz.targets import SEEDS, TARGETS
    corpus = FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={ONE_INPUT_S}",
        f"-max_len={MAX_TREE_BYTES if name.endswith('_tree') else MAX_BYTES}",
        f"-artifact_prefix={corpus}/",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], TARGETS[name])
    limit_bytes = psutil.Process().memory_info().vms + (MEMORY_MB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    atheris.Fuzz()


def again(file: Path) -> None:
    """One input that was found, by the target whose folder it lies in; raises what it raised."""
    from tests.fuzz.targets import TARGETS

    TARGETS[file.parent.name](file.read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("targets", nargs="*", default=[], help=f"some of: {', '.join(TARGET_NAMES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=5.0, help="together (default 5)")
    parser.add_argument("--again", type=Path, metavar="FILE", help="run one input that was found")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.again:
        again(chosen.again)
        return 0
    if chosen.one:
        fuzz(chosen.one, round(chosen.minutes * 60))
    names = chosen.targets or TARGET_NAMES
    if unknown := set(names) - set(TARGET_NAMES):
        parser.error(f"no target {', '.join(sorted(unknown))}: there are {', '.join(TARGET_NAMES)}")
    FOLDER.mkdir(exist_ok=True)
    broken = [name for name in names if not _run(name, chosen.minutes / len(names))]
    if broken:
        print(f"error: {', '.join(broken)} broke a promise; the trace is in {FOLDER}/<target>.log")
    return 1 if broken else 0


def _run(name: str, minutes: float) -> bool:
    """Whether the target kept its promises all the time."""
    log = FOLDER / f"{name}.log"
    command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--minutes", str(minutes)]
    started_s = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        while process.poll() is None:
            time.sleep(1)
            if sys.stdout.isatty():
                print(f"\r  {name:14}{time.monotonic() - started_s:5.0f} s of {minutes * 60:.0f}", end="", flush=True)
    text = log.read_text(errors="replace")
    runs = next((line.split()[-1] for line in text.splitlines() if "number_of_executed_units" in line), "?")
    verdict = "kept" if process.returncode == 0 else f"BROKEN (exit {process.returncode})"
    print(f"\r  {name:14}{verdict}, {runs} inputs in {time.monotonic() - started_s:.0f} s")
    for line in text.splitlines():
        if "Test unit written to" in line:
            print(f"    repeat it with: {sys.executable} -m tests.fuzz --again {line.split()[-1]}")
    return process.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

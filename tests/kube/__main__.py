"""`make kube`: the chart on a real control plane, part by part. ARGS="keda" runs some parts only.

It starts itself again in network and process namespaces of its own (which needs root), so that nothing can listen
elsewhere than on a loopback that nobody else sees, and nothing is left behind however it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from tests.kube.build import BuildError, cache, programs
from tests.kube.lab import Lab, LabError
from tests.kube.parts import Found, Part, drain, install, kill, secret, uninstall, upgrade
from tests.kube.scaling import keda, storm
from tests.kube.world import World
from tools.broker.start import start_broker
from topics.kafka import quiet_library_logs

PARTS: dict[str, Part] = {
    "install": install,
    "upgrade": upgrade,
    "drain": drain,
    "kill": kill,
    "secret": secret,
    "uninstall": uninstall,
    "keda": keda,
    "storm": storm,
}
RELEASED = {"upgrade", "drain", "kill", "uninstall"}
"""Parts that need what `install` leaves behind."""
SCALED = {"keda", "storm"}
INSIDE = "FLEET_KUBE_INSIDE"
NODES = 2
IMAGE = "decision-fleet"
FLEET = [sys.executable, "-c", "from tools.cli import main; main()"]


def main() -> int:
    """Exit code 1 when a check failed, 2 when it could not be run."""
    parser = argparse.ArgumentParser(prog="make kube", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--json", type=Path, help="write everything that was found to this file")
    arguments = parser.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}, expected some of {', '.join(PARTS)}")
    wanted = [part for part in PARTS if part in (arguments.parts or PARTS)]
    if RELEASED & set(wanted) and "install" not in wanted:
        wanted.insert(0, "install")
    console = Console(stderr=True, highlight=False)
    begun_s = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - begun_s:6.1f} s[/dim]  {text}")

    try:
        folder = programs(say, keda=bool(SCALED & set(wanted)))
        if os.environ.get(INSIDE) is None:
            return again_inside()
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        found = asyncio.run(run(wanted, folder, say))
    except (BuildError, LabError, OSError) as error:
        console.print(f"error: {error}", style="red")
        return 2
    if arguments.json:
        arguments.json.write_text(
            json.dumps({name: one.figures | {"failed": one.failed} for name, one in found.items()}, indent=2)
        )
    return 1 if any(one.failed for one in found.values()) else 0


def again_inside() -> int:
    """This program once more, in namespaces that end with it."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise LabError("needs root and unshare, for namespaces of its own")
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    command += [sys.executable, "-m", "tests.kube", *sys.argv[1:]]
    return subprocess.run(command, env={**os.environ, INSIDE: "1"}).returncode


async def run(wanted: list[str], bin_folder: Path, say: object) -> dict[str, Found]:
    """The parts one after the other on one lab."""
    assert callable(say)
    quiet_library_logs()
    folder = cache() / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    lab, found = Lab(bin_folder, folder), {}
    say("starting the control plane and Kafka")
    cluster = await asyncio.to_thread(start_broker)
    api = await asyncio.to_thread(lab.start, NODES, IMAGE, FLEET)
    if SCALED & set(wanted):
        await asyncio.to_thread(lab.start_keda, api)
    world = World(lab, api, cluster.bootstrap_servers, say)
    world.prepare()
    for name in wanted:
        say(f"{name}: {(PARTS[name].__doc__ or '').splitlines()[0]}")
        try:
            found[name] = await PARTS[name](world)
        except Exception as error:
            found[name] = Found(failed=[f"{type(error).__name__}: {error}"])
        lab.require_running()
        for figure, value in found[name].figures.items():
            say(f"  {figure}: {value}")
        for failed in found[name].failed:
            say(f"  [red]✗ {failed}[/red]")
        if not found[name].failed:
            say("  [green]✓[/green]")
    cluster.stop()
    return found


if __name__ == "__main__":
    sys.exit(main())

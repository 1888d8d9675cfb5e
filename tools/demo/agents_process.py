"""The agents' process (`agents`) as the demo holds it: started, listened to, ended."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tools.demo.child import Child, ProcessEnded, stop
from topics.errors import FleetError

READY_WITHIN_S: Final = 120.0
"""Box2D's environments take 1 ms each, Atari's 20 ms."""
POLL_S: Final = 0.05


class AgentsProcess:
    """Makes its environments at once and plays when it gets its turn."""

    def __init__(self, plan: Mapping[str, Any], folder: Path) -> None:
        self._child = Child("agents", ["-m", "tools.demo.agents", json.dumps(plan)], folder / "agents.log")

    def listen(self) -> list[dict[str, Any]]:
        """What it told since the last call; never waits.

        Raises:
            FleetError: what it complains of.
            ProcessEnded: it has ended and tells nothing any more.
        """
        has_ended = self._child.exit_code is not None  # looked at before listening: its last words count
        heard = self._child.heard()
        for told in heard:
            if "error" in told:
                raise FleetError(told["error"])
        if has_ended and not heard:
            raise ProcessEnded(self._child)
        return heard

    def wait_ready(self) -> None:
        """Until every environment is made. Raises FleetError if that fails or takes too long."""
        give_up_at = time.monotonic() + READY_WITHIN_S
        while not any("ready" in told for told in self.listen()):
            if time.monotonic() > give_up_at:
                raise FleetError(f"the environments are not made after {READY_WITHIN_S:.0f} s: try fewer --agents")
            time.sleep(POLL_S)

    def give_turn(self, servers: str) -> None:
        """The fleet at `servers` is ready: play."""
        self._child.give_turn(servers)

    def stop(self) -> None:
        """At once: it has nothing to tidy up."""
        stop([self._child], within_s=0.0)

    def __repr__(self) -> str:
        return f"<AgentsProcess {self._child!r}>"

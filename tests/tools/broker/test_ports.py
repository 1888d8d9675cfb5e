"""Free ports, and who has a taken one."""

from __future__ import annotations

import os
import socket

from tools.broker.ports import FREE_PORTS, free_ports, holder, is_taken


def test_free_ports_are_different_and_free() -> None:
    """Several at once, as three nodes need them."""
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert all(port in FREE_PORTS and not is_taken(port) for port in ports)


def test_a_listener_is_found_and_named() -> None:
    """The line about a taken port should say whom to stop."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_taken(port)
        assert f"(pid {os.getpid()})" in holder(port)


def test_a_port_without_a_listener_has_no_name() -> None:
    """Where we may not see the program, the text still reads as a sentence."""
    assert holder(free_ports(1)[0]) == "another program"

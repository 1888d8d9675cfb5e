"""Ports on the loopback interface: free ones, and who has a taken one."""

from __future__ import annotations

import contextlib
import random
import socket

import psutil

LOOPBACK = "127.0.0.1"
# Below the ranges from which systems take the local ports of outgoing connections (Linux from 32768, macOS from
# 49152), so that none of those can take a port between our look and Kafka's start.
FREE_PORTS = range(20_000, 32_000)


def is_taken(port: int) -> bool:
    """Whether a program listens there (or the system keeps the port to itself)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: TIME_WAIT is no obstacle
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


def free_ports(count: int) -> list[int]:
    """That many different ports at which nobody listens now."""
    found: list[int] = []
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        if len(found) == count:
            break
        if not is_taken(port):
            found.append(port)
    return found


def accepts(port: int) -> bool:
    """Whether a connection to the port succeeds now."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def holder(port: int) -> str:
    """Who listens on `port`, as "redis-server (pid 123)"; "another program" where we may not see it."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr[-1] == port
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return "another program"

"""A small HTTP port for probes and scrapes: a few fixed pages, GET and HEAD, answered outside the event loop.

Beside the path. Takes a page per path, gives a listening port. The standard library's server is enough here
(a framework would bring an event loop, which is the one thing that must not be needed), made safe for a
long-lived process: clients are bounded in number and time, nothing is printed, no name is looked up, and
closing does not wait for a client that hangs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore, Thread
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from topics.errors import FleetError
from workers.logs import get_logger

CLIENT_LIMIT_S: Final = 5.0
"""A probe or a scrape sends its request at once; whoever does not is cut off."""

CLIENTS_AT_ONCE: Final = 16
"""Probes, two scrapers and a few people; who comes on top is closed at once, so that threads stay bounded."""

_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8"}


class Ask(NamedTuple):
    """What a page is asked with: the query string (without '?') and the request's headers."""

    query: str
    headers: Message


class Page(NamedTuple):
    """What a page answers."""

    status: int
    body: bytes
    headers: Mapping[str, str] = _TEXT


class ProbePort:
    """Listens from the start on, and answers from daemon threads until `close()`.

    Args:
        port: 0 takes a free one; `.port` says which.
        pages: path → what answers it.

    Raises:
        FleetError: the port is taken or privileged, or the address is not one of this machine.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[Ask], Page]]) -> None:
        self._listener = _listen(host, port, pages)
        self.port: int = self._listener.server_address[1]
        # The poll only notices close(): ten wake-ups a second cost nothing, and an exit waits 0.1 s at most.
        self._thread = Thread(target=self._listener.serve_forever, args=(0.1,), name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; answers that are being sent are sent, none is waited for."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join(CLIENT_LIMIT_S)


def _listen(host: str, port: int, pages: Mapping[str, Callable[[Ask], Page]]) -> _Listener:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _Listener(family, address, pages)
    except OSError as err:
        reason = (err.strerror or str(err)).lower()
        raise FleetError(
            f"health server cannot listen on {host}:{port}: {reason}; "
            "give the worker another http.host or http.port (port 0 takes a free one)"
        ) from err


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 2 * CLIENTS_AT_ONCE  # connections that wait to be accepted; beyond it the kernel delays them

    def __init__(self, family: int, address: Any, pages: Mapping[str, Callable[[Ask], Page]]) -> None:
        self.address_family = family
        self.pages = pages
        self._seats = BoundedSemaphore(CLIENTS_AT_ONCE)
        super().__init__(address, _Answer)

    def server_bind(self) -> None:
        # HTTPServer's own looks up the machine's name, which takes seconds where no DNS answers.
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._seats.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._seats.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # The client went away in the middle: nobody has to act, and nothing goes to stderr as a traceback.
        get_logger(__name__).debug("probe_cut_off", client=str(client_address), exc_info=True)


class _Answer(BaseHTTPRequestHandler):
    server: _Listener
    timeout = CLIENT_LIMIT_S
    server_version = "fleet"
    sys_version = ""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        page = self.server.pages.get(address.path)
        if page is None:
            known = ", ".join(self.server.pages)
            self._send(Page(404, f"nothing at this path; there are {known}\n".encode()))
            return
        try:
            self._send(page(Ask(address.query, self.headers)))
        except OSError:
            raise
        except Exception as err:  # a page's bug is its client's 500 and an event, and the port lives on
            get_logger(__name__).warning("probe_failed", path=address.path, exc_info=True)
            self._send(Page(500, f"{type(err).__name__}: {err}\n".encode()))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._send(Page(405, b"only GET and HEAD\n", {**_TEXT, "Allow": "GET, HEAD"}))

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST

    def _send(self, page: Page) -> None:
        self.send_response(page.status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every second: no access log."""

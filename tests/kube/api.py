"""The few calls to an API server that the harness needs."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from typing import Any

ANSWER_WITHIN_S = 15
WATCH_S = 60


class Api:
    """One API server, with a token."""

    def __init__(self, url: str, token: str, authority: str) -> None:
        self._url, self._token = url, token
        self._tls = ssl.create_default_context(cafile=authority)

    @classmethod
    def of(cls, kubeconfig: dict[str, Any]) -> Api:
        """From a kubeconfig with one cluster and one user."""
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        return cls(cluster["server"], user["token"], cluster["certificate-authority"])

    def get(self, path: str) -> Any:
        """Raises urllib.error.HTTPError, as all of them do."""
        return self._call("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", path, body)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """A merge patch."""
        return self._call("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path)

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """Events until the server ends the watch, after a minute at most."""
        request = self._request("GET", f"{path}&watch=1&timeoutSeconds={WATCH_S}")
        with urllib.request.urlopen(request, context=self._tls, timeout=WATCH_S + ANSWER_WITHIN_S) as lines:
            for line in lines:
                yield json.loads(line)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None, kind: str = "application/json") -> Any:
        request = self._request(method, path, body, kind)
        with urllib.request.urlopen(request, context=self._tls, timeout=ANSWER_WITHIN_S) as answer:
            return json.load(answer)

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, kind: str = "application/json"
    ) -> urllib.request.Request:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        return urllib.request.Request(self._url + path, data, headers, method=method)

"""A few synchronous calls to the local API server, for the setup before admitq's own client runs."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from localcluster.pki import Pair

_TIMEOUT_S = 30.0


class ApiFailure(Exception):
    """The API server refused a call.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status


class Api:
    """One kept-alive connection to an API server, authenticated by a client certificate or a token."""

    def __init__(
        self, server: str, authority: Path, identity: Pair | None = None, *, token: str | None = None
    ) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        if identity is not None:
            context.load_cert_chain(identity.certificate, identity.key)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        address = urlsplit(server)
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context, timeout=_TIMEOUT_S
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """Send one request and return its decoded JSON answer.

        Raises:
            ApiFailure: the answer is an error.
            OSError: there is no answer.
        """
        text = self._exchange(method, path, body, content_type)
        return json.loads(text) if text else None

    def text(self, path: str) -> str:
        """Return an answer that is not JSON, such as /metrics.

        Raises:
            ApiFailure: the answer is an error.
            OSError: there is no answer.
        """
        return self._exchange("GET", path, None, "application/json")

    def healthy(self, path: str) -> bool:
        """Whether a health endpoint reports success."""
        try:
            self._exchange("GET", path, None, "application/json")
        except (OSError, http.client.HTTPException, ApiFailure):
            return False
        return True

    def _exchange(self, method: str, path: str, body: Any, content_type: str) -> str:
        payload = None if body is None else json.dumps(body)
        try:
            headers = {"Content-Type": content_type, **self._headers}
            self._connection.request(method, path, payload, headers)
            response = self._connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            # The next call starts with a new connection.
            self._connection.close()
            raise
        if response.status >= 400:
            raise ApiFailure(method, path, response.status, _message(text))
        return text


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()[:500]

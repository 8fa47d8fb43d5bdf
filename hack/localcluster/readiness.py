"""Wait until the components of a cluster are ready."""

import http.client
import socket
import ssl
from collections.abc import Callable

from localcluster import components, processes
from localcluster.api import Api, ApiFailure

# A busy machine with two cores can need long. A component that dies is noticed at once.
PATIENCE_S = 120.0

PLAIN_HEALTH = {"etcd": "/health", "kwok": "/healthz"}
"""The path of the health check of components without TLS."""


def holds_in_time(condition: Callable[[], bool], check: Callable[[], None]) -> bool:
    """Wait until a condition holds. While a call of the API server fails, the condition does not hold.

    Args:
        condition: the condition.
        check: called before each evaluation of the condition; its exceptions end the wait.

    Returns:
        False if the condition does not hold within ``PATIENCE_S``.
    """

    def over() -> bool:
        check()
        try:
            return condition()
        except (OSError, http.client.HTTPException, ApiFailure):
            return False

    return processes.wait(over, timeout_s=PATIENCE_S, interval_s=0.05)


def accepts(port: int) -> bool:
    """Whether a process accepts connections on a port of loopback."""
    try:
        with socket.create_connection((components.LOOPBACK, port), timeout=5.0):
            return True
    except OSError:
        return False


def answers(port: int, path: str) -> bool:
    """Whether a component without TLS is healthy."""
    connection = http.client.HTTPConnection(components.LOOPBACK, port, timeout=5.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException, ssl.SSLError):
        return False
    finally:
        connection.close()


def has_default_account(api: Api) -> bool:
    """Whether the ServiceAccount controller has created the first account."""
    try:
        api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    except ApiFailure:
        return False
    return True

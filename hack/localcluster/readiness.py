"""Waiting until the components of a cluster are ready."""

import http.client
import ssl
from collections.abc import Callable

from localcluster import components, processes
from localcluster.api import Api, ApiFailure

# A loaded machine with two cores may need long; a component that dies is noticed at once.
PATIENCE_S = 120.0

PLAIN_HEALTH = {"etcd": "/health", "kwok": "/healthz"}
"""The path of the health check of components without TLS."""


def holds_in_time(condition: Callable[[], bool], check: Callable[[], None]) -> bool:
    """Wait until a condition holds. A failed call of the API server counts as not yet.

    Args:
        condition: what to wait for.
        check: called each time before the condition; ends the wait by what it raises.

    Returns:
        False when the condition does not hold within ``PATIENCE_S``.
    """

    def over() -> bool:
        check()
        try:
            return condition()
        except (OSError, http.client.HTTPException, ApiFailure):
            return False

    return processes.wait(over, timeout_s=PATIENCE_S, interval_s=0.05)


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

"""What a user reads when a command fails: the error, and what to do."""

from typing import TYPE_CHECKING

from admitq_api.labels import DEFAULT_GROUP, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admitq.runtime.errors import ApiError


class CommandError(Exception):
    """A command cannot do its work. The message has the error and the remedy.

    ``status`` is the exit status of the command.
    """

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def describe_failure(error: "ApiError", *, server: str, resource: str = "", namespace: str = "") -> str:
    """Return the text for a failed call.

    Args:
        error: the failure.
        server: the URL of the API server.
        resource: the plural and the group of the objects of the command, as kubectl accepts them.
        namespace: the namespace of these objects; empty if they have none.
    """
    match error.status:
        case 0 | 408 | 502 | 503 | 504:
            return (
                f"{server} does not answer: {error.message}\nCheck the cluster of the kubeconfig, then retry."
            )
        case 401:
            return f"{server} rejects the credentials\nLog in again, or select another user with --context."
        case 403:
            return (
                f"{error.message}\nAsk an administrator for the right; kubectl auth can-i --list shows yours."
            )
        case 404 if resource:
            listing = f"kubectl get {resource}{f' -n {namespace}' if namespace else ''}"
            return f"{error.message}\n{listing} lists what exists."
        case 409 if error.is_already_exists:
            return f"{error.message}\nUse another name, or change the object with kubectl edit."
        case 429:
            return f"{server} is overloaded: {error.message}\nRetry later."
        case _:
            return error.message


def choose_group(served: "Iterable[str]", requested: str | None) -> str:
    """Return the API group that a command uses.

    Args:
        served: all API groups that the cluster serves.
        requested: the group that the user requests, if any.

    Raises:
        CommandError: the cluster serves none or several of admitq's groups, or not the requested one.
    """
    found = [group for group in GROUPS if group in set(served)]
    if requested is not None:
        if requested not in GROUPS:
            raise CommandError(f"--api-group: {requested!r} is not one of {', '.join(GROUPS)}")
        if requested not in found:
            instead = f"Use --api-group {found[0]}." if found else "Install the chart of admitq first."
            raise CommandError(f"the cluster does not serve {requested}\n{instead}")
        return requested
    if not found:
        raise CommandError(
            f"the cluster serves neither {' nor '.join(GROUPS)}\n"
            "Install the chart of admitq first, or select another cluster with --context."
        )
    if len(found) > 1:
        raise CommandError(
            f"the cluster serves {' and '.join(found)}\n"
            f"Select one: --api-group {DEFAULT_GROUP}, or the variable ADMITQ_API_GROUP."
        )
    return found[0]

"""Calls to the cluster that options select. Imported only by commands that call a cluster."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from admitq.plugin.object_kinds import ObjectKind
from admitq.plugin.options import ClusterOptions
from admitq.plugin.remedies import CommandError, choose_group, describe_failure
from admitq.runtime.client import Client, user_agent
from admitq.runtime.credentials import Credentials, CredentialsError, from_kubeconfig, load_credentials
from admitq.runtime.discovery import list_group_versions
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import Kinds, kinds_of
from admitq_api.labels import Names, names_for

FIELD_MANAGER: Final = "kubectl-admitq"
"""The field manager of all writes of the plugin."""

TIMEOUT_S: Final = 30.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The cluster of a command.

    ``namespace`` is the one of the option, or else of the context. ``groups`` are the API groups that the
    cluster serves in the version of admitq's kinds.
    """

    client: Client
    names: Names
    namespace: str
    groups: frozenset[str]

    @property
    def kinds(self) -> Kinds:
        """The resources of admitq's kinds."""
        return kinds_of(self.names)


def call_cluster(
    options: ClusterOptions,
    action: Callable[[ClusterAccess], Awaitable[Result]],
    *,
    about: ObjectKind | None = None,
    timeout: float = TIMEOUT_S,
) -> Result:
    """Run an action with the cluster that the options select, and return its result.

    Args:
        options: the options of the command.
        action: what to do.
        about: the kind of objects that the action is about, for the text of an error.
        timeout: how long each call may take, in seconds.

    Raises:
        CommandError: the cluster cannot be reached or used, or a call of the action failed.
    """
    try:
        credentials = find_credentials(options)
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    return asyncio.run(_call(credentials, options, action, about, timeout))


async def _call(
    credentials: Credentials,
    options: ClusterOptions,
    action: Callable[[ClusterAccess], Awaitable[Result]],
    about: ObjectKind | None,
    timeout: float,  # noqa: ASYNC109 - the deadline of each call
) -> Result:
    resource = namespace = ""
    try:
        async with Client(credentials, user_agent=user_agent("kubectl"), timeout=timeout) as client:
            served = frozenset(
                group for group, version in await list_group_versions(client) if version == Names.version
            )
            names = names_for(choose_group(served, options.api_group))
            access = ClusterAccess(client, names, options.namespace or credentials.namespace, served)
            if about is not None:
                found = about.resource(access.kinds)
                resource, namespace = str(found), access.namespace if found.namespaced else ""
            return await action(access)
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    except ApiError as error:
        text = describe_failure(error, server=credentials.server, resource=resource, namespace=namespace)
        raise CommandError(text) from error


def find_credentials(options: ClusterOptions) -> Credentials:
    """Return the credentials that kubectl would use: those of a kubeconfig come before those of a pod.

    Raises:
        CredentialsError: there are none, or they cannot be used.
    """
    paths = kubeconfig_paths(options)
    is_chosen = options.kubeconfig is not None or options.context is not None
    if is_chosen or any(path.exists() for path in paths):
        return from_kubeconfig(paths, context=options.context)
    return load_credentials()


def kubeconfig_paths(options: ClusterOptions) -> list[Path]:
    """Return the kubeconfig files that apply, whether they exist or not."""
    if options.kubeconfig is not None:
        return [options.kubeconfig]
    paths = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return paths or [Path.home() / ".kube" / "config"]

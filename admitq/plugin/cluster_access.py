"""Calls to the cluster that options select. Imported only by commands that call a cluster."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

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
    """The cluster of a command. ``namespace`` is the one of the option, or else of the context."""

    client: Client
    names: Names
    namespace: str

    @property
    def kinds(self) -> Kinds:
        """The resources of admitq's kinds."""
        return kinds_of(self.names)


def call_cluster(
    options: ClusterOptions, action: Callable[[ClusterAccess], Awaitable[Result]], *, about: str = ""
) -> Result:
    """Run an action with the cluster that the options select, and return its result.

    Args:
        options: the options of the command.
        action: what to do.
        about: the plural of the kind of objects that the action is about, for the text of an error.

    Raises:
        CommandError: the cluster cannot be reached or used, or a call of the action failed.
    """
    try:
        credentials = find_credentials(options)
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    return asyncio.run(_call(credentials, options, action, about))


async def _call(
    credentials: Credentials,
    options: ClusterOptions,
    action: Callable[[ClusterAccess], Awaitable[Result]],
    about: str,
) -> Result:
    resource = about
    try:
        async with Client(credentials, user_agent=user_agent("kubectl"), timeout=TIMEOUT_S) as client:
            served = {
                group for group, version in await list_group_versions(client) if version == Names.version
            }
            names = names_for(choose_group(served, options.api_group))
            if about:
                resource = f"{about}.{names.group}"
            return await action(ClusterAccess(client, names, options.namespace or credentials.namespace))
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    except ApiError as error:
        raise CommandError(describe_failure(error, server=credentials.server, resource=resource)) from error


def find_credentials(options: ClusterOptions) -> Credentials:
    """Return the credentials that kubectl would use: those of a kubeconfig come before those of a pod.

    Raises:
        CredentialsError: there are none, or they cannot be used.
    """
    if options.kubeconfig is not None:
        return from_kubeconfig([options.kubeconfig], context=options.context)
    paths = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = paths or [Path.home() / ".kube" / "config"]
    if options.context is not None or any(path.exists() for path in paths):
        return from_kubeconfig(paths, context=options.context)
    return load_credentials()

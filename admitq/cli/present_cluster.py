"""The cluster with which a simulation begins: a running one, which is only read, or stored objects."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from admitq.asking.listed_objects import list_stored_objects
from admitq.asking.object_files import read_object_files
from admitq.asking.sources import observe_objects
from admitq.asking.stored_objects import SourceError, StoredObjects
from admitq.manifests.documents import InputError, Place, Problem
from admitq.runtime.client import Client, user_agent
from admitq.runtime.credentials import CredentialsError, load_credentials
from admitq.runtime.discovery import list_group_versions
from admitq.runtime.errors import ApiError
from admitq.simulator.present import PresentCluster, read_present
from admitq.simulator.schema import Nanoseconds
from admitq_api.labels import GROUPS, Names, names_for

FROM_CLUSTER = "--from-cluster"
TIMEOUT_S = 30.0

Result = TypeVar("Result")


class ClusterSource(NamedTuple):
    """Where the objects of a cluster come from: files, or a cluster of a kubeconfig.

    Attributes:
        paths: files and folders with stored objects; empty for a running cluster.
        kubeconfig: the kubeconfig file; None for the files of KUBECONFIG or the default one.
        context: its context; None for the current one.
    """

    paths: tuple[Path, ...] = ()
    kubeconfig: Path | None = None
    context: str | None = None


def read_cluster(source: ClusterSource, unknown: Nanoseconds) -> PresentCluster:
    """Return the cluster with which a simulation begins.

    Args:
        source: where its objects come from.
        unknown: the remaining run time of workloads about which nothing is known, in nanoseconds.

    Raises:
        InputError: the objects cannot be read.
    """
    if source.paths:
        shown = ", ".join(map(str, source.paths))
        objects = _reporting("--from", lambda: _read_files(source.paths))
    else:
        shown = "the cluster"
        objects = _reporting(FROM_CLUSTER, lambda: asyncio.run(_list_objects(source)))
    return read_present(_reporting(shown, lambda: observe_objects(objects)), unknown, shown)


def _read_files(paths: Sequence[Path]) -> StoredObjects:
    files = read_object_files(paths)
    if files.state_log is not None:
        raise SourceError("a state dump has no objects: give the output of kubectl get --output yaml")
    return files.objects


async def _list_objects(source: ClusterSource) -> StoredObjects:
    credentials = load_credentials(source.kubeconfig, context=source.context)
    async with Client(credentials, user_agent=user_agent("simulate"), timeout=TIMEOUT_S) as client:
        served = {group for group, version in await list_group_versions(client) if version == Names.version}
        group = next((group for group in GROUPS if group in served), None)
        if group is None:
            raise SourceError(f"{credentials.server} serves neither {' nor '.join(GROUPS)}")
        return await list_stored_objects(client, names_for(group))


def _reporting(place: str, read: Callable[[], Result]) -> Result:
    """Report errors of sources as problems of an option."""
    try:
        return read()
    except (SourceError, CredentialsError) as error:
        raise InputError([Problem(Place(place), "", str(error))]) from error
    except ApiError as error:
        raise InputError([Problem(Place(place), "", error.message)]) from error

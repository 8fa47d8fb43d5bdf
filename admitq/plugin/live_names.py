"""Names of objects that exist now, for completion. Failures yield no names: a shell shows no errors."""

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from admitq.plugin.options import ClusterOptions
from admitq_api.labels import GROUPS

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

TIMEOUT_S: Final = 3.0
"""How long a user waits for names at most."""
MOST_NAMES: Final = 500


def look_up(source: str, values: Mapping[str, str]) -> list[str]:
    """Return the names that `Parameter.completes` selects, sorted.

    Args:
        source: ``contexts``, ``groups``, ``namespaces``, the plural of a kind of admitq, or ``questions``:
            names of Workloads, and of their jobs as TYPE[.GROUP]/NAME.
        values: the values of the options that select cluster and namespace.
    """
    kubeconfig = values.get("kubeconfig")
    options = ClusterOptions(
        None if kubeconfig is None else Path(kubeconfig).expanduser(),
        values.get("context"),
        values.get("namespace"),
        values.get("api_group"),
    )
    if source == "groups":
        return list(GROUPS)
    if source == "contexts":
        return _contexts(options)
    if source == "questions":
        return _names(options, list_workloads_and_jobs)
    return _names(options, lambda access: _list(access, source))


def _contexts(options: ClusterOptions) -> list[str]:
    from admitq.plugin.cluster_access import kubeconfig_paths
    from admitq.runtime.credentials import CredentialsError, list_contexts

    try:
        return sorted(list_contexts(kubeconfig_paths(options)))
    except CredentialsError:
        return []


def _names(
    options: ClusterOptions, read: "Callable[[ClusterAccess], Coroutine[Any, Any, list[str]]]"
) -> list[str]:
    from admitq.plugin.cluster_access import call_cluster
    from admitq.plugin.remedies import CommandError

    try:
        return sorted(call_cluster(options, read, timeout=TIMEOUT_S))
    except CommandError:
        return []


async def _list(access: "ClusterAccess", source: str) -> list[str]:
    from admitq.plugin.object_kinds import KINDS
    from admitq.runtime.resources import NAMESPACES

    resource = next((kind.resource(access.kinds) for kind in KINDS if kind.plural == source), NAMESPACES)
    namespace = access.namespace if resource.namespaced else None
    # One page is enough: more names would not help a user to choose.
    async for page in access.client.pages(resource, namespace, page_size=MOST_NAMES):
        return [one["metadata"]["name"] for one in page.items]
    return []


async def list_workloads_and_jobs(access: "ClusterAccess") -> list[str]:
    """Return names of Workloads in a namespace, and of their jobs as TYPE[.GROUP]/NAME."""
    from admitq.plugin.job_objects import find_known_resource
    from admitq.plugin.rows import owners_of
    from admitq_api.json_objects import text_at

    names: set[str] = set()
    async for page in access.client.pages(access.kinds.workloads, access.namespace, page_size=MOST_NAMES):
        for one in page.items:
            names.add(one["metadata"]["name"])
            for owner in owners_of(one):
                type_ = text_at(owner, ("kind",)).lower()
                group = text_at(owner, ("apiVersion",)).rpartition("/")[0]
                known = find_known_resource(type_, "")
                is_short = known is not None and known.group == group
                names.add(
                    f"{type_ if is_short or not group else f'{type_}.{group}'}/{text_at(owner, ('name',))}"
                )
        break
    return sorted(names)

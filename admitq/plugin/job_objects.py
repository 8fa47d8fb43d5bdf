"""Find objects that a user names as TYPE[.GROUP]/NAME, and the pods that belong to them."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from admitq.integrations.registry import BUILT_IN_KINDS
from admitq.plugin.object_kinds import WORKLOAD
from admitq.plugin.remedies import CommandError
from admitq.plugin.rows import controller_of, owners_of
from admitq.runtime.discovery import find_resource_of_kind, list_group_versions, list_resources
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS, REPLICA_SETS, Resource
from admitq_api.json_objects import JsonObject, text_at

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

MOST_GENERATIONS = 10
"""The longest chain of owners from a job to a pod."""


class NamedObjects:
    """The objects that TYPE[.GROUP]/NAME names: one in a namespace, or several in all namespaces."""

    def __init__(self, objects: Iterable[JsonObject], *, is_workload: bool) -> None:
        self.uids = {text_at(one, ("metadata", "uid")) for one in objects}
        """The objects themselves."""
        self.job_uids = set(self.uids)
        """The jobs: the objects themselves, or the jobs of Workloads."""
        if is_workload:
            self.job_uids = {text_at(owner, ("uid",)) for one in objects for owner in owners_of(one)}

    def has_workload(self, workload: JsonObject, job_uid: str) -> bool:
        """Return whether a Workload is one of the objects, or belongs to one.

        Args:
            workload: the Workload.
            job_uid: the key of the label with the UID of its job.
        """
        metadata: Mapping[str, Any] = workload["metadata"]
        return (
            metadata["uid"] in self.uids
            or text_at(metadata, ("labels", job_uid)) in self.job_uids
            or any(owner.get("uid") in self.job_uids for owner in owners_of(workload))
        )


async def find_named(
    access: "ClusterAccess", text: str, namespace: str | None, *, option: str = "--for"
) -> NamedObjects:
    """Return the objects that a text of the form TYPE[.GROUP]/NAME names.

    Args:
        access: the cluster.
        text: the text.
        namespace: where to search; None means all namespaces.
        option: the option with the text, for errors; empty for an argument.

    Raises:
        CommandError: the text has another form, its type is not known, or there is no such object.
        ApiError: a call failed.
    """
    type_, slash, name = text.partition("/")
    if not (slash and type_ and name):
        raise CommandError(
            f"{_begin(option)}{text!r} is not TYPE/NAME\n"
            f"Write, for example, {_value(option)}job/{name or type_}."
        )
    resource = await find_resource(access, type_, option=option)
    if namespace is None:
        found, _ = await access.client.list(resource, field_selector=f"metadata.name={name}")
        where = "-A"
    else:
        where = f"-n {namespace}"
        try:
            found = [await access.client.get(resource, name, namespace if resource.namespaced else None)]
        except ApiError as error:
            if not error.is_not_found:
                raise
            found = []
    if not found:
        raise CommandError(
            f"{_begin(option)}no {text} exists\nkubectl get {resource} {where} lists what exists."
        )
    return NamedObjects(found, is_workload=resource == access.kinds.workloads)


def _begin(option: str) -> str:
    return f"{option}: " if option else ""


def _value(option: str) -> str:
    return f"{option} " if option else ""


async def find_resource(access: "ClusterAccess", text: str, *, option: str = "--for") -> Resource:
    """Return the resource that TYPE or TYPE.GROUP names: its kind or its plural, in any case.

    Args:
        access: the cluster.
        text: the text.
        option: the option with the text, for errors; empty for an argument.

    Raises:
        CommandError: no such type is served, or a type without a group is no kind of job.
        ApiError: a call failed.
    """
    type_, _, group = text.lower().partition(".")
    if type_ in {WORKLOAD.name, *WORKLOAD.aliases} and group in {"", access.names.group}:
        return access.kinds.workloads
    if (known := find_known_resource(type_, group)) is not None:
        return known
    if not group:
        raise CommandError(
            f"{_begin(option)}{text!r} is not a kind of job\n"
            f"Add its API group: {_value(option)}{text}.GROUP/NAME."
        )
    for found, version in sorted(await list_group_versions(access.client)):
        if found == group:
            for resource in await list_resources(access.client, group, version):
                if type_ in {resource.kind.lower(), resource.plural}:
                    return resource
    raise CommandError(
        f"{_begin(option)}the cluster serves no {text}\nkubectl api-resources lists what it serves."
    )


def find_known_resource(type_: str, group: str) -> Resource | None:
    """Return the built-in kind of job that TYPE and GROUP name; None if there is none.

    Args:
        type_: its kind or its plural, in lower case.
        group: its API group; empty if the user gives none.
    """
    known = (PODS, REPLICA_SETS, *(_resource_of(kind) for kind in BUILT_IN_KINDS))
    for resource in known:
        if type_ in {resource.kind.lower(), resource.plural} and group in {"", resource.group}:
            return resource
    return None


async def find_owner_resource(access: "ClusterAccess", owner: JsonObject) -> Resource:
    """Return the resource of the job that an owner reference of a Workload names.

    Raises:
        CommandError: the kind of the job is not served.
        ApiError: a call failed.
    """
    api_version, kind = text_at(owner, ("apiVersion",)), text_at(owner, ("kind",))
    group, _, version = api_version.rpartition("/")
    resource = await find_resource_of_kind(access.client, group, version, kind)
    if resource is None:
        raise CommandError(f"the cluster does not serve {kind} of {api_version}, the kind of the job")
    return resource


def _resource_of(kind: Any) -> Resource:
    return Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=True)


async def list_pods_of(
    access: "ClusterAccess",
    named: NamedObjects,
    namespace: str | None,
    label_selector: str | None,
    field_selector: str | None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the pods of jobs, also those that belong to objects of the jobs.

    Returns:
        The pods, and the kinds of owners that could not be listed: pods of these may be missing.

    Raises:
        ApiError: the pods cannot be listed.
    """
    pods, _ = await access.client.list(PODS, namespace, label_selector, field_selector)
    parents: dict[str, str] = {}
    unknown: list[str] = []
    listed: set[tuple[str, str]] = set()
    generation: list[JsonObject] = [*pods]
    for _ in range(MOST_GENERATIONS):
        kinds = {
            (text_at(owner, ("apiVersion",)), text_at(owner, ("kind",)))
            for owner in map(controller_of, generation)
            if owner and owner.get("uid") not in named.job_uids
        } - listed
        if not kinds:
            break
        listed |= kinds
        generation = []
        for api_version, kind in sorted(kinds):
            try:
                generation += await _list_kind(access, api_version, kind, namespace)
            except ApiError as error:
                unknown.append(f"{kind}: {error.message}")
        for one in generation:
            parents[text_at(one, ("metadata", "uid"))] = text_at(controller_of(one), ("uid",))
    return [pod for pod in pods if _belongs(pod, named.job_uids, parents)], unknown


async def _list_kind(
    access: "ClusterAccess", api_version: str, kind: str, namespace: str | None
) -> list[dict[str, Any]]:
    group, _, version = api_version.rpartition("/")
    resource = await find_resource_of_kind(access.client, group, version, kind)
    if resource is None or not resource.namespaced:
        return []
    objects, _ = await access.client.list(resource, namespace)
    return objects


def _belongs(pod: JsonObject, job_uids: set[str], parents: Mapping[str, str]) -> bool:
    if text_at(pod, ("metadata", "uid")) in job_uids:
        return True
    uid = text_at(controller_of(pod), ("uid",))
    for _ in range(MOST_GENERATIONS):
        if not uid or uid in job_uids:
            break
        uid = parents.get(uid, "")
    return uid in job_uids

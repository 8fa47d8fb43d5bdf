"""Who controls an object, and which of its ancestors is queued in its stead."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from admitq.integrations.base import ChildDifference, Integration, OwnerKind
from admitq.integrations.workload_names import MAX_LABEL_LENGTH
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

MAX_OWNER_DEPTH = 10
"""Most owners between an object and the ancestor that manages it."""

OwnerLookup = Callable[["Owner"], Awaitable[JsonObject | None]]
"""Finds an owner; it may have to ask the API server."""

OwnerResolver = Callable[[Integration, JsonObject], Awaitable[JsonObject]]
"""Gives an owner of a kind what its pods follow from besides, as far as that is there."""


class OwnerMissing(LookupError):
    """An owner of a known kind does not exist (yet); its controller reference may be ahead of our watch."""


class NestedTooDeep(ValueError):
    """The chain of owners is longer than ``DEEPEST``, or closes to a cycle."""


def get_controller(obj: JsonObject) -> JsonObject | None:
    """Owner reference of the object's controller."""
    references = value_at(obj, ("metadata", "ownerReferences"), [])
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, Mapping) and reference.get("controller") is True:
            return reference
    return None


def has_known_controller(
    obj: JsonObject, integrations: Iterable[Integration], external: Iterable[OwnerKind] = ()
) -> bool:
    """Whether the object's controller is of a kind that is followed, so that it has to be asked about.

    Args:
        obj: the object.
        integrations: the enabled ones.
        external: kinds that a third party queues.
    """
    reference = get_controller(obj)
    return reference is not None and _parse_owner_kind(reference) in _list_followed_kinds(
        tuple(integrations), external
    )


def _list_followed_kinds(
    integrations: Sequence[Integration], external: Iterable[OwnerKind]
) -> set[OwnerKind]:
    enabled = {OwnerKind(*one.gvk) for one in integrations}
    return (
        enabled | set(external) | {kind for one in integrations for kind in one.ownership.intermediate_owners}
    )


def is_controlled_by(obj: JsonObject, owner: JsonObject) -> bool:
    """Whether the object's controller is this very owner, and not a former one of the same name."""
    reference = get_controller(obj)
    return reference is not None and reference.get("uid") == value_at(owner, ("metadata", "uid"))


def is_single_pod_workload(workload: JsonObject) -> bool:
    """Whether the Workload is that of a single pod. The members of a group own theirs without control."""
    reference = get_controller(workload)
    return reference is not None and (reference.get("apiVersion"), reference.get("kind")) == ("v1", "Pod")


def is_group_workload(workload: JsonObject, names: Names) -> bool:
    """Whether a Workload stands for the group of its name, which many own and nobody controls."""
    made_for_it = value_at(workload, ("metadata", "annotations", names.is_group_workload)) == "true"
    return made_for_it and get_controller(workload) is None


def is_served_workload(workload: JsonObject, names: Names) -> bool:
    """Whether a Workload was made for an object that serves, which alone decides what it asks for."""
    return value_at(workload, ("metadata", "annotations", names.job_owner_name)) is not None


def has_other_owner(workload: JsonObject, owners: Iterable[str], names: Names) -> bool:
    """Whether a Workload names an owner whose UID is none of these, in a reference or in its label job-uid.

    The label counts beside the references: the Workload of a job that was deleted with ``--cascade=orphan``
    has lost its references, and may hold the quota of pods that still run.
    """
    references = value_at(workload, ("metadata", "ownerReferences"), [])
    labelled = value_at(workload, ("metadata", "labels", names.job_uid))
    uids = {reference.get("uid") for reference in references}
    return not (uids | ({labelled} if labelled else set())) <= set(owners)


def get_queue_name(obj: JsonObject, names: Names) -> str:
    """LocalQueue that the object's label names; empty without one."""
    name: Any = value_at(obj, ("metadata", "labels", names.queue_name), "")
    return name if isinstance(name, str) else ""


def list_prebuilt_names(obj: JsonObject, names: Names, *, by_annotation: bool) -> list[tuple[str, Any]]:
    """Where the object names the Workload that it adopts, and the name; the first place decides.

    Where labels identify Workloads, an annotation counts only for a name that is too long for a label.
    """
    key = names.prebuilt_workload_name
    labelled, annotated = (
        (place, value_at(obj, ("metadata", place, key))) for place in ("labels", "annotations")
    )
    is_long = isinstance(annotated[1], str) and len(annotated[1]) > MAX_LABEL_LENGTH
    places = [annotated, labelled] if by_annotation else [labelled, *([annotated] if is_long else [])]
    return [place for place in places if place[1] is not None]


def get_prebuilt_name(obj: JsonObject, names: Names, *, by_annotation: bool) -> str:
    """Name of the Workload that the object adopts; empty if one is created for it."""
    return next(
        (name for _, name in list_prebuilt_names(obj, names, by_annotation=by_annotation) if name), ""
    )


def _parse_owner_kind(reference: JsonObject) -> OwnerKind:
    group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
    return OwnerKind(group, version, str(reference.get("kind", "")))


class Owner(NamedTuple):
    """An owner as a reference names it."""

    kind: OwnerKind
    namespace: str
    """Of the object that it owns; the owner itself may have none."""
    name: str
    uid: str


class AncestorSearchResult(NamedTuple):
    """What an object's chain of controller references leads to."""

    ancestor: JsonObject | None = None
    """The top-most ancestor that is queued itself, so that the object follows it and is not queued."""
    claimed_ancestor: JsonObject | None = None
    """The top-most queued one that the chain names, where its controller did not create all that it leads
    through."""
    difference: ChildDifference | None = None
    """In what the lowest such object differs."""


class AncestorFinder:
    """How ancestors are found: the kinds that are followed, and where their objects are.

    Args:
        lookup: finds owners.
        integrations: the enabled ones.
        names: names of labels.
        without_queue_name: jobs without a queue name are managed too.
        external: kinds that a third party queues.
        elastic_jobs: whether jobs may be elastic.
        resolve: gives an owner what its pods follow from besides; by default owners say all themselves.
        read_again: finds an owner as the API server has it now, where ``lookup`` may be behind. It is asked
            before an object counts as not created by its owner's controller.
    """

    def __init__(
        self,
        lookup: OwnerLookup,
        integrations: Iterable[Integration],
        names: Names,
        *,
        without_queue_name: bool = False,
        external: Iterable[OwnerKind] = (),
        elastic_jobs: bool = True,
        resolve: OwnerResolver | None = None,
        read_again: OwnerLookup | None = None,
    ) -> None:
        self._lookup = lookup
        self._enabled = {OwnerKind(*one.gvk): one for one in integrations}
        self._names = names
        self._without_queue_name = without_queue_name
        self._external = frozenset(external)
        self._known = _list_followed_kinds(tuple(self._enabled.values()), self._external)
        self._elastic_jobs = elastic_jobs
        self._resolve = resolve
        self._read_again = read_again

    async def find(self, obj: JsonObject) -> AncestorSearchResult:
        """Follow the controller references of an object, which is itself no answer.

        Only kinds of enabled integrations, external ones, and those that integrations know as owners are
        followed, and only while the reference's UID is that of the object found and the owner's kind creates
        objects of this kind at all: a forged reference frees nothing from the queue. What covers its children
        only together with an ancestor of its own is followed, and is no answer.

        Raises:
            OwnerMissing: an owner of a known kind is not found.
            NestedTooDeep: the chain is too long.
        """
        namespace = value_at(obj, ("metadata", "namespace"), "")
        found, current = AncestorSearchResult(), obj
        for _ in range(MAX_OWNER_DEPTH + 1):
            reference = get_controller(current)
            if reference is None or (kind := _parse_owner_kind(reference)) not in self._known:
                return found
            integration = self._enabled.get(kind)
            if integration is not None and not integration.may_create_kind_of(current):
                return found
            named = Owner(kind, namespace, str(reference.get("name", "")), str(reference.get("uid", "")))
            owner = await self._lookup(named)
            if owner is None:
                if found.difference is not None:
                    return found
                raise OwnerMissing(f"{kind.kind} {named.name} is not known")
            if value_at(owner, ("metadata", "uid")) != reference.get("uid"):
                return found
            if integration is not None and found.difference is None:
                difference = await self._compare(integration, named, owner, current, obj)
                found = found._replace(difference=difference)
            covers = kind in self._external or (integration is not None and integration.covers_child(obj))
            if covers and (self._without_queue_name or get_queue_name(owner, self._names)):
                key = "ancestor" if found.difference is None else "claimed_ancestor"
                found = found._replace(**{key: owner})
            current = owner
        raise NestedTooDeep(f"more than {MAX_OWNER_DEPTH} owners")

    async def _compare(
        self, integration: Integration, named: Owner, owner: JsonObject, child: JsonObject, obj: JsonObject
    ) -> ChildDifference | None:
        difference = await self._compare_with(integration, owner, child, obj)
        if difference is None or self._read_again is None:
            return difference
        current = await self._read_again(named)
        if current is None or value_at(current, ("metadata", "uid")) != named.uid:
            return difference
        return await self._compare_with(integration, current, child, obj)

    async def _compare_with(
        self, integration: Integration, owner: JsonObject, child: JsonObject, obj: JsonObject
    ) -> ChildDifference | None:
        """Compare the child of an owner, and the object that the chain of owners begins with."""
        resolved = owner if self._resolve is None else await self._resolve(integration, owner)
        difference = integration.ownership.compare_child(resolved, child, self._is_elastic)
        if difference is not None or child is obj:
            return difference
        return integration.ownership.compare_grandchild(resolved, obj, self._is_elastic)

    def _is_elastic(self, obj: JsonObject) -> bool:
        annotation = value_at(obj, ("metadata", "annotations", self._names.elastic_job))
        return self._elastic_jobs and annotation == "true"

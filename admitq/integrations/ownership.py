"""The controllers of objects, and the search for the ancestor with which an object is queued."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from admitq.integrations.base import ChildDifference, Integration
from admitq.integrations.references import OwnerKind
from admitq.integrations.workload_names import MAX_LABEL_LENGTH
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

MAX_OWNER_DEPTH = 10
"""The maximum number of owners between an object and its queued ancestor."""

OwnerLookup = Callable[["Owner"], Awaitable[JsonObject | None]]
"""A function that returns an owner. It may call the API server."""

OwnerResolver = Callable[[Integration, JsonObject], Awaitable[JsonObject]]
"""A function that returns an owner with the data of the objects that determine its pods, if they exist."""


class OwnerMissing(LookupError):
    """An owner of a known kind was not found. The watch of its kind may be behind."""


class NestedTooDeep(ValueError):
    """The chain of owners is longer than ``MAX_OWNER_DEPTH``, or is a cycle."""


def get_controller(obj: JsonObject) -> JsonObject | None:
    """Return the owner reference of the object's controller; None without one."""
    references = value_at(obj, ("metadata", "ownerReferences"), [])
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, Mapping) and reference.get("controller") is True:
            return reference
    return None


def has_known_controller(
    obj: JsonObject, integrations: Iterable[Integration], external: Iterable[OwnerKind] = ()
) -> bool:
    """Whether the object's controller is of a known kind, so that it must be looked up.

    Args:
        obj: the object.
        integrations: the enabled integrations.
        external: kinds that another controller queues.
    """
    reference = get_controller(obj)
    return reference is not None and _parse_owner_kind(reference) in _list_followed_kinds(
        tuple(integrations), external
    )


def _list_followed_kinds(
    integrations: Sequence[Integration], external: Iterable[OwnerKind]
) -> set[OwnerKind]:
    enabled = {OwnerKind(*integration.gvk) for integration in integrations}
    return (
        enabled
        | set(external)
        | {kind for integration in integrations for kind in integration.ownership.intermediate_owners}
    )


def is_controlled_by(obj: JsonObject, owner: JsonObject) -> bool:
    """Whether the object's controller is this owner, compared by UID."""
    reference = get_controller(obj)
    return reference is not None and reference.get("uid") == value_at(owner, ("metadata", "uid"))


def is_single_pod_workload(workload: JsonObject) -> bool:
    """Whether the Workload belongs to a single pod. Members of a group do not control their Workload."""
    reference = get_controller(workload)
    return reference is not None and (reference.get("apiVersion"), reference.get("kind")) == ("v1", "Pod")


def is_group_workload(workload: JsonObject, names: Names) -> bool:
    """Whether a Workload belongs to the pod group of its name. It then has owners and no controller."""
    is_marked = value_at(workload, ("metadata", "annotations", names.is_group_workload)) == "true"
    return is_marked and get_controller(workload) is None


def is_served_workload(workload: JsonObject, names: Names) -> bool:
    """Whether a Workload belongs to an object that serves. That object alone determines its requests."""
    return value_at(workload, ("metadata", "annotations", names.job_owner_name)) is not None


def has_other_owner(workload: JsonObject, owners: Iterable[str], names: Names) -> bool:
    """Whether a Workload has an owner with another UID, by an owner reference or by its label job-uid.

    The label counts too: if a job is deleted with ``--cascade=orphan``, its Workload loses its owner
    references and can still hold quota for running pods.
    """
    references = value_at(workload, ("metadata", "ownerReferences"), [])
    labelled = value_at(workload, ("metadata", "labels", names.job_uid))
    uids = {reference.get("uid") for reference in references}
    return not (uids | ({labelled} if labelled else set())) <= set(owners)


def get_queue_name(obj: JsonObject, names: Names) -> str:
    """Return the LocalQueue that the object's label names; empty without the label."""
    name: Any = value_at(obj, ("metadata", "labels", names.queue_name), "")
    return name if isinstance(name, str) else ""


def list_prebuilt_names(obj: JsonObject, names: Names, *, by_annotation: bool) -> list[tuple[str, Any]]:
    """Return where the object names the Workload that it adopts ("labels", "annotations"), with each name.

    The first item decides. If labels identify Workloads, an annotation counts only if its name is too long
    for a label.
    """
    key = names.prebuilt_workload_name
    labelled, annotated = (
        (place, value_at(obj, ("metadata", place, key))) for place in ("labels", "annotations")
    )
    is_long = isinstance(annotated[1], str) and len(annotated[1]) > MAX_LABEL_LENGTH
    places = [annotated, labelled] if by_annotation else [labelled, *([annotated] if is_long else [])]
    return [place for place in places if place[1] is not None]


def get_prebuilt_name(obj: JsonObject, names: Names, *, by_annotation: bool) -> str:
    """Return the name of the Workload that the object adopts; empty if admitq creates its Workload."""
    return next(
        (name for _, name in list_prebuilt_names(obj, names, by_annotation=by_annotation) if name), ""
    )


def _parse_owner_kind(reference: JsonObject) -> OwnerKind:
    group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
    return OwnerKind(group, version, str(reference.get("kind", "")))


class Owner(NamedTuple):
    """An owner, as an owner reference names it."""

    kind: OwnerKind
    namespace: str
    """The namespace of the owned object. The owner itself can be cluster-scoped."""
    name: str
    uid: str


class AncestorSearchResult(NamedTuple):
    """The result of following an object's chain of controller references."""

    ancestor: JsonObject | None = None
    """The top-most queued ancestor. The object is queued with it and not separately."""
    claimed_ancestor: JsonObject | None = None
    """The top-most queued ancestor, if an object of the chain was not created by its owner's controller."""
    difference: ChildDifference | None = None
    """How the lowest such object differs from those that its owner's controller creates."""


class AncestorFinder:
    """Finds the queued ancestors of objects.

    Args:
        lookup: returns owners.
        integrations: the enabled integrations.
        names: the names of labels.
        without_queue_name: whether jobs without a queue name are managed too.
        external: kinds that another controller queues.
        elastic_jobs: whether jobs can be elastic.
        resolve: returns an owner with the data of the objects that determine its pods; by default, owners
            state all of their pods themselves.
        read_again: returns the current owner from the API server, because ``lookup`` may be behind. It is
            called before an object counts as not created by its owner's controller.
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
        self._enabled = {OwnerKind(*integration.gvk): integration for integration in integrations}
        self._names = names
        self._without_queue_name = without_queue_name
        self._external = frozenset(external)
        self._known = _list_followed_kinds(tuple(self._enabled.values()), self._external)
        self._elastic_jobs = elastic_jobs
        self._resolve = resolve
        self._read_again = read_again

    async def find(self, obj: JsonObject) -> AncestorSearchResult:
        """Return the result of following the controller references of an object.

        The search follows owners of enabled integrations, of external kinds and of intermediate kinds. It
        stops if the UID of a reference is not that of the found object, or if the owner's kind does not
        create objects of the child's kind. So a forged reference does not let an object skip the queue. An
        owner that does not cover its children is followed, and is not a result.

        Raises:
            OwnerMissing: an owner of a known kind was not found.
            NestedTooDeep: the chain is too long.
        """
        namespace = value_at(obj, ("metadata", "namespace"), "")
        result, current = AncestorSearchResult(), obj
        for _ in range(MAX_OWNER_DEPTH + 1):
            reference = get_controller(current)
            if reference is None or (kind := _parse_owner_kind(reference)) not in self._known:
                return result
            integration = self._enabled.get(kind)
            if integration is not None and not integration.may_create_kind_of(current):
                return result
            named = Owner(kind, namespace, str(reference.get("name", "")), str(reference.get("uid", "")))
            owner = await self._lookup(named)
            if owner is None:
                if result.difference is not None:
                    return result
                raise OwnerMissing(f"{kind.kind} {named.name} is not known")
            if value_at(owner, ("metadata", "uid")) != reference.get("uid"):
                return result
            if integration is not None and result.difference is None:
                difference = await self._compare(integration, named, owner, current, obj)
                result = result._replace(difference=difference)
            covers = kind in self._external or (integration is not None and integration.covers_child(obj))
            if covers and (self._without_queue_name or get_queue_name(owner, self._names)):
                key = "ancestor" if result.difference is None else "claimed_ancestor"
                result = result._replace(**{key: owner})
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
        """Compare the child of an owner, and the start of the chain, with what the owner creates."""
        resolved = owner if self._resolve is None else await self._resolve(integration, owner)
        difference = integration.ownership.compare_child(resolved, child, self._is_elastic)
        if difference is not None or child is obj:
            return difference
        return integration.ownership.compare_grandchild(resolved, obj, self._is_elastic)

    def _is_elastic(self, obj: JsonObject) -> bool:
        annotation = value_at(obj, ("metadata", "annotations", self._names.elastic_job))
        return self._elastic_jobs and annotation == "true"

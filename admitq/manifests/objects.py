"""Manifests by name: check them, store them, and convert them to events of the core.

A simulation begins with manifests alone. A hypothetical change applies manifests to the stored objects of a
cluster. Objects are read by the functions that the manager uses: the kinds of ``admitq_api``,
``translate.observations``, and ``job_workloads``. Objects on which decisions do not depend, such as
Deployments, are ignored and counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, cast

from admitq.core.events import Event
from admitq.core.topology.domains import HOST_NAME
from admitq.integrations.base import Integration
from admitq.integrations.references import ObjectReference, ReferencedKind
from admitq.integrations.registry import find_referenced_kind, load_integrations
from admitq.manifests.api_server import is_own_kind, store
from admitq.manifests.documents import Document, FieldPath, field_path, without_nulls
from admitq.translate.observations import Observation, observations
from admitq.translate.read_options import ReadOptions
from admitq_api.json_objects import JsonObject, apply_merge_patch, value_at, with_value
from admitq_api.labels import GROUPS, Names
from admitq_api.stored_fields import MalformedField

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""The label with the name of a namespace, which the API server sets."""

OBSERVED: Final[Mapping[str, tuple[str, str]]] = {
    "ResourceFlavor": ("resourceflavors", ""),
    "AdmissionCheck": ("admissionchecks", ""),
    "Topology": ("topologies", ""),
    "Cohort": ("cohorts", ""),
    "ClusterQueue": ("clusterqueues", ""),
    "LocalQueue": ("localqueues", "default"),
    "Namespace": ("namespaces", ""),
    "LimitRange": ("limitranges", "default"),
    "RuntimeClass": ("runtimeclasses", ""),
}
"""The kinds that the core observes besides Workloads, with their plural and their default namespace."""

NODES: Final[Mapping[str, tuple[str, str]]] = {"Node": ("nodes", "")}
"""The kind that only decisions with placement in topologies read, as ``OBSERVED``."""

_FOREIGN: Final = frozenset({("", "Namespace"), ("", "LimitRange"), ("node.k8s.io", "RuntimeClass")})
CLASSES: Final = {"WorkloadPriorityClass": "", "PriorityClass": "scheduling.k8s.io"}
"""The kinds of priority classes, with the group of those that are not of admitq's own group."""
_STORED_METADATA: Final = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "finalizers")
"""Fields of metadata that an update of a manifest leaves as they are."""


class ObjectId(NamedTuple):
    """The identity of an object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class ObjectLookup(Protocol):
    """The objects that a cluster has stored."""

    def get(self, name: ObjectId) -> JsonObject | None:
        """Return an object by its identity; None if it does not exist."""
        ...

    def of_kind(self, kind: str) -> Iterable[JsonObject]:
        """Return all objects of a kind."""
        ...


class NoObjects:
    """The objects of a cluster that is empty."""

    def get(self, _name: ObjectId) -> None:
        """Return that no object exists."""

    def of_kind(self, _kind: str) -> tuple[JsonObject, ...]:
        """Return no objects."""
        return ()


class Manifests:
    """The objects of a run, or those of a cluster with hypothetical changes.

    Args:
        names: the names of the API group.
        how: how Workloads are read.
        custom: the job kinds of the configuration.
        stored: the objects to which the manifests are applied. Their statuses stay.
        namespace: the namespace of objects that state none.
        with_serving: whether objects that serve without end are read. A run of a simulation could not end.
        with_nodes: whether nodes are read.
    """

    def __init__(
        self,
        names: Names,
        how: ReadOptions,
        custom: Iterable[Integration] = (),
        stored: ObjectLookup | None = None,
        namespace: str = "default",
        *,
        with_serving: bool = False,
        with_nodes: bool = False,
    ) -> None:
        self.names = names
        self._observed = {**OBSERVED, **NODES} if with_nodes else OBSERVED
        self._with_serving = with_serving
        self._lookup = stored or NoObjects()
        self._namespace = namespace
        self._removed: set[ObjectId] = set()
        self._kinds = {integration.gvk: integration for integration in (*load_integrations(), *custom)}
        self._observations = observations(names, how)
        self._objects: dict[ObjectId, Document] = {}
        self._given: dict[ObjectId, Document] = {}
        """The objects as in the files. Patches are applied to these."""
        self._followed: set[ObjectId] = set()
        self.left_out: Counter[str] = Counter()
        """Numbers of objects that a simulation ignores, by kind."""

    # --- adding --------------------------------------------------------------------------------

    def add(self, document: Document) -> ObjectId | None:
        """Add an object; return None if the simulation ignores it.

        Raises:
            InputError: the object is invalid, or another object has its name.
        """
        return self._put(document, replaces=False)

    def apply(self, document: Document) -> ObjectId | None:
        """Add an object, or replace the whole object of its name; return None if the simulation ignores it.

        Raises:
            InputError: the object is invalid, or the API server would reject the update.
        """
        return self._put(document, replaces=True)

    def _put(self, document: Document, *, replaces: bool) -> ObjectId | None:
        document = _without_nulls(document)
        kind = _text(document, ("kind",))
        name = self.identify(document, kind)
        if name is None:
            self.left_out[f"{kind} ({document.value.get('apiVersion', '')})"] += 1
            return None
        old = self.get(name)
        if old is not None and not replaces:
            raise document.error(("metadata", "name"), f"{name} exists already, at {old.place()}")
        self._given[name] = document
        self._objects[name] = document = self._stored(document, old)
        if _followed_kind(document) is not None:
            self._followed.add(name)
        return name

    def identify(self, document: Document, kind: str) -> ObjectId | None:
        """Return the identity of an object; None if no decision depends on its kind.

        Raises:
            InputError: the object has no name, or a version or an API group that is not served.
        """
        api_version = _text(document, ("apiVersion",))
        group, _, version = api_version.rpartition("/")
        if group in GROUPS:
            if group != self.names.group:
                raise document.error(
                    ("apiVersion",),
                    f"write {self.names.api_version}: all objects must have one API group",
                )
            if kind not in OBSERVED and kind not in CLASSES and kind != "Workload":
                return None
            if version not in {self.names.version, self.names.older_version}:
                known = " or ".join(filter(None, (self.names.version, self.names.older_version)))
                raise document.error(("apiVersion",), f"{group} has no version {version}: use {known}")
        elif (
            (group, kind) not in _FOREIGN
            and not (group == "" and kind in NODES and kind in self._observed)
            and CLASSES.get(kind) != group
        ):
            integration = self.integration_of(document.value)
            if integration is None and find_referenced_kind(group, version, kind) is None:
                return None
            if integration is not None and (
                (integration.serving is not None and not self._with_serving)
                or integration.lifecycle.is_ignored(document.value)
            ):
                return None
        namespace = (
            "" if kind in CLASSES or not self._observed.get(kind, ("", "default"))[1] else self._namespace
        )
        if (other := find_referenced_kind(group, version, kind)) is not None and not other.namespaced:
            namespace = ""
        if namespace:
            namespace = value_at(document.value, ("metadata", "namespace")) or namespace
            if not isinstance(namespace, str):
                raise document.error(("metadata", "namespace"), "must be of type string")
        generated = value_at(document.value, ("metadata", "generateName"))
        name = generated.rstrip("-") if isinstance(generated, str) else _text(document, ("metadata", "name"))
        return ObjectId(kind, namespace, name)

    def _stored(self, document: Document, old: Document | None = None) -> Document:
        """Return the object as the API server stores it. Objects of other groups are returned unchanged."""
        group = str(document.value["apiVersion"]).rpartition("/")[0]
        return store(document, self.names, old) if group == self.names.group else document

    # --- queries -----------------------------------------------------------------------------------

    def integration_of(self, obj: JsonObject) -> Integration | None:
        """Return the job kind of an object."""
        group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
        return self._kinds.get((group, version, str(obj.get("kind", ""))))

    def get(self, name: ObjectId) -> Document | None:
        """Return an object by its identity."""
        document = self._objects.get(name)
        if document is None and (stored := self._find_stored(name)) is not None:
            # Stored objects of a list have no kind.
            kind = {"apiVersion": self.names.api_version, "kind": name.kind} if is_own_kind(name.kind) else {}
            return Document("the cluster", {**kind, **stored})
        return document

    def _find_stored(self, name: ObjectId) -> JsonObject | None:
        return None if name in self._removed else self._lookup.get(name)

    def values_of_kind(self, kind: str) -> Iterator[JsonObject]:
        """Return all objects of a kind: manifests, then stored objects that are not changed."""
        yield from (document.value for _, document in self.of_kind(kind))
        for obj in self._lookup.of_kind(kind):
            name = ObjectId(
                kind, value_at(obj, ("metadata", "namespace"), ""), value_at(obj, ("metadata", "name"), "")
            )
            if name not in self._objects and name not in self._removed:
                yield obj

    def of_kind(self, kind: str) -> Iterator[tuple[ObjectId, Document]]:
        """Return all manifests of a kind, in the order of the files."""
        return ((name, document) for name, document in self._objects.items() if name.kind == kind)

    def workloads(self) -> Iterator[tuple[ObjectId, Document]]:
        """Return Jobs and Workloads, in the order of the files."""
        return (
            (name, document)
            for name, document in self._objects.items()
            if name.kind not in self._observed and name.kind not in CLASSES and name not in self._followed
        )

    def referenced(self, reference: ObjectReference) -> JsonObject | None:
        """Return the object that a job refers to."""
        return self._value(ObjectId(reference.kind.kind, reference.namespace, reference.name))

    def workload_priority_class(self, name: str) -> JsonObject | None:
        """Return a WorkloadPriorityClass by name."""
        return self._value(ObjectId("WorkloadPriorityClass", "", name))

    def priority_class(self, name: str) -> JsonObject | None:
        """Return a PriorityClass by name."""
        return self._value(ObjectId("PriorityClass", "", name))

    def priority_classes(self) -> Iterable[JsonObject]:
        """Return all PriorityClasses."""
        return [*self.values_of_kind("PriorityClass")]

    def _value(self, name: ObjectId) -> JsonObject | None:
        document = self.get(name)
        return None if document is None else document.value

    # --- events of the core ---------------------------------------------------------------------

    def observed(self) -> list[Event]:
        """Return the events of all manifests. Namespaces that do not exist are included."""
        named = (*self.of_kind("LocalQueue"), *self.workloads(), *self.of_kind("LimitRange"))
        for name, document in named:
            self._imply_namespace(name.namespace, document)
        return [
            self.changed(name, document) for kind in self._observed for name, document in self.of_kind(kind)
        ]

    def _imply_namespace(self, namespace: str, document: Document) -> None:
        name = ObjectId("Namespace", "", namespace)
        if self.get(name) is None:
            raw = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            self._objects[name] = Document(document.file, raw, document.node, document.base)

    def changed(self, name: ObjectId, document: Document) -> Event:
        """Return the event of the core for an object that was created or changed.

        Raises:
            InputError: a field of the object cannot be parsed.
        """
        try:
            return self._observation(name, document).changed(self.as_stored(name, document.value))
        except MalformedField as error:
            raise document.error(field_path(error.field), error.remedy) from None

    def deleted(self, name: ObjectId, document: Document) -> Event:
        """Return the event of the core for an object that was deleted."""
        return self._observation(name, document).deleted(self.as_stored(name, document.value))

    def replace(self, document: Document) -> Event:
        """Create or replace an object during the run.

        Raises:
            InputError: the kind cannot change during a run, or the object is invalid.
        """
        document = _without_nulls(document)
        name = self.identify(document, _text(document, ("kind",)))
        if name is None or name.kind not in self._observed:
            raise document.error(("kind",), self._remedy_for_kind())
        stored = self._stored(document, self.get(name))
        event = self.changed(name, stored)
        self._given[name], self._objects[name] = document, stored
        return event

    def remove(self, name: ObjectId, document: Document) -> Event:
        """Delete an object during the run. ``document`` is the part of the scenario that requests it."""
        return self.deleted(name, self.take(self._known(name, document), document))

    def take(self, name: ObjectId, document: Document) -> Document:
        """Remove an object, and return it. ``document`` is the part of the input that requests it.

        Raises:
            InputError: the object does not exist.
        """
        removed = self.get(name)
        if removed is None:
            raise document.error(("name",), f"there is no {name}")
        self._objects.pop(name, None)
        self._given.pop(name, None)
        self._removed.add(name)
        return removed

    def patched(self, name: ObjectId, patch: Mapping[str, Any], document: Document) -> Event:
        """Apply a JSON merge patch to an object during the run.

        Raises:
            InputError: the object does not exist, or the result is invalid.
        """
        original = self._given.get(self._known(name, document))
        if original is None:
            raise document.error(("name",), f"there is no {name}")
        # A problem of the result has the line of its field in the patch, if the patch contains the field.
        part = document.within(
            ("patch",), cast("Mapping[str, Any]", apply_merge_patch(original.value, patch))
        )
        return self.replace(part)

    def _known(self, name: ObjectId, document: Document) -> ObjectId:
        if name.kind not in self._observed:
            raise document.error(("kind",), self._remedy_for_kind())
        return name._replace(namespace=name.namespace or self._observed[name.kind][1])

    def _observation(self, name: ObjectId, document: Document) -> Observation:
        plural = self._observed.get(name.kind)
        if plural is None:
            raise document.error(("kind",), self._remedy_for_kind())
        return self._observations[plural[0]]

    def _remedy_for_kind(self) -> str:
        return f"only these kinds can change during a run: {', '.join(self._observed)}"

    def as_stored(self, name: ObjectId, value: JsonObject) -> JsonObject:
        """Return the object with the fields that the API server and controllers would set, or have set."""
        stored = with_value(value, ("metadata", "uid"), str(name))
        if name.namespace:
            stored = with_value(stored, ("metadata", "namespace"), name.namespace)
        old = self._find_stored(name)
        if old is not None:
            kept = {key: old["metadata"][key] for key in _STORED_METADATA if key in old["metadata"]}
            stored = with_value(stored, ("metadata",), {**stored["metadata"], **kept})
        if name.kind == "Namespace":
            return with_value(stored, ("metadata", "labels", NAMESPACE_LABEL), name.name)
        if name.kind in NODES:
            if old is not None and "status" not in stored:
                stored = {**stored, "status": old.get("status") or {}}
            return _as_registered(stored, name.name)
        if old is not None:
            return {**stored, "status": old.get("status") or {}}
        if name.kind == "AdmissionCheck":
            # The controller of the check would set this condition. Without it, ClusterQueues are inactive.
            return with_value(stored, ("status",), {"conditions": [{"type": "Active", "status": "True"}]})
        return {key: inner for key, inner in stored.items() if key != "status"}


def _as_registered(node: JsonObject, name: str) -> JsonObject:
    """Return a node with what its kubelet would set: its host name, and that it is ready, unless stated."""
    if not value_at(node, ("metadata", "labels", HOST_NAME)):
        node = with_value(node, ("metadata", "labels", HOST_NAME), name)
    if value_at(node, ("status", "conditions")) is None:
        node = with_value(node, ("status", "conditions"), [{"type": "Ready", "status": "True"}])
    return node


def _without_nulls(document: Document) -> Document:
    return replace(document, value=without_nulls(document.value))


def _followed_kind(document: Document) -> ReferencedKind | None:
    group, _, version = _text(document, ("apiVersion",)).rpartition("/")
    return find_referenced_kind(group, version, _text(document, ("kind",)))


def _text(document: Document, path: FieldPath) -> str:
    value = value_at(document.value, path)
    if not isinstance(value, str) or not value:
        raise document.error(path, "is required")
    return value

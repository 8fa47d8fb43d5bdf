"""Stored objects of a cluster, sorted for questions: those that the core observes, and others.

Objects come from files (``object_files``) or from a cluster (``listed_objects``).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from admitq.core.model import Instant
from admitq_api.json_objects import JsonObject, object_at, text_at
from admitq_api.labels import GROUPS, Names
from admitq_api.namespaces import NAMESPACE_NAME
from admitq_api.v1beta1.conversion import convert

OWN_KINDS: Final[Mapping[str, str]] = {
    "ResourceFlavor": "resourceflavors",
    "AdmissionCheck": "admissionchecks",
    "Topology": "topologies",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "Workload": "workloads",
}
"""The kinds of admitq's group that the core observes, with their plurals."""

_FOREIGN_KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("", "Namespace"): "namespaces",
    ("", "Node"): "nodes",
    ("", "LimitRange"): "limitranges",
    ("node.k8s.io", "RuntimeClass"): "runtimeclasses",
}
"""The kinds of other groups that the core observes, by group and kind."""

_ORDER: Final = (
    "resourceflavors",
    "admissionchecks",
    "topologies",
    "pods",
    "nodes",
    "cohorts",
    "clusterqueues",
    "namespaces",
    "limitranges",
    "runtimeclasses",
    "localqueues",
    "workloads",
)
"""The order in which the core observes objects: an object comes after those that it names."""

ESSENTIAL: Final = frozenset({"resourceflavors", "clusterqueues", "localqueues", "workloads"})
"""The kinds without which no answer is right."""


class SourceError(Exception):
    """Objects cannot be read. The message has the place and the remedy."""


@dataclass(frozen=True, slots=True)
class StoredObjects:
    """The stored objects of a cluster.

    Attributes:
        names: the names of the API group.
        observed: the objects that the core observes, each with the plural of its kind, in the stored version.
        others: all other objects, such as jobs and priority classes, with ``apiVersion`` and ``kind``.
        manifests: objects without a UID, as users write them. No API server has stored them.
        configuration: the configuration file of the manager; None if it is not known.
        read_at: when the objects were read; nanoseconds since the Unix epoch.
        notes: what is missing, and what is assumed instead.
    """

    names: Names
    observed: tuple[tuple[str, JsonObject], ...]
    others: tuple[JsonObject, ...] = ()
    manifests: tuple[JsonObject, ...] = ()
    configuration: str | None = None
    read_at: Instant = 0
    notes: tuple[str, ...] = ()

    def of(self, plural: str) -> list[JsonObject]:
        """Return the observed objects of one kind."""
        return [obj for each, obj in self.observed if each == plural]


@dataclass(slots=True, eq=False)
class ObjectSorter:
    """Sorts objects by kind. Of objects with the same kind and name, the last one counts."""

    names: Names
    configuration: str | None = None
    notes: list[str] = field(default_factory=list[str])
    _observed: dict[str, dict[tuple[str, str], JsonObject]] = field(
        default_factory=lambda: {plural: {} for plural in _ORDER}
    )
    _others: dict[tuple[str, str, str, str], JsonObject] = field(
        default_factory=dict[tuple[str, str, str, str], JsonObject]
    )
    _manifests: list[JsonObject] = field(default_factory=list[JsonObject])

    def add(self, obj: JsonObject) -> None:
        """Add an object with ``apiVersion`` and ``kind``."""
        group, _, version = text_at(obj, ("apiVersion",)).rpartition("/")
        kind, namespace, name = text_at(obj, ("kind",)), *_identity(obj)
        if kind == "ConfigMap" and (text := find_configuration([obj])):
            self.configuration = text
        if kind == "Configuration" and group.startswith("config."):
            self.configuration = json.dumps(obj)
            return
        if group in GROUPS and group != self.names.group:
            return
        if not text_at(obj, ("metadata", "uid")):
            self._manifests.append(obj)
            return
        plural = OWN_KINDS.get(kind) if group == self.names.group else _FOREIGN_KINDS.get((group, kind))
        if plural is None:
            self._others[group, kind, namespace, name] = obj
            if (group, kind) == ("", "Pod"):
                # Pods are jobs, and they take room on nodes.
                self.add_observed("pods", obj)
            return
        if group == self.names.group and version == self.names.older_version:
            obj = convert(obj, self.names.version, self.names)
        self.add_observed(plural, obj)

    def add_observed(self, plural: str, obj: JsonObject) -> None:
        """Add an object of a kind that the core observes, in the stored version."""
        self._observed[plural][_identity(obj)] = obj

    def sorted_objects(self, read_at: Instant) -> StoredObjects:
        """Return all objects that were added.

        Namespaces that are missing exist if queues or Workloads are in them. Only their names are known then.
        """
        known = self._observed["namespaces"]
        named = {
            namespace for plural in ("localqueues", "workloads") for namespace, _ in self._observed[plural]
        }
        if missing := sorted(named - {name for _, name in known}):
            self.notes.append(
                f"labels of namespaces are not known: {_shortened(missing)}. "
                "A ClusterQueue that selects namespaces by labels may select others than the answer assumes."
            )
            for name in missing:
                known["", name] = {"metadata": {"name": name, "labels": {NAMESPACE_NAME: name}}}
        return StoredObjects(
            self.names,
            tuple((plural, obj) for plural in _ORDER for _, obj in sorted(self._observed[plural].items())),
            tuple(obj for _, obj in sorted(self._others.items())),
            tuple(self._manifests),
            self.configuration,
            read_at,
            tuple(self.notes),
        )


def _identity(obj: JsonObject) -> tuple[str, str]:
    return text_at(obj, ("metadata", "namespace")), text_at(obj, ("metadata", "name"))


def _shortened(names: Iterable[str], most: int = 3) -> str:
    listed = list(names)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")


def find_configuration(config_maps: Iterable[JsonObject]) -> str | None:
    """Return the first configuration file of a manager in ConfigMaps; None if there is none."""
    texts = (
        text
        for config_map in config_maps
        for text in object_at(config_map, ("data",)).values()
        if isinstance(text, str) and _is_configuration(text)
    )
    return next(texts, None)


def _is_configuration(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines()]
    return "kind: Configuration" in lines and any(line.startswith("apiVersion: config.") for line in lines)

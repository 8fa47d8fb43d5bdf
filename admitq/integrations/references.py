"""Kinds of objects and single objects to which jobs refer: owners, and objects that determine pods."""

from collections.abc import Callable
from typing import NamedTuple

from admitq_api.json_objects import JsonObject


class OwnerKind(NamedTuple):
    """The kind of an object that may control a job. The group is empty for the core API."""

    group: str
    version: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> "OwnerKind":
        """Return the kind that the configuration writes as ``Kind.version.group``."""
        kind, version, group = text.split(".", 2)
        return cls(group, version, kind)


class ReferencedKind(NamedTuple):
    """A kind of objects that jobs refer to.

    Attributes:
        kind: the kind.
        plural: the name of its resource.
        namespaced: whether its objects are namespaced.
        is_required: whether the pods of a job are unknown without the object. Otherwise the job controls the
            object, which states the current number of pods. Only controllers read such objects: for elastic
            jobs, and to know whether the object exists. Without it, an elastic job keeps its Workloads.
        trim_for_cache: returns the part of an object that the manager keeps in memory; None keeps all of it.
    """

    kind: OwnerKind
    plural: str
    namespaced: bool
    is_required: bool = True
    trim_for_cache: Callable[[JsonObject], JsonObject] | None = None


class ObjectReference(NamedTuple):
    """Another object that determines a job's pods. The namespace is empty for cluster-scoped kinds."""

    kind: OwnerKind
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.kind} {self.name}{place}"

"""The inputs of hypothetical changes: options, stored objects by their identity, and manifests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from admitq.integrations.base import Integration
from admitq.integrations.registry import find_referenced_kind
from admitq.manifests.documents import Document, InputError
from admitq.manifests.objects import NODES, OBSERVED, ObjectId
from admitq.translate.metadata import key_of
from admitq.translate.read_options import ReadOptions
from admitq.workloads.topology_annotations import DEFAULT_TOPOLOGY_RULES, TopologyRules
from admitq_api.json_objects import JsonObject, text_at, with_value, without_value

WORKLOAD: Final = "Workload"

_KINDS: Final[Mapping[str, str]] = {
    "workloads": WORKLOAD,
    **{plural: kind for kind, (plural, _) in {**OBSERVED, **NODES}.items()},
}
"""The kinds that the core observes, by their plurals."""


class HypothesisOptions(NamedTuple):
    """How manifests are read.

    Attributes:
        how: how Workloads are read.
        custom: the job kinds of the configuration.
        partial_admission: whether jobs with a minimum of pods may run with fewer pods.
        namespace: the namespace of objects that state none.
        is_local: whether only objects in this namespace may change.
        topology_rules: the rules of topology annotations; None if podsets request no topology.
    """

    how: ReadOptions = ReadOptions()
    custom: tuple[Integration, ...] = ()
    partial_admission: bool = True
    namespace: str = "default"
    is_local: bool = False
    topology_rules: TopologyRules | None = DEFAULT_TOPOLOGY_RULES

    def find_scope_error(self, name: ObjectId, document: Document) -> InputError | None:
        """Return why an object may not change; None if it may.

        Cluster-scoped objects that jobs name, such as the runtime of a TrainJob, are in the scope of each
        namespace: they determine only the pods of jobs in the same request.
        """
        if not self.is_local or name.namespace == self.namespace:
            return None
        group, _, version = text_at(document.value, ("apiVersion",)).rpartition("/")
        if not name.namespace and find_referenced_kind(group, version, name.kind) is not None:
            return None
        where = ("metadata", "namespace") if name.namespace else ("kind",)
        return document.error(where, f"only objects of namespace {self.namespace} can change: remove {name}")


class IndexedObjects:
    """Stored objects by their identity.

    Args:
        observed: objects that the core observes, each with the plural of its kind.
        others: other objects, with their kinds: jobs, priority classes, and objects to which jobs refer.
    """

    def __init__(self, observed: Iterable[tuple[str, JsonObject]], others: Iterable[JsonObject] = ()) -> None:
        self._objects: dict[str, dict[ObjectId, JsonObject]] = {}
        for plural, obj in observed:
            # Of pods, the core observes only what they take from nodes.
            if (kind := _KINDS.get(plural)) is not None:
                self._add(kind, obj)
        for obj in others:
            self._add(str(obj.get("kind", "")), obj)

    def _add(self, kind: str, obj: JsonObject) -> None:
        self._objects.setdefault(kind, {})[ObjectId(kind, *key_of(obj))] = obj

    def get(self, name: ObjectId) -> JsonObject | None:
        """Return an object; None if it does not exist."""
        return self._objects.get(name.kind, {}).get(name)

    def of_kind(self, kind: str) -> Iterable[JsonObject]:
        """Return all objects of a kind."""
        return self._objects.get(kind, {}).values()


def list_documents(objects: Sequence[Any], name: str) -> list[Document]:
    """Return the objects of a request as documents.

    Args:
        objects: the objects.
        name: the field that lists them, for error messages: ``spec.objects``.

    Raises:
        InputError: a value is not an object.
    """
    documents: list[Document] = []
    for index, obj in enumerate(objects):
        document = Document(f"{name}[{index}]", cast("Mapping[str, Any]", obj))
        if not isinstance(obj, Mapping):
            raise document.error((), "must be an object with fields like apiVersion and kind")
        documents.append(document)
    return documents


def name_documents(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield objects, each with a name: a number takes the place of a generated suffix."""
    numbers: Counter[str] = Counter()
    for document in documents:
        prefix = text_at(document.value, ("metadata", "generateName"))
        if not prefix or text_at(document.value, ("metadata", "name")):
            yield document
            continue
        numbers[prefix] += 1
        named = with_value(document.value, ("metadata", "name"), f"{prefix}{numbers[prefix]}")
        yield replace(document, value=without_value(named, ("metadata", "generateName")))

"""What the API server does with an object of the API group before it stores it.

It checks the object against the schema of its version, applies defaults, and evaluates the CEL rules. Then it
converts an older version to the stored one. The schemas are those of the CustomResourceDefinitions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from admitq.manifests.documents import Document, InputError
from admitq.manifests.structural import FieldProblem, Schema, apply_defaults, find_problems
from admitq_api.labels import Names, names_for
from admitq_api.schema import ApiKind, create_schema, fill_in_group

_MODULES: Final[Mapping[str, str]] = {
    "AdmissionCheck": "admission_check",
    "ClusterQueue": "cluster_queue",
    "Cohort": "cohort",
    "LocalQueue": "local_queue",
    "ResourceFlavor": "resource_flavor",
    "Topology": "topology",
    "Workload": "workload",
    "WorkloadPriorityClass": "workload_priority_class",
}
"""The module that declares each kind on which decisions depend."""


def is_own_kind(kind: str) -> bool:
    """Return whether a kind is of admitq's API group, and decisions depend on it."""
    return kind in _MODULES


def store(document: Document, names: Names, old: Document | None = None) -> Document:
    """Return an object as the API server stores it: checked, with defaults, in the stored version.

    Args:
        document: an object of a kind of the API group, in any version that is served.
        names: the names of the API group.
        old: the stored object that an update replaces. Its status stays.

    Raises:
        InputError: the API server would reject the object. The error has every invalid field.
    """
    # As in the API server, creates and updates of an object ignore its status.
    fields = {name: value for name, value in document.value.items() if name != "status"}
    version = str(fields["apiVersion"]).rpartition("/")[2]
    schema = _schema(str(fields["kind"]), names.group, version)
    _refuse(document, find_problems(fields, schema))
    complete: dict[str, Any] = apply_defaults(fields, schema)
    # Imported here because the CEL library takes long to import, and invalid objects do not need it.
    from admitq.manifests.cel_rules import broken_rules  # noqa: PLC0415

    before = None if old is None else _in_version(old.value, version, names)
    if before is not None and "status" in before:
        complete = {**complete, "status": before["status"]}
    _refuse(document, broken_rules(complete, schema, before))
    return replace(document, value=_in_version(complete, names.version, names))


def _in_version(obj: Mapping[str, Any], version: str, names: Names) -> Mapping[str, Any]:
    if obj.get("apiVersion") == f"{names.group}/{version}":
        return obj
    from admitq_api.v1beta1.conversion import convert  # noqa: PLC0415 needed only for objects of that version

    return convert(obj, version, names)


def _refuse(document: Document, problems: Iterable[FieldProblem]) -> None:
    kind, name = document.value.get("kind"), document.value["metadata"].get("name", "")
    object_problems = [
        replace(document.problem(path, remedy), object=f"{kind} {name}".rstrip()) for path, remedy in problems
    ]
    if object_problems:
        raise InputError(object_problems)


@lru_cache(maxsize=64)
def _schema(kind: str, group: str, version: str) -> Schema:
    """Return the schema of a kind in a version. It is created once, for the checks of all objects."""
    model: type[ApiKind] = getattr(import_module(f"admitq_api.kinds.{_MODULES[kind]}"), kind)
    names = names_for(group)
    schema: Schema = fill_in_group(create_schema(model), group)
    if version == names.version:
        return schema
    from admitq_api.v1beta1.differences import list_differences  # noqa: PLC0415
    from admitq_api.v1beta1.schemas import create_older_version  # noqa: PLC0415 needed only for objects of that version

    stored = {"name": names.version, "schema": {"openAPIV3Schema": schema}}
    older = create_older_version(stored, list_differences(names)[kind], version)
    return older["schema"]["openAPIV3Schema"]

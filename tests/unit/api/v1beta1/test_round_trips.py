"""Objects generated from the schemas of both versions survive conversion to the other version and back."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admitq_api.crds import create_crds
from admitq_api.labels import COMPAT_GROUP, names_for
from admitq_api.v1beta1.conversion import convert
from admitq_api.v1beta1.differences import PLURALS
from admitq_api.v1beta1.topology_encoding import list_domains

NAMES: Final = names_for(COMPAT_GROUP)
SCHEMAS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    (definition["spec"]["names"]["kind"], version["name"]): version["schema"]["openAPIV3Schema"]
    for definition in create_crds(COMPAT_GROUP)
    for version in definition["spec"]["versions"]
}
WORDS: Final = st.sampled_from(("a", "b-1", "c.d"))

OVERRIDES: Final = {
    "template": st.just({}),
    # A validation rule allows one kind for each group.
    "priorityClassRef": st.sampled_from(
        (
            {"group": COMPAT_GROUP, "kind": "WorkloadPriorityClass", "name": "a"},
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "b-1"},
        )
    ),
    # A validation rule requires exactly one source of a cluster.
    "clusterSource": st.sampled_from(
        ({"kubeConfig": {"location": "a", "locationType": "Path"}}, {"clusterProfileRef": {"name": "b"}})
    ),
}
"""Values of fields with validation rules that the types of the schema do not express."""


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of values that match the types, enums, required fields and list keys of a schema."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            fields = {
                name: OVERRIDES[name] if name in OVERRIDES else values_of(field)
                for name, field in schema["properties"].items()
            }
            required = schema.get("required", ())
            return st.fixed_dictionaries(
                {name: fields[name] for name in required},
                optional={name: field for name, field in fields.items() if name not in required},
            )
        case "object" if "additionalProperties" in schema:
            return st.dictionaries(WORDS, values_of(schema["additionalProperties"]), max_size=2)
        case "object":
            return st.just({"any": 1})
        case "array":
            least = schema.get("minItems", 0)
            return st.lists(
                values_of(schema["items"]), min_size=least, max_size=max(2, least), unique_by=_key(schema)
            )
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -3), schema.get("minimum", -3) + 5)
        case "string":
            return WORDS
        case _:
            return st.sampled_from(("1", 2, "300m"))


def _key(schema: dict[str, Any]) -> Callable[[Any], object] | None:
    match schema.get("x-kubernetes-list-type"):
        case "map":
            keys = schema["x-kubernetes-list-map-keys"]
            return lambda item: tuple(item.get(key) for key in keys)
        case "set":
            return lambda item: item
        case _:
            return None


@cache
def objects(kind: str, version: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of objects of a kind; the cache builds it once, not for every example."""
    properties = SCHEMAS[kind, version]["properties"]
    own = {name: values_of(field) for name, field in properties.items() if name not in FIELDS_OF_EVERY_KIND}
    metadata = st.fixed_dictionaries(
        {"name": WORDS}, optional={"annotations": st.dictionaries(WORDS, WORDS, min_size=1, max_size=1)}
    )
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just(f"{COMPAT_GROUP}/{version}"),
            "kind": st.just(kind),
            "metadata": metadata.map(lambda drawn: {**drawn, "uid": "u"}),
        },
        optional=own,
    )


FIELDS_OF_EVERY_KIND: Final = ("apiVersion", "kind", "metadata")


def list_unknown_fields(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of fields that the API server would prune because the schema lacks them."""
    if isinstance(value, dict) and "properties" in schema:
        for name, inner in value.items():
            here = f"{path}.{name}"
            if name not in schema["properties"]:
                yield here
            elif name not in ("metadata", "template"):
                yield from list_unknown_fields(inner, schema["properties"][name], here)
    elif isinstance(value, list):
        for inner in value:
            yield from list_unknown_fields(inner, schema["items"], f"{path}[]")


def pop_assignments(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """Remove the topology assignments from an object and return them; one assignment has many encodings."""
    pod_sets = obj.get("status", {}).get("admission", {}).get("podSetAssignments", ())
    return [pod_set.pop("topologyAssignment", {}) for pod_set in pod_sets]


def decode_assignment(assignment: dict[str, Any]) -> Any:
    """Return the domains of an assignment, or the assignment itself if it is malformed.

    Generated assignments can be malformed because schemas do not fix the number of values.
    """
    parts = assignment.get("slices", ())
    fits = all(len(part["valuesPerLevel"]) == len(assignment["levels"]) for part in parts)
    try:
        return list_domains(assignment) if fits else assignment
    except Exception:  # noqa: BLE001 conversion keeps malformed assignments
        return assignment


@pytest.mark.parametrize("kind", sorted(PLURALS))
@given(data=st.data())
@settings(max_examples=25)
def test_v1beta2_object_survives_round_trip_through_v1beta1(kind: str, data: st.DataObject) -> None:
    newer = data.draw(objects(kind, "v1beta2"))
    older = convert(newer, "v1beta1", NAMES)
    assert list(list_unknown_fields(older, SCHEMAS[kind, "v1beta1"])) == []
    back = convert(older, "v1beta2", NAMES)
    assert list(map(decode_assignment, pop_assignments(back))) == list(
        map(decode_assignment, pop_assignments(newer))
    )
    if kind == "MultiKueueConfig" and "spec" in newer:
        newer["spec"].setdefault("quotaManagement", "Manual")
    assert back == newer


@pytest.mark.parametrize("kind", sorted(PLURALS))
@given(data=st.data())
@settings(max_examples=25)
def test_v1beta1_object_reads_the_same_after_storage_as_v1beta2(kind: str, data: st.DataObject) -> None:
    older = data.draw(objects(kind, "v1beta1"))
    newer = convert(older, "v1beta2", NAMES)
    read = convert(newer, "v1beta1", NAMES)
    assert list(list_unknown_fields(read, SCHEMAS[kind, "v1beta1"])) == []
    assert convert(read, "v1beta2", NAMES) == newer
    lost = set(list_field_paths(older)) - set(list_field_paths(read))
    assert lost <= DROPPED_FIELDS, lost


DROPPED_FIELDS: Final = {
    # Converted to admissionChecksStrategy.
    ".spec.admissionChecks",
    # Have no effect any more.
    ".spec.retryDelayMinutes",
    ".status.flavors",
    ".status.pendingWorkloadsStatus",
    # Empty, which means absent.
    ".spec.priorityClassSource",
}


def list_field_paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields, except those below dropped fields and topology assignments."""
    if isinstance(value, dict):
        for name, inner in value.items():
            here = f"{path}.{name}"
            yield here
            if here not in DROPPED_FIELDS and name != "topologyAssignment":
                yield from list_field_paths(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from list_field_paths(inner, f"{path}[]")

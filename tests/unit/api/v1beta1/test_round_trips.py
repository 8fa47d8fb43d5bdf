"""Objects made from the schemas of both versions lose nothing on the way to the other version and back."""

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

GIVEN: Final = {
    "template": st.just({}),
    # A rule says which kind there is in which group.
    "priorityClassRef": st.sampled_from(
        (
            {"group": COMPAT_GROUP, "kind": "WorkloadPriorityClass", "name": "a"},
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "b-1"},
        )
    ),
    # And another one that there is exactly one way to reach a cluster.
    "clusterSource": st.sampled_from(
        ({"kubeConfig": {"location": "a", "locationType": "Path"}}, {"clusterProfileRef": {"name": "b"}})
    ),
}
"""What is more than schemas say."""


def valid(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What a schema accepts, as far as types, words, required fields and keys of lists go."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            fields = {
                name: GIVEN[name] if name in GIVEN else valid(one)
                for name, one in schema["properties"].items()
            }
            required = schema.get("required", ())
            return st.fixed_dictionaries(
                {name: fields[name] for name in required},
                optional={name: one for name, one in fields.items() if name not in required},
            )
        case "object" if "additionalProperties" in schema:
            return st.dictionaries(WORDS, valid(schema["additionalProperties"]), max_size=2)
        case "object":
            return st.just({"any": 1})
        case "array":
            least = schema.get("minItems", 0)
            return st.lists(
                valid(schema["items"]), min_size=least, max_size=max(2, least), unique_by=_key(schema)
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
    """Objects of a kind; the strategy is built once, not for every example."""
    properties = SCHEMAS[kind, version]["properties"]
    own = {name: valid(one) for name, one in properties.items() if name not in OF_EVERY_KIND}
    metadata = st.fixed_dictionaries(
        {"name": WORDS}, optional={"annotations": st.dictionaries(WORDS, WORDS, min_size=1, max_size=1)}
    )
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just(f"{COMPAT_GROUP}/{version}"),
            "kind": st.just(kind),
            "metadata": metadata.map(lambda made: {**made, "uid": "u"}),
        },
        optional=own,
    )


OF_EVERY_KIND: Final = ("apiVersion", "kind", "metadata")


def unknown(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """What the API server would leave out, for the schema does not have it."""
    if isinstance(value, dict) and "properties" in schema:
        for name, inner in value.items():
            here = f"{path}.{name}"
            if name not in schema["properties"]:
                yield here
            elif name not in ("metadata", "template"):
                yield from unknown(inner, schema["properties"][name], here)
    elif isinstance(value, list):
        for inner in value:
            yield from unknown(inner, schema["items"], f"{path}[]")


def assignments(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of the pods, taken out of where they stand; how they are written is not what they say."""
    reserved = obj.get("status", {}).get("admission", {}).get("podSetAssignments", ())
    return [one.pop("topologyAssignment", {}) for one in reserved]


def placed(assignment: dict[str, Any]) -> Any:
    """What an assignment says, if it says anything: schemas do not know how many values there must be."""
    parts = assignment.get("slices", ())
    fits = all(len(part["valuesPerLevel"]) == len(assignment["levels"]) for part in parts)
    try:
        return list_domains(assignment) if fits else assignment
    except Exception:  # noqa: BLE001 what cannot be read stays as it is
        return assignment


@pytest.mark.parametrize("kind", sorted(PLURALS))
@given(data=st.data())
@settings(max_examples=25)
def test_nothing_of_v1beta2_is_lost_in_v1beta1(kind: str, data: st.DataObject) -> None:
    newer = data.draw(objects(kind, "v1beta2"))
    older = convert(newer, "v1beta1", NAMES)
    assert list(unknown(older, SCHEMAS[kind, "v1beta1"])) == []
    back = convert(older, "v1beta2", NAMES)
    assert [placed(one) for one in assignments(back)] == [placed(one) for one in assignments(newer)]
    if kind == "MultiKueueConfig" and "spec" in newer:
        newer["spec"].setdefault("quotaManagement", "Manual")
    assert back == newer


@pytest.mark.parametrize("kind", sorted(PLURALS))
@given(data=st.data())
@settings(max_examples=25)
def test_v1beta1_says_the_same_after_it_was_stored(kind: str, data: st.DataObject) -> None:
    older = data.draw(objects(kind, "v1beta1"))
    newer = convert(older, "v1beta2", NAMES)
    read = convert(newer, "v1beta1", NAMES)
    assert list(unknown(read, SCHEMAS[kind, "v1beta1"])) == []
    assert convert(read, "v1beta2", NAMES) == newer
    lost = set(fields(older)) - set(fields(read))
    assert lost <= MEANT_TO_GO, lost


MEANT_TO_GO: Final = {
    # Turned into the strategy.
    ".spec.admissionChecks",
    # Mean nothing any more.
    ".spec.retryDelayMinutes",
    ".status.flavors",
    ".status.pendingWorkloadsStatus",
    # Empty: the same as not given.
    ".spec.priorityClassSource",
}


def fields(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields, but for what is below those that are meant to go and below assignments."""
    if isinstance(value, dict):
        for name, inner in value.items():
            here = f"{path}.{name}"
            yield here
            if here not in MEANT_TO_GO and name != "topologyAssignment":
                yield from fields(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from fields(inner, f"{path}[]")

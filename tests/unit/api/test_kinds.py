import json
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from admitq_api.crds import KINDS, create_crds
from admitq_api.kinds.cluster_queue import ClusterQueue
from admitq_api.kinds.workload import Workload, pod_template_schema
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, GROUPS

DEFINITIONS = {definition["spec"]["names"]["kind"]: definition for definition in create_crds()}


def version(kind: str) -> dict[str, Any]:
    return DEFINITIONS[kind]["spec"]["versions"][0]


def schema(kind: str) -> dict[str, Any]:
    return version(kind)["schema"]["openAPIV3Schema"]


def layers(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema, with its path; that of pod templates left out."""
    if path.endswith(".template"):
        return
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from layers(inner, f"{path}.{name}")
    for below in ("items", "additionalProperties"):
        if below in node:
            yield from layers(node[below], f"{path}[]")


def reads(node: dict[str, Any], path: str) -> bool:
    """Whether the JSONPath of a column reads a field that the schema has."""
    if path == ".metadata.creationTimestamp":
        return True
    for step in re.findall(r"\.(\w+)(\[[^\]]+\])?", path):
        name, chosen = step
        node = node.get("properties", {}).get(name, {})
        if chosen:
            key = re.fullmatch(r"\[\?\(@\.(\w+)=='\w+'\)\]", chosen)
            node = node.get("items", {})
            if key is None or key[1] not in node.get("properties", {}):
                return False
    return bool(node)


PATHS = [
    (kind, one["jsonPath"])
    for kind in DEFINITIONS
    for shown in ("additionalPrinterColumns", "selectableFields")
    for one in version(kind).get(shown, ())
]


@pytest.mark.parametrize(("kind", "path"), PATHS)
def test_every_column_reads_a_field_that_exists(kind: str, path: str) -> None:
    assert reads(schema(kind), path)


@pytest.mark.parametrize(
    "path", [".spec.nope", ".status.conditions[?(@.nope=='X')].status", ".status.conditions.status"]
)
def test_a_column_that_reads_nothing_would_be_found(path: str) -> None:
    assert not reads(schema("Workload"), path)


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_a_schema_has_no_references_no_null_and_no_untyped_field(kind: str) -> None:
    text = json.dumps(schema(kind))
    assert "$ref" not in text
    assert '"null"' not in text
    assert "nullable" not in text
    assert [
        path for path, node in layers(schema(kind)) if not {"type", "x-kubernetes-int-or-string"} & set(node)
    ] == []


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_field_of_ours_is_described(kind: str) -> None:
    fields = [
        (f"{path}.{name}", field)
        for path, node in layers(schema(kind))
        for name, field in node.get("properties", {}).items()
        if path or name not in ("apiVersion", "kind", "metadata")
    ]
    assert [path for path, field in fields if not field.get("description")] == []


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_list_declares_its_keys(kind: str) -> None:
    lists = [(path, node) for path, node in layers(schema(kind)) if node.get("type") == "array"]
    assert [path for path, node in lists if "x-kubernetes-list-type" not in node] == []
    for path, node in lists:
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            assert key in item.get("required", ()) or "default" in item["properties"][key], path


@pytest.mark.parametrize("group", GROUPS)
def test_the_group_is_a_parameter(group: str) -> None:
    other = COMPAT_GROUP if group == DEFAULT_GROUP else DEFAULT_GROUP
    text = json.dumps(create_crds(group))
    assert other not in text
    assert "${" not in text
    assert all(one["metadata"]["name"].endswith(f".{group}") for one in create_crds(group))


def test_the_pod_template_has_the_full_schema() -> None:
    pod_set = schema("Workload")["properties"]["spec"]["properties"]["podSets"]["items"]
    template = {
        key: value for key, value in pod_set["properties"]["template"].items() if key != "description"
    }
    assert template == pod_template_schema()


def below(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield cast("dict[str, Any]", node)
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from below(inner)


def test_objects_below_the_templates_spec_keep_unknown_fields() -> None:
    spec = pod_template_schema()["properties"]["spec"]
    objects = [
        one for one in below(spec) if one.get("type") == "object" and "additionalProperties" not in one
    ]
    assert len(objects) > 100
    assert all(one.get("x-kubernetes-preserve-unknown-fields") is True for one in objects)


def test_pod_template_has_defaults_only_for_list_keys() -> None:
    defaults = [one["default"] for one in below(pod_template_schema()) if "default" in one and "type" in one]
    assert set(defaults) == {"", "TCP"}


def test_bounds_stand_with_the_field_they_bound() -> None:
    quota = schema("ClusterQueue")["properties"]["spec"]["properties"]["resourceGroups"]
    assert (quota["maxItems"], quota["x-kubernetes-list-type"]) == (16, "atomic")
    name = quota["items"]["properties"]["flavors"]["items"]["properties"]["name"]
    assert (name["maxLength"], name["type"]) == (253, "string")


def test_a_kind_reads_what_the_api_server_sends() -> None:
    queue = ClusterQueue.model_validate(
        {
            "apiVersion": "admitq.dev/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "a"},
            "spec": {"cohortName": "all", "fieldOfTomorrow": 1},
            "status": {"pendingWorkloads": 3},
        }
    )
    assert queue.spec is not None
    assert queue.status is not None
    assert (queue.spec.cohort_name, queue.spec.queueing_strategy) == ("all", "BestEffortFIFO")
    assert queue.status.pending_workloads == 3


def test_a_pod_template_is_read_as_it_is() -> None:
    template = {"spec": {"containers": [{"name": "a", "fieldOfTomorrow": 1}]}}
    workload = Workload.model_validate({"spec": {"podSets": [{"template": template}]}})
    assert workload.spec is not None
    assert workload.spec.pod_sets[0].template == template


def test_all_kinds_are_named_once() -> None:
    assert len({kind.plural for kind in KINDS}) == len(KINDS) == 11

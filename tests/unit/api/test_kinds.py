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


def walk_schemas(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and the schemas within it, each with its path, except those of pod templates."""
    if path.endswith(".template"):
        return
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from walk_schemas(inner, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in node:
            yield from walk_schemas(node[keyword], f"{path}[]")


def has_column_field(node: dict[str, Any], path: str) -> bool:
    """Whether the JSONPath of a column names a field of the schema."""
    if path == ".metadata.creationTimestamp":
        return True
    for name, condition in re.findall(r"\.(\w+)(\[[^\]]+\])?", path):
        node = node.get("properties", {}).get(name, {})
        if condition:
            key = re.fullmatch(r"\[\?\(@\.(\w+)=='\w+'\)\]", condition)
            node = node.get("items", {})
            if key is None or key[1] not in node.get("properties", {}):
                return False
    return bool(node)


COLUMN_PATHS = [
    (kind, column["jsonPath"])
    for kind in DEFINITIONS
    for section in ("additionalPrinterColumns", "selectableFields")
    for column in version(kind).get(section, ())
]


@pytest.mark.parametrize(("kind", "path"), COLUMN_PATHS)
def test_printer_columns_and_selectable_fields_name_existing_fields(kind: str, path: str) -> None:
    assert has_column_field(schema(kind), path)


@pytest.mark.parametrize(
    "path", [".spec.nope", ".status.conditions[?(@.nope=='X')].status", ".status.conditions.status"]
)
def test_column_path_without_field_is_detected(path: str) -> None:
    assert not has_column_field(schema("Workload"), path)


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_crd_schema_has_no_references_nulls_or_untyped_fields(kind: str) -> None:
    text = json.dumps(schema(kind))
    assert "$ref" not in text
    assert '"null"' not in text
    assert "nullable" not in text
    assert [
        path
        for path, node in walk_schemas(schema(kind))
        if not {"type", "x-kubernetes-int-or-string"} & set(node)
    ] == []


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_own_field_has_a_description(kind: str) -> None:
    fields = [
        (f"{path}.{name}", field)
        for path, node in walk_schemas(schema(kind))
        for name, field in node.get("properties", {}).items()
        if path or name not in ("apiVersion", "kind", "metadata")
    ]
    assert [path for path, field in fields if not field.get("description")] == []


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_list_declares_its_type_and_valid_keys(kind: str) -> None:
    lists = [(path, node) for path, node in walk_schemas(schema(kind)) if node.get("type") == "array"]
    assert [path for path, node in lists if "x-kubernetes-list-type" not in node] == []
    for path, node in lists:
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            assert key in item.get("required", ()) or "default" in item["properties"][key], path


@pytest.mark.parametrize("group", GROUPS)
def test_crds_contain_only_the_requested_group(group: str) -> None:
    other = COMPAT_GROUP if group == DEFAULT_GROUP else DEFAULT_GROUP
    text = json.dumps(create_crds(group))
    assert other not in text
    assert "${" not in text
    assert all(crd["metadata"]["name"].endswith(f".{group}") for crd in create_crds(group))


def test_workload_schema_contains_full_pod_template() -> None:
    pod_set = schema("Workload")["properties"]["spec"]["properties"]["podSets"]["items"]
    template = {
        key: value for key, value in pod_set["properties"]["template"].items() if key != "description"
    }
    assert template == pod_template_schema() | {"x-kubernetes-map-type": "atomic"}


def walk_objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield cast("dict[str, Any]", node)
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk_objects(inner)


def test_pod_template_objects_preserve_unknown_fields() -> None:
    spec = pod_template_schema()["properties"]["spec"]
    objects = [
        node
        for node in walk_objects(spec)
        if node.get("type") == "object" and "additionalProperties" not in node
    ]
    assert len(objects) > 100
    assert all(node.get("x-kubernetes-preserve-unknown-fields") is True for node in objects)


def test_pod_template_has_defaults_only_for_list_keys() -> None:
    defaults = [
        node["default"]
        for node in walk_objects(pod_template_schema())
        if "default" in node and "type" in node
    ]
    assert set(defaults) == {"", "TCP"}


def test_crd_schema_keeps_type_and_limit_of_lists_and_strings() -> None:
    quota = schema("ClusterQueue")["properties"]["spec"]["properties"]["resourceGroups"]
    assert (quota["maxItems"], quota["x-kubernetes-list-type"]) == (16, "atomic")
    name = quota["items"]["properties"]["flavors"]["items"]["properties"]["name"]
    assert (name["maxLength"], name["type"]) == (253, "string")


def test_cluster_queue_is_parsed_with_unknown_fields_and_defaults() -> None:
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


def test_pod_template_is_parsed_unchanged() -> None:
    template = {"spec": {"containers": [{"name": "a", "fieldOfTomorrow": 1}]}}
    workload = Workload.model_validate({"spec": {"podSets": [{"template": template}]}})
    assert workload.spec is not None
    assert workload.spec.pod_sets[0].template == template


def test_kinds_have_unique_plurals() -> None:
    assert len({kind.plural for kind in KINDS}) == len(KINDS) == 11

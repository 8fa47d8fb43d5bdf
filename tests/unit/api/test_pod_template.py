"""How the schema of pod templates follows from what the API server publishes."""

from typing import Any

from generators.pod_template import pod_template_schema

CORE = "io.k8s.api.core.v1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def reference(name: str) -> dict[str, Any]:
    return {"description": "…", "default": {}, "allOf": [{"$ref": f"#/components/schemas/{name}"}]}


def generated(pod_spec: dict[str, Any], **types: dict[str, Any]) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    document = {
        "components": {
            "schemas": {
                f"{CORE}.PodTemplateSpec": {
                    "type": "object",
                    "properties": {"metadata": reference(f"{META}.ObjectMeta"), "spec": reference("PodSpec")},
                },
                f"{META}.ObjectMeta": {
                    "type": "object",
                    "properties": {
                        "name": text,
                        "labels": {"type": "object", "additionalProperties": text | {"default": ""}},
                        "annotations": {"type": "object", "additionalProperties": text | {"default": ""}},
                    },
                },
                "PodSpec": {"type": "object", "properties": pod_spec},
                QUANTITY: {"description": "…", "oneOf": [{"type": "string"}, {"type": "number"}]},
                **types,
            }
        }
    }
    return pod_template_schema(document)


def spec(pod_spec: dict[str, Any], **types: dict[str, Any]) -> dict[str, Any]:
    return generated(pod_spec, **types)["properties"]["spec"]["properties"]


def test_of_the_metadata_labels_and_annotations_are_left() -> None:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    assert generated({})["properties"]["metadata"] == {
        "type": "object",
        "properties": {"labels": texts, "annotations": texts},
    }


def test_references_are_replaced_by_what_they_refer_to_and_keep_unknown_fields() -> None:
    assert spec({"a": reference("A")}, A={"type": "object", "properties": {"b": {"type": "string"}}}) == {
        "a": {
            "type": "object",
            "properties": {"b": {"type": "string"}},
            "x-kubernetes-preserve-unknown-fields": True,
        }
    }


def test_quantities_are_numbers_or_texts() -> None:
    assert spec({"limits": {"type": "object", "additionalProperties": reference(QUANTITY)}}) == {
        "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
    }


def test_what_a_definition_may_not_have_is_dropped() -> None:
    odd = {
        "type": "string",
        "description": "…",
        "default": "",
        "enum": ["A"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
        "x-kubernetes-unions": [],
    }
    assert spec({"a": odd}) == {"a": {"type": "string", "enum": ["A"]}}


def test_a_field_may_be_called_as_a_keyword() -> None:
    assert spec(
        {"default": {"type": "string"}, "items": {"type": "string"}, "properties": {"type": "string"}}
    ) == {
        "default": {"type": "string"},
        "items": {"type": "string"},
        "properties": {"type": "string"},
    }


def test_list_keys_keep_their_default_unless_required() -> None:
    port = {
        "type": "object",
        "required": ["port"],
        "properties": {
            "port": {"type": "integer", "default": 0},
            "protocol": {"type": "string", "default": "TCP"},
            "name": {"type": "string", "default": ""},
        },
    }
    ports = {
        "type": "array",
        "items": reference("Port"),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
    }
    assert spec({"ports": ports}, Port=port)["ports"]["items"]["properties"] == {
        "port": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "name": {"type": "string"},
    }

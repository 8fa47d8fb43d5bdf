"""The schema of pod templates is generated from the OpenAPI document of the API server."""

from typing import Any

from generators.pod_template import pod_template_schema

CORE = "io.k8s.api.core.v1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def reference(name: str) -> dict[str, Any]:
    return {"description": "…", "default": {}, "allOf": [{"$ref": f"#/components/schemas/{name}"}]}


def generate_template_schema(pod_spec: dict[str, Any], **types: dict[str, Any]) -> dict[str, Any]:
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


def generate_spec_properties(pod_spec: dict[str, Any], **types: dict[str, Any]) -> dict[str, Any]:
    return generate_template_schema(pod_spec, **types)["properties"]["spec"]["properties"]


def test_pod_template_metadata_schema_keeps_only_labels_and_annotations() -> None:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    assert generate_template_schema({})["properties"]["metadata"] == {
        "type": "object",
        "properties": {"labels": texts, "annotations": texts},
    }


def test_schema_reference_is_replaced_by_object_that_preserves_unknown_fields() -> None:
    assert generate_spec_properties(
        {"a": reference("A")}, A={"type": "object", "properties": {"b": {"type": "string"}}}
    ) == {
        "a": {
            "type": "object",
            "properties": {"b": {"type": "string"}},
            "x-kubernetes-preserve-unknown-fields": True,
        }
    }


def test_quantity_schema_becomes_int_or_string() -> None:
    assert generate_spec_properties(
        {"limits": {"type": "object", "additionalProperties": reference(QUANTITY)}}
    ) == {"limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}}


def test_schema_keywords_forbidden_in_crds_are_dropped() -> None:
    field_schema = {
        "type": "string",
        "description": "…",
        "default": "",
        "enum": ["A"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
        "x-kubernetes-unions": [],
    }
    assert generate_spec_properties({"a": field_schema}) == {"a": {"type": "string", "enum": ["A"]}}


def test_field_named_like_schema_keyword_is_kept() -> None:
    assert generate_spec_properties(
        {"default": {"type": "string"}, "items": {"type": "string"}, "properties": {"type": "string"}}
    ) == {
        "default": {"type": "string"},
        "items": {"type": "string"},
        "properties": {"type": "string"},
    }


def test_default_is_kept_only_for_optional_list_keys() -> None:
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
    assert generate_spec_properties({"ports": ports}, Port=port)["ports"]["items"]["properties"] == {
        "port": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "name": {"type": "string"},
    }

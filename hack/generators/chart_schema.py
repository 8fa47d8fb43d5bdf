"""Generate the part of the chart's values.schema.json that describes the value `config`.

The rest of that file is written by hand.
"""

import json
from pathlib import Path
from typing import Any, Final

from pydantic import AliasChoices

from admitq_api.configuration import Configuration, list_sections
from admitq_api.configuration.loading import ABSENT_IF_EMPTY
from admitq_api.durations import PATTERN
from admitq_api.feature_gates import Gate
from admitq_api.selectors import OPERATORS
from localcluster.folders import REPOSITORY

VALUES_SCHEMA: Final = Path("charts/admitq/values.schema.json")

SET_BY_CHART: Final = (
    "apiVersion",
    "kind",
    "apiGroup",
    "namespace",
    "webhook.port",
    "internalCertManagement",
    "visibilityServer.serviceName",
    "visibilityServer.secretName",
)
"""Fields of the configuration file that the chart sets. `config` must not have them."""

READ_BY_TEMPLATES: Final = ("webhook", "integrations", "visibilityServer")
"""Sections that the chart fills or reads. They must not be null."""

SELECTORS: Final = ("managedJobsNamespaceSelector", "metrics.localQueueMetrics.localQueueSelector")
"""Fields that are label selectors."""

NOTES: Final = frozenset({"title", "description", "default", "format", "ge", "gt"})
"""Keywords of pydantic that the chart does not need, or that JSON schema does not have."""

GATES: Final = {
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {gate.value: {"type": "boolean"} for gate in Gate},
}
STRINGS: Final = {"type": ["array", "null"], "items": {"type": "string"}}
SELECTOR: Final[dict[str, Any]] = {
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {
        "matchLabels": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        "matchExpressions": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "key": {"type": "string"},
                    "operator": {"enum": list(OPERATORS)},
                    "values": STRINGS,
                },
                "required": ["key", "operator"],
            },
        },
    },
}


def outputs() -> dict[Path, str]:
    """Return values.schema.json with the definitions of the configuration file in their current state."""
    schema = json.loads((REPOSITORY / VALUES_SCHEMA).read_text())
    written = {
        name: definition for name, definition in schema["definitions"].items() if not name[0].isupper()
    }
    schema["definitions"] = written | definitions()
    schema["properties"]["config"] = {"$ref": f"#/definitions/{Configuration.__name__}"}
    return {VALUES_SCHEMA: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"}


def definitions() -> dict[str, Any]:
    """Return the JSON schema of each section of the configuration file, by the name of its class."""
    raw = Configuration.model_json_schema(ref_template="#/definitions/{model}")
    sections: dict[str, Any] = {**raw.pop("$defs"), Configuration.__name__: raw}
    result = {name: _simplified(sections[name]) for name in sorted(sections)}
    _add_second_names(result)
    for path in SELECTORS:
        _set(result, path, SELECTOR)
    gates = {gate.value: {"type": "boolean"} for gate in Gate}
    _set(
        result,
        "featureGates",
        {"type": ["object", "null"], "additionalProperties": False, "properties": gates},
    )
    for path in ABSENT_IF_EMPTY:
        field = _get(result, path)
        if "enum" in field:
            field["enum"].append("")
    for path in SET_BY_CHART:
        _set(result, path, False)
    result[Configuration.__name__]["type"] = "object"
    for path in READ_BY_TEMPLATES:
        _resolved(result, _get(result, path))["type"] = "object"
    return result


def _simplified(schema: Any) -> Any:
    """Return a schema that accepts null for absent values, without notes and, if possible, `anyOf`."""
    if isinstance(schema, list):
        return [_simplified(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    required = schema.get("required", ())
    result = {
        key: {
            name: _simplified(item) if name in required else _with_null(_simplified(item))
            for name, item in value.items()
        }
        if key == "properties"
        else _simplified(value)
        for key, value in schema.items()
        if key not in NOTES
    }
    if schema.get("format") == "duration":
        result["pattern"] = PATTERN
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "anyOf" in result:
        return _joined(result)
    return _with_null(result) if "properties" in result else result


def _joined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with a list of types instead of `anyOf`, if at most one choice has other keywords."""
    choices = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
    optional = len(choices) < len(schema["anyOf"])
    if len(choices) == 1:
        return _with_null(choices[0]) if optional else choices[0]
    types = [
        choice["type"] for choice in choices if "type" in choice and not choice.keys() & {"enum", "pattern"}
    ]
    if len(types) == len(choices):
        joined = {"type": types}
    elif all(choice.get("type") == "string" for choice in choices):
        joined = {"type": "string"}
    else:
        return schema
    return _with_null(joined) if optional else joined


def _with_null(schema: Any) -> Any:
    """Return a schema that accepts null too. A referenced definition accepts null itself."""
    if "type" not in schema:
        return schema
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    result = {**schema, "type": list(dict.fromkeys([*types, "null"]))}
    if "enum" in schema:
        result["enum"] = list(dict.fromkeys([*schema["enum"], None]))
    return result


def _add_second_names(result: dict[str, Any]) -> None:
    """Add the fields that have more than one name under each further name."""
    for section in list_sections(Configuration):
        for field in section.model_fields.values():
            if isinstance(field.validation_alias, AliasChoices):
                properties = result[section.__name__]["properties"]
                names = [name for name in field.validation_alias.choices if isinstance(name, str)]
                known = next(name for name in names if name in properties)
                properties.update(dict.fromkeys(names, properties[known]))


def _resolved(result: dict[str, Any], schema: Any) -> Any:
    return result[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _section(result: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """Return the fields of the section that has a field, and the name of the field."""
    *sections, last = path.split(".")
    place = result[Configuration.__name__]
    for section in sections:
        place = _resolved(result, place["properties"][section])
    return place["properties"], last


def _get(result: dict[str, Any], path: str) -> Any:
    fields, name = _section(result, path)
    return fields[name]


def _set(result: dict[str, Any], path: str, schema: Any) -> None:
    fields, name = _section(result, path)
    fields[name] = schema

"""Create the schema of a kind in v1beta1 from that in v1beta2, by the table of differences."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from admitq_api.kinds.workload import WAS_RESERVED
from admitq_api.v1beta1.field_differences import (
    AddedField,
    DroppedField,
    FieldDifference,
    GroupedFields,
    MergedValues,
    NameList,
    RenamedField,
    SplitReference,
    TopologyEncoding,
)
from admitq_api.v1beta1.topology_encoding import MAX_LISTED_DOMAINS

RULES: Final = "x-kubernetes-validations"


def create_older_version(
    version: dict[str, Any], changes: tuple[FieldDifference, ...], name: str
) -> dict[str, Any]:
    """Return the older version of a CustomResourceDefinition, without selectable fields.

    Args:
        version: the newer version.
        changes: the differences.
        name: the name of the older version.
    """
    older: dict[str, Any] = {**deepcopy(version), "name": name, "storage": False}
    # If all versions have the same selectable fields, the API server expects one common schema.
    older.pop("selectableFields", None)
    schema = older["schema"]["openAPIV3Schema"]
    for change in changes:
        for holder in _find_holder(schema, change.at):
            _apply(schema, holder, change)
        if isinstance(change, RenamedField):
            _rename_in_paths(older, change)
    return older


def _find_holder(schema: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    holder = schema
    for step in path.split("."):
        holder = holder["properties"][step.removesuffix("[]")]
        holder = holder["items"] if step.endswith("[]") else holder
    yield holder


def _apply(root: dict[str, Any], holder: dict[str, Any], change: FieldDifference) -> None:
    fields = holder["properties"]
    match change:
        case RenamedField(_, old, new):
            holder["properties"] = {old if name == new else name: field for name, field in fields.items()}
            _rename_in_rules(holder, old, new)
        case GroupedFields(_, _, new):
            inner = fields.pop(new)
            fields |= inner["properties"]
            _remove_from_required(holder, new)
            holder[RULES] = [*holder.get(RULES, ()), *inner.get(RULES, ())]
        case NameList(_, old, new, items):
            listed = fields[new]["properties"][items]
            fields[old] = {
                "description": f"The names of {new}. The list is converted to {new}.",
                "type": "array",
                "items": listed["items"]["properties"]["name"],
                "maxItems": listed["maxItems"],
                "x-kubernetes-list-type": "set",
            }
        case MergedValues(_, field, old, _):
            fields[field]["enum"] = [*old, *fields[field]["enum"]]
        case DroppedField(_, field, schema):
            fields[field] = schema
        case AddedField(_, field):
            fields.pop(field)
            _remove_from_required(holder, field)
        case SplitReference():
            _split_reference(root, holder, change)
        case TopologyEncoding(_, field, old, new):
            _add_listed_domains(fields[field], old, new)
        case _:
            raise TypeError(f"no schema for {change!r}")


def _remove_from_required(holder: dict[str, Any], field: str) -> None:
    required = [name for name in holder.pop("required", ()) if name != field]
    if required:
        holder["required"] = required


def _rename_in_rules(holder: dict[str, Any], old: str, new: str) -> None:
    for rule in holder.get(RULES, ()):
        for part in ("rule", "fieldPath"):
            if part in rule:
                rule[part] = re.sub(rf"\.{new}\b", f".{old}", rule[part])


def _rename_in_paths(version: dict[str, Any], change: RenamedField) -> None:
    old, new = f".{change.at}.{change.older}", f".{change.at}.{change.newer}"
    for shown in version.get("additionalPrinterColumns", ()):
        if shown["jsonPath"] == new:
            shown["jsonPath"] = old


def _split_reference(root: dict[str, Any], holder: dict[str, Any], change: SplitReference) -> None:
    fields, source, name = holder["properties"], change.source, change.name
    reference = fields.pop(change.newer)
    fields[source] = {
        "description": "The kind of the class that priorityClassName names.",
        "type": "string",
        "enum": [*change.sources, ""],
    }
    fields[name] = {
        **reference["properties"]["name"],
        "description": "The name of the class that determines the priority.",
    }
    holder[RULES] = [
        {
            "rule": f"!has(self.{name}) || has(self.priority)",
            "message": f"priority must be set when {name} is set",
            "fieldPath": ".priority",
        }
    ]
    other_rules = [rule for rule in root[RULES] if change.newer not in rule["rule"]]
    old_source, new_source = (_create_value_expression(of, source) for of in ("oldSelf", "self"))
    old_name, new_name = (_create_value_expression(of, name) for of in ("oldSelf", "self"))
    root[RULES] = [
        *other_rules,
        {
            "rule": f"{old_source} == {new_source} || !{WAS_RESERVED}",
            "message": f"{source} is immutable while quota is reserved",
            "fieldPath": f".{change.at}.{source}",
        },
        {
            # A WorkloadPriorityClass may be replaced by another one. Removing or adding the name is not
            # allowed, because that would remove or add the whole reference.
            "rule": f"{old_name} == {new_name} || ({new_source} == '{next(iter(change.sources))}' && "
            f"{old_name} != '' && {new_name} != '') || !{WAS_RESERVED}",
            "message": f"{name} is immutable while quota is reserved, but for another WorkloadPriorityClass",
            "fieldPath": f".{change.at}.{name}",
        },
    ]


def _create_value_expression(of: str, field: str) -> str:
    return f"(has({of}.spec.{field}) ? {of}.spec.{field} : '')"


def _add_listed_domains(assignment: dict[str, Any], old: str, new: str) -> None:
    fields = assignment["properties"]
    levels = fields["levels"]
    _remove_from_required(assignment, new)
    fields[new]["description"] = "The domains, encoded in slices, if they are too many to be listed."
    fields[old] = {
        "description": "The domains.",
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_LISTED_DOMAINS,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "The number of pods that are assigned to one domain.",
            "type": "object",
            "required": ["values", "count"],
            "properties": {
                "values": {
                    "description": "The value of each level.",
                    "type": "array",
                    "minItems": 1,
                    "maxItems": levels["maxItems"],
                    "x-kubernetes-list-type": "atomic",
                    "items": {"type": "string", "maxLength": 63},
                },
                "count": {
                    "description": "The number of pods.",
                    "type": "integer",
                    "format": "int32",
                    "minimum": 1,
                },
            },
        },
    }
    assignment[RULES] = [
        {
            "rule": f"!has(self.{new}) || {rule['rule']}",
            "message": rule["message"],
            "fieldPath": rule["fieldPath"],
        }
        for rule in assignment[RULES]
    ] + [
        {
            "rule": f"has(self.{old}) != has(self.{new})",
            "message": f"exactly one of {old} and {new} must be set",
        },
        {
            "rule": f"!has(self.{old}) || self.{old}.all(d, size(d.values) == size(self.levels))",
            "message": "values must have a value for each of levels",
            "fieldPath": f".{old}",
        },
    ]

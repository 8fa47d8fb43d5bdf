"""The schema of a kind in v1beta1, made from that in v1beta2: what is not in the table is the same."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from admitq_api.kinds.workload import WAS_RESERVED
from admitq_api.v1beta1.changes import (
    Change,
    Dropped,
    Gathered,
    Names,
    Newer,
    Placement,
    Reference,
    Renamed,
    Values,
)
from admitq_api.v1beta1.placements import MOST_SPELLED_OUT

RULES: Final = "x-kubernetes-validations"


def older(version: dict[str, Any], changes: tuple[Change, ...], name: str) -> dict[str, Any]:
    """Return a version of a CustomResourceDefinition as an older one, without fields to select by.

    Args:
        version: the newer one.
        changes: how they differ.
        name: of the older one.
    """
    made: dict[str, Any] = {**deepcopy(version), "name": name, "storage": False}
    # The API server takes those that all versions share for those of one schema that they share, and refuses.
    made.pop("selectableFields", None)
    schema = made["schema"]["openAPIV3Schema"]
    for change in changes:
        for holder in _at(schema, change.at):
            _change(schema, holder, change)
        if isinstance(change, Renamed):
            _rename_in_paths(made, change)
    return made


def _at(schema: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    holder = schema
    for step in path.split("."):
        holder = holder["properties"][step.removesuffix("[]")]
        holder = holder["items"] if step.endswith("[]") else holder
    yield holder


def _change(root: dict[str, Any], holder: dict[str, Any], change: Change) -> None:
    fields = holder["properties"]
    match change:
        case Renamed(_, old, new):
            holder["properties"] = {old if name == new else name: one for name, one in fields.items()}
            _rename_in_rules(holder, old, new)
        case Gathered(_, _, new):
            inner = fields.pop(new)
            fields |= inner["properties"]
            _require_no_more(holder, new)
            holder[RULES] = [*holder.get(RULES, ()), *inner.get(RULES, ())]
        case Names(_, old, new, items):
            listed = fields[new]["properties"][items]
            fields[old] = {
                "description": f"The same as {new} with nothing but names, into which it is turned.",
                "type": "array",
                "items": listed["items"]["properties"]["name"],
                "maxItems": listed["maxItems"],
                "x-kubernetes-list-type": "set",
            }
        case Values(_, field, old, _):
            fields[field]["enum"] = [*old, *fields[field]["enum"]]
        case Dropped(_, field, schema):
            fields[field] = schema
        case Newer(_, field):
            fields.pop(field)
            _require_no_more(holder, field)
        case Reference():
            _take_apart(root, holder, change)
        case Placement(_, field, old, new):
            _spell_out(fields[field], old, new)
        case _:
            raise TypeError(f"no schema for {change!r}")


def _require_no_more(holder: dict[str, Any], field: str) -> None:
    required = [name for name in holder.pop("required", ()) if name != field]
    if required:
        holder["required"] = required


def _rename_in_rules(holder: dict[str, Any], old: str, new: str) -> None:
    for rule in holder.get(RULES, ()):
        for part in ("rule", "fieldPath"):
            if part in rule:
                rule[part] = re.sub(rf"\.{new}\b", f".{old}", rule[part])


def _rename_in_paths(version: dict[str, Any], change: Renamed) -> None:
    old, new = f".{change.at}.{change.older}", f".{change.at}.{change.newer}"
    for shown in version.get("additionalPrinterColumns", ()):
        if shown["jsonPath"] == new:
            shown["jsonPath"] = old


def _take_apart(root: dict[str, Any], holder: dict[str, Any], change: Reference) -> None:
    fields, source, name = holder["properties"], change.source, change.name
    reference = fields.pop(change.newer)
    fields[source] = {
        "description": "What priorityClassName names; empty: nothing.",
        "type": "string",
        "enum": [*change.sources, ""],
    }
    fields[name] = {
        **reference["properties"]["name"],
        "description": "The class that the priority comes from.",
    }
    holder[RULES] = [
        {
            "rule": f"!has(self.{name}) || has(self.priority)",
            "message": f"priority must be set when {name} is set",
            "fieldPath": ".priority",
        }
    ]
    kept = [rule for rule in root[RULES] if change.newer not in rule["rule"]]
    root[RULES] = [
        *kept,
        {
            "rule": f"!{WAS_RESERVED} || {_value('oldSelf', source)} == {_value('self', source)}",
            "message": f"{source} is immutable while quota is reserved",
            "fieldPath": f".{change.at}.{source}",
        },
        {
            # The name of ours may become another one. To take it away, or to give one where there was none,
            # would take the whole reference away, or make one.
            "rule": f"!{WAS_RESERVED} || {_value('oldSelf', name)} == {_value('self', name)} || "
            f"({_value('self', source)} == '{next(iter(change.sources))}' && "
            f"{_value('oldSelf', name)} != '' && {_value('self', name)} != '')",
            "message": f"{name} is immutable while quota is reserved, but for another WorkloadPriorityClass",
            "fieldPath": f".{change.at}.{name}",
        },
    ]


def _value(of: str, field: str) -> str:
    return f"(has({of}.spec.{field}) ? {of}.spec.{field} : '')"


def _spell_out(assignment: dict[str, Any], old: str, new: str) -> None:
    fields = assignment["properties"]
    levels = fields["levels"]
    _require_no_more(assignment, new)
    fields[new]["description"] = "The domains, if they are too many to be written one by one."
    fields[old] = {
        "description": "The domains.",
        "type": "array",
        "minItems": 1,
        "maxItems": MOST_SPELLED_OUT,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "How many pods go to one domain.",
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
                    "description": "How many pods.",
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

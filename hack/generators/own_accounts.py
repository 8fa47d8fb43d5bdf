"""CEL expressions that limit what admitq's accounts can change in jobs, pods and queues.

They are generated from the table of the fields that the manager writes. An expression inspects a value only
if it differs. A comparison is cheap for the API server. An iteration over a large map of a tenant may exceed
the cost limit, and then the API server rejects the write. So a job with huge templates can still be
suspended.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from admitq.integrations.base import Integration
from admitq.integrations.registry import BUILT_IN_KINDS
from admitq.integrations.written_fields import (
    INJECTED_SPEC_FIELDS,
    INJECTED_TEMPLATE_FIELDS,
    SPEC_FIELDS,
    STATUS_FIELDS,
    AnyValue,
    ListItems,
    MapValues,
    OptionalTemplate,
    OwnPatches,
    PrefixedEntries,
    WritableFields,
    WritableValue,
)
from admitq_api.labels import DEFAULT_GROUP, names_for

_NAMES: Final = names_for(DEFAULT_GROUP)
_CREATED_SPEC: Final = ("containers", "restartPolicy", *INJECTED_SPEC_FIELDS)
_CREATED_CONTAINER: Final = ("name", "image", "resources")

_HELD: Final = ("admissionchecks", "clusterqueues", "resourceflavors", "topologies")
"""Kinds that administrators write. The manager writes only their finalizer and their status."""


def rules() -> list[dict[str, Any]]:
    """Return the data for the chart, for each kind that admitq's accounts write."""
    jobs = [_rule(kind) for kind in BUILT_IN_KINDS if kind.framework in SPEC_FIELDS]
    return [*jobs, *map(_rule_of_held, _HELD)]


def _rule(kind: Integration) -> dict[str, Any]:
    metadata = _pod_metadata() if kind.framework == "pod" else _job_metadata()
    spec = (
        f"{metadata} && {unchanged('dyn(oldObject).spec', 'dyn(object).spec', SPEC_FIELDS[kind.framework])}"
    )
    status = "false"
    if kind.framework in STATUS_FIELDS:
        before, after = "dyn(oldObject).?status.orValue({})", "dyn(object).?status.orValue({})"
        status = f"{_same_metadata()} && {unchanged(before, after, STATUS_FIELDS[kind.framework])}"
    return {
        "group": kind.group,
        "resource": kind.plural,
        # The manager writes pods of many kinds, and of elastic jobs.
        "frameworks": [] if kind.framework == "pod" else [kind.framework],
        "spec": spec,
        "status": status,
    }


def _rule_of_held(plural: str) -> dict[str, Any]:
    same = _same("labels", "annotations", "ownerReferences")
    spec = "dyn(oldObject).?spec == dyn(object).?spec"
    finalizers = _finalizers(_NAMES.finalizer, may_come=True)
    return {
        "group": _NAMES.group,
        "resource": plural,
        "frameworks": [],
        "spec": f"{same} && {finalizers} && {spec}",
        # This write may change only the status.
        "status": "true",
    }


# --- metadata -----------------------------------------------------------------------------------------


def _same(*fields: str) -> str:
    """Return an expression that is true if these fields of the metadata are unchanged."""
    before, after = "dyn(oldObject).metadata", "dyn(object).metadata"
    return " && ".join(f"{before}.?{field} == {after}.?{field}" for field in fields)


def _same_metadata() -> str:
    return _same("labels", "annotations", "finalizers", "ownerReferences")


def _job_metadata() -> str:
    # The manager writes only annotations, such as the mark of a stop in progress.
    return _same("labels", "finalizers", "ownerReferences")


def _pod_metadata() -> str:
    """Return an expression that is true if only admitq's marks change.

    It is also true if a scheduling gate of admitq holds the pod: then any label and annotation can change.
    """
    gates = ", ".join(f"'{row.key}'" for row in _NAMES.list_rows() if row.kind == "scheduling gate")
    is_gated = f"dyn(oldObject).spec.?schedulingGates.orValue([]).exists(g, g.name in [{gates}])"
    parts = [_same("ownerReferences"), _finalizers(_NAMES.managed_finalizer)]
    for field in ("labels", "annotations"):
        before, after = (f"dyn({state}).metadata.?{field}.orValue({{}})" for state in ("oldObject", "object"))
        parts.append(
            f"({before} == {after} || {is_gated} || {_prefixed(before, after, (f'{_NAMES.group}/',))})"
        )
    return " && ".join(parts)


def _finalizers(own: str, *, may_come: bool = False) -> str:
    """Return an expression that is true if only admitq's finalizer was removed or, if allowed, added."""
    before, after = (f"dyn({state}).metadata.?finalizers.orValue([])" for state in ("oldObject", "object"))
    comes = f"f == '{own}' || " if may_come else ""
    return f"{after}.all(f, {comes}f in {before}) && {before}.all(f, f == '{own}' || f in {after})"


# --- fields -------------------------------------------------------------------------------------------


def unchanged(before: str, after: str, fields: WritableFields, depth: Iterator[int] | None = None) -> str:
    """Return an expression that is true if only these fields differ between two maps.

    Args:
        before: an expression for the stored map.
        after: an expression for the new map.
        fields: the fields that may change.
        depth: the nesting depth, which numbers the variables, so that their names are unique.
    """
    depth = depth or count()
    number = next(depth)
    key, old, new = f"k{number}", f"o{number}", f"n{number}"
    listed = "[" + ", ".join(f"'{name}'" for name in fields) + "]"
    parts = [
        f"{new}.all({key}, {key} in {listed} || ({key} in {old} && {old}[{key}] == {new}[{key}]))",
        f"{old}.all({key}, {key} in {listed} || {key} in {new})",
    ]
    for name, value in fields.items():
        if not isinstance(value, AnyValue):
            same = f"{old}.?{name} == {new}.?{name}"
            parts.append(f"({same} || {_deep(old, new, name, value, depth)})")
    # CEL has only variables of macros here. A macro over a list with one element gives a name to a value.
    return f"[{before}].all({old}, [{after}].all({new}, {' && '.join(parts)}))"


def _deep(before: str, after: str, name: str, value: WritableValue, depth: Iterator[int]) -> str:
    """Return an expression that is true if a changed value differs only in allowed fields."""
    empty = "[]" if isinstance(value, ListItems | OwnPatches) else "{}"
    old, new = (f"{state}.?{name}.orValue({empty})" for state in (before, after))
    match value:
        case ListItems(of):
            number = next(depth)
            x, y = f"x{number}", f"y{number}"
            items_equal = f"{new}.all({x}, {old}.exists({y}, {unchanged(y, x, of, depth)}))"
            return f"{new}.size() == {old}.size() && {items_equal}"
        case MapValues(of):
            e = f"e{next(depth)}"
            inner = unchanged(f"{old}[{e}]", f"{new}[{e}]", of, depth)
            return f"{old}.all({e}, {e} in {new}) && {new}.all({e}, {e} in {old} && {inner})"
        case PrefixedEntries(prefixes):
            return _prefixed(old, new, prefixes)
        case OptionalTemplate(of, images):
            creation = _made(f"{after}.{name}.spec", images)
            change = unchanged(old, new, of, depth)
            return f"!has({after}.{name}) || (has({before}.{name}) ? {change} : {creation})"
        case OwnPatches():
            return _own_patches(old, new)
        case Mapping():
            return unchanged(old, new, value, depth)
        case _:
            raise TypeError(f"{name}: no expression for {value}")


def _prefixed(old: str, new: str, prefixes: tuple[str, ...]) -> str:
    free = " || ".join(f"k.startsWith('{prefix}')" for prefix in prefixes)
    other_items = f"{new}.all(k, {free} || (k in {old} && {old}[k] == {new}[k]))"
    return f"({other_items} && {old}.all(k, {free} || k in {new}))"


def _made(spec: str, images: tuple[str, ...]) -> str:
    """Return an expression that is true if a new template has only known images and injected fields."""
    known = f"dyn(object).{'.'.join(images)}.map(h, h.image)" if images else "[]"
    return (
        f"{spec}.all(k, k in {list(_CREATED_SPEC)}) && {spec}.containers.all(c, "
        f"c.all(k, k in {list(_CREATED_CONTAINER)}) && (!has(c.image) || c.image in {known}))"
    )


def _own_patches(old: str, new: str) -> str:
    own = f"p.?manager.orValue('') == '{_NAMES.trainjob_manager}'"
    template = "r.?template.spec.template"
    return (
        f"{new}.filter(p, !({own})) == {old}.filter(p, !({own})) && "
        f"{new}.filter(p, {own}).all(p, p.all(k, k in ['manager', 'time', 'trainingRuntimeSpec']) && "
        "p.?trainingRuntimeSpec.template.spec.replicatedJobs.orValue([]).all(r, "
        "r.all(k, k in ['name', 'template']) && r.?template.orValue({}).all(k, k == 'spec') && "
        "r.?template.spec.orValue({}).all(k, k == 'template') && "
        f"{template}.metadata.orValue({{}}).all(k, k in {list(INJECTED_TEMPLATE_FIELDS['metadata'])}) && "
        f"{template}.spec.orValue({{}}).all(k, k in {list(INJECTED_SPEC_FIELDS)})))"
    )

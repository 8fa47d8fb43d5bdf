"""Rules of the topology annotations of pod templates."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import orjson

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import as_int
from admitq_api.labels import Names
from admitq_api.syntax import check_qualified_name
from admitq_webhooks.validate.syntax import check_text, find_duplicates

_DIGITS: Final = re.compile(r"[0-9]{1,10}")
_BOOLEANS: Final = frozenset(
    {"1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"}
)
_MAX_CONSTRAINTS: Final = 3


class TemplateAnnotations(NamedTuple):
    """Annotations of one podset's template.

    Attributes:
        annotations: the annotations of the template.
        path: the path of the annotations in the job.
        pods: the number of pods in the podset.
    """

    annotations: Mapping[str, Any]
    path: ErrorPath
    pods: int


def validate(
    templates: Sequence[TemplateAnnotations], names: Names, gates: FeatureGates, *, elastic: bool
) -> Iterator[FieldError]:
    """Check the topology requests of all podsets of a job, singly and together."""
    for template in templates:
        yield from _one_kind(template, names)
        yield from _slices(template, names)
        if gates.is_enabled(Gate.TAS_MULTI_LAYER_TOPOLOGY):
            yield from _constraints(template, names)
        yield from _group_name(template, names)
        if elastic:
            for key in (names.podset_required_topology, names.podset_preferred_topology):
                if key in template.annotations:
                    yield FieldError.forbidden(template.path.key(key), "cannot be used with elastic jobs")
    yield from _groups(templates, names)


def _one_kind(template: TemplateAnnotations, names: Names) -> Iterator[FieldError]:
    kinds = (
        names.podset_required_topology,
        names.podset_preferred_topology,
        names.podset_unconstrained_topology,
    )
    used = [key for key in kinds if key in template.annotations]
    if len(used) > 1:
        yield FieldError.invalid(
            template.path, used, f"must not contain more than one topology annotation: {', '.join(kinds)}"
        )
    for key in used:
        value = template.annotations[key]
        if key == names.podset_unconstrained_topology:
            if not isinstance(value, str) or value not in _BOOLEANS:
                yield FieldError.invalid(template.path.key(key), value, "must be a boolean value")
        else:
            yield from check_text(template.path.key(key), value, check_qualified_name)


def _slices(template: TemplateAnnotations, names: Names) -> Iterator[FieldError]:
    topology_key, size_key = names.podset_slice_required_topology, names.podset_slice_size
    topology, size = template.annotations.get(topology_key), template.annotations.get(size_key)
    if topology is not None:
        yield from check_text(template.path.key(topology_key), topology, check_qualified_name)
        if size is None:
            yield FieldError.required(
                template.path.key(size_key), f"must be set when '{topology_key}' is specified"
            )
    if size is None:
        return
    where = template.path.key(size_key)
    if topology is None:
        yield FieldError.forbidden(where, f"may not be set when '{topology_key}' is not specified")
    if not (isinstance(size, str) and _DIGITS.fullmatch(size)):
        yield FieldError.invalid(where, size, "must be a numeric value")
    elif int(size) < 1:
        yield FieldError.invalid(where, size, "must be greater than or equal to 1")
    elif int(size) > template.pods:
        yield FieldError.invalid(where, size, f"must not be greater than pod set count {template.pods}")


def _constraints(template: TemplateAnnotations, names: Names) -> Iterator[FieldError]:
    key = names.podset_slice_required_topology_constraints
    value = template.annotations.get(key)
    if value is None:
        return
    where = template.path.key(key)
    for other in (names.podset_slice_required_topology, names.podset_slice_size, names.podset_group_name):
        if other in template.annotations:
            yield FieldError.forbidden(where, f"may not be set together with '{other}'")
    constraints = _parse_constraints(value)
    if constraints is None:
        yield FieldError.invalid(
            where, value, f"must be a JSON array of 1 to {_MAX_CONSTRAINTS} objects with topology and size"
        )
        return
    topologies = [str(constraint.get("topology") or "") for constraint in constraints]
    sizes = [as_int(constraint.get("size")) for constraint in constraints]
    for topology in topologies:
        if (wrong := check_qualified_name(topology)) is not None:
            yield FieldError.invalid(where, topology, wrong)
    for _, topology in find_duplicates(topologies):
        yield FieldError.duplicate(where, topology)
    for place, size in enumerate(sizes):
        if size < 1:
            yield FieldError.invalid(where, size, "size must be greater than or equal to 1")
        elif place > 0 and sizes[place - 1] % size != 0:
            yield FieldError.invalid(
                where, size, f"size must divide that of its predecessor, {sizes[place - 1]}"
            )
    if sizes[0] > template.pods:
        yield FieldError.invalid(
            where, sizes[0], f"size must not be greater than pod set count {template.pods}"
        )


def _parse_constraints(value: Any) -> list[Mapping[str, Any]] | None:
    try:
        parsed = orjson.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        return None
    if not isinstance(parsed, list):
        return None
    items = cast("list[Any]", parsed)
    if not 1 <= len(items) <= _MAX_CONSTRAINTS or not all(isinstance(item, dict) for item in items):
        return None
    return items


def _group_name(template: TemplateAnnotations, names: Names) -> Iterator[FieldError]:
    key = names.podset_group_name
    value = template.annotations.get(key)
    if value is None:
        return
    where = template.path.key(key)
    if not isinstance(value, str) or (value.isascii() and value.isdigit()):
        yield FieldError.invalid(where, value, "must not be a number")
    requests = (names.podset_required_topology, names.podset_preferred_topology)
    if not any(request in template.annotations for request in requests):
        yield FieldError.forbidden(
            where, f"may not be set when neither '{requests[0]}' nor '{requests[1]}' is"
        )
    for slices in (names.podset_slice_required_topology, names.podset_slice_size):
        if slices in template.annotations:
            yield FieldError.forbidden(where, f"may not be set together with '{slices}'")


def _groups(templates: Sequence[TemplateAnnotations], names: Names) -> Iterator[FieldError]:
    key = names.podset_group_name
    groups: dict[str, list[TemplateAnnotations]] = {}
    for template in templates:
        if isinstance(name := template.annotations.get(key), str):
            groups.setdefault(name, []).append(template)
    for name, members in groups.items():
        where = members[0].path.key(key)
        if len(members) != 2:
            yield FieldError.invalid(
                where, name, f"a group must have exactly 2 pod sets, this one has {len(members)}"
            )
            continue
        if all(member.pods != 1 for member in members):
            yield FieldError.invalid(where, name, "at least one pod set of a group must have exactly 1 pod")
        for request in (names.podset_required_topology, names.podset_preferred_topology):
            values = [member.annotations.get(request) for member in members]
            if values[0] != values[1]:
                yield FieldError.invalid(
                    members[1].path.key(request),
                    values[1],
                    f"must be the same in both pod sets of group {name}",
                )

"""The annotations of pod templates that request a topology (semantics, TAS annotations on pod templates).

Pure functions. The webhook rejects jobs with invalid annotations. If such a job is stored nevertheless, the
job controller creates no Workload for it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import orjson

from admitq.integrations.base import Integration, PodSetTemplate
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.field_errors import ErrorPath, FieldError, check_text
from admitq_api.json_objects import JsonObject, as_int, object_at, value_at
from admitq_api.labels import Names
from admitq_api.syntax import check_qualified_name

_DIGITS: Final = re.compile(r"[0-9]{1,10}")
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_MAX_LAYERS: Final = 3
_LONGEST_LEVEL: Final = 63
_LONGEST_GROUP_NAME: Final = 256
"""The limits of the fields of a Workload."""


class TopologyRules(NamedTuple):
    """Feature gates on which the meaning of the annotations depends.

    Attributes:
        has_layers: whether a template can request several layers of slices (gate TASMultiLayerTopology).
        has_elastic_jobs: whether jobs can be elastic (gate ElasticJobsViaWorkloadSlices).
    """

    has_layers: bool = True
    has_elastic_jobs: bool = True


DEFAULT_TOPOLOGY_RULES: Final = TopologyRules()
"""The rules with the defaults of the feature gates."""


def configured_topology_rules(gates: FeatureGates) -> TopologyRules | None:
    """Return the rules of the feature gates; None if the annotations have no meaning."""
    if not gates[Gate.TOPOLOGY_AWARE_SCHEDULING]:
        return None
    return TopologyRules(gates[Gate.TAS_MULTI_LAYER_TOPOLOGY], gates[Gate.ELASTIC_JOBS])


class TemplateAnnotations(NamedTuple):
    """Annotations of one podset's template.

    Attributes:
        annotations: the annotations of the template.
        path: the path of the annotations in the job.
        pods: the number of pods in the podset; None if it limits no slices.
    """

    annotations: Mapping[str, Any]
    path: ErrorPath
    pods: int | None


# --- the request ----------------------------------------------------------------------------------------


def create_topology_request(
    annotations: Mapping[str, Any], names: Names, rules: TopologyRules
) -> dict[str, Any]:
    """Return the fields of a Workload's ``topologyRequest`` that annotations set; empty without any.

    The annotations are valid (``find_template_errors``). Values that cannot be parsed are left out.
    """
    request: dict[str, Any] = {}
    for key, field in (
        (names.podset_required_topology, "required"),
        (names.podset_preferred_topology, "preferred"),
        (names.podset_slice_required_topology, "podSetSliceRequiredTopology"),
        (names.podset_group_name, "podSetGroupName"),
    ):
        if isinstance(value := annotations.get(key), str):
            request[field] = value
    unconstrained = annotations.get(names.podset_unconstrained_topology)
    if isinstance(unconstrained, str) and unconstrained in _TRUE | _FALSE:
        request["unconstrained"] = unconstrained in _TRUE
    if (size := _parse_size(annotations.get(names.podset_slice_size))) is not None:
        request["podSetSliceSize"] = size
    layers = annotations.get(names.podset_slice_required_topology_constraints) if rules.has_layers else None
    if parsed := _parse_layers(layers):
        request["podsetSliceRequiredTopologyConstraints"] = [
            {"topology": layer.get("topology"), "size": layer.get("size")} for layer in parsed
        ]
    return request


def _parse_size(value: Any) -> int | None:
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else None


def _parse_layers(value: Any) -> list[Mapping[str, Any]] | None:
    try:
        parsed = orjson.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        return None
    if not isinstance(parsed, list):
        return None
    items = cast("list[Any]", parsed)
    if not 1 <= len(items) <= _MAX_LAYERS or not all(isinstance(item, dict) for item in items):
        return None
    return items


# --- errors ---------------------------------------------------------------------------------------------


def list_template_annotations(
    job: JsonObject, pod_sets: Iterable[PodSetTemplate], *, is_started: bool, elastic: bool
) -> list[TemplateAnnotations]:
    """Return the annotations of the templates of podsets.

    The number of pods of a started job does not count if partial admission or scaling may have changed it.
    """
    return [
        TemplateAnnotations(
            object_at(pod_set.get_template(job), ("metadata", "annotations")),
            ErrorPath().at(*pod_set.annotations_path),
            None if is_started and (elastic or pod_set.min_count is not None) else pod_set.count,
        )
        for pod_set in pod_sets
    ]


def is_elastic(job: JsonObject, integration: Integration, names: Names, rules: TopologyRules) -> bool:
    """Whether the job can be scaled while it runs, so that its pods can have no common domain."""
    marked = value_at(job, ("metadata", "annotations", names.elastic_job)) == "true"
    return marked and rules.has_elastic_jobs and integration.scaling.can_be_elastic


def find_template_errors(
    templates: Sequence[TemplateAnnotations], names: Names, rules: TopologyRules, *, elastic: bool
) -> Iterator[FieldError]:
    """Yield the errors of each template, without the rules for podset groups.

    A podset without pods, such as that of a StatefulSet at zero replicas, can have slices of any size.
    """
    for template in templates:
        yield from _find_kind_errors(template, names)
        yield from _find_slice_errors(template, names)
        if rules.has_layers:
            yield from _find_layer_errors(template, names)
        yield from _find_group_name_errors(template, names)
        if elastic:
            for key in (names.podset_required_topology, names.podset_preferred_topology):
                if key in template.annotations:
                    yield FieldError.forbidden(template.path.key(key), "cannot be used with elastic jobs")


def _find_kind_errors(template: TemplateAnnotations, names: Names) -> Iterator[FieldError]:
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
            if not isinstance(value, str) or value not in _TRUE | _FALSE:
                yield FieldError.invalid(template.path.key(key), value, "must be a boolean value")
        else:
            yield from _find_level_errors(template.path.key(key), value)


def _find_level_errors(path: ErrorPath, value: Any) -> Iterator[FieldError]:
    yield from check_text(path, value, check_qualified_name)
    if isinstance(value, str) and len(value) > _LONGEST_LEVEL:
        yield FieldError.too_long(path, _LONGEST_LEVEL)


def _find_slice_errors(template: TemplateAnnotations, names: Names) -> Iterator[FieldError]:
    topology_key, size_key = names.podset_slice_required_topology, names.podset_slice_size
    topology, text = template.annotations.get(topology_key), template.annotations.get(size_key)
    if topology is not None:
        yield from _find_level_errors(template.path.key(topology_key), topology)
        if text is None:
            yield FieldError.required(
                template.path.key(size_key), f"must be set when '{topology_key}' is specified"
            )
    if text is None:
        return
    where = template.path.key(size_key)
    if topology is None:
        yield FieldError.forbidden(where, f"may not be set when '{topology_key}' is not specified")
    size = _parse_size(text)
    if size is None:
        yield FieldError.invalid(where, text, "must be a numeric value")
    elif size < 1:
        yield FieldError.invalid(where, text, "must be greater than or equal to 1")
    elif template.pods and size > template.pods:
        yield FieldError.invalid(where, text, f"must not be greater than pod set count {template.pods}")


def _find_layer_errors(template: TemplateAnnotations, names: Names) -> Iterator[FieldError]:
    key = names.podset_slice_required_topology_constraints
    value = template.annotations.get(key)
    if value is None:
        return
    where = template.path.key(key)
    for other in (names.podset_slice_required_topology, names.podset_slice_size, names.podset_group_name):
        if other in template.annotations:
            yield FieldError.forbidden(where, f"may not be set together with '{other}'")
    layers = _parse_layers(value)
    if layers is None:
        yield FieldError.invalid(
            where, value, f"must be a JSON array of 1 to {_MAX_LAYERS} objects with topology and size"
        )
        return
    topologies = [layer.get("topology", "") for layer in layers]
    for place, topology in enumerate(topologies):
        yield from _find_level_errors(where, topology)
        if topology in topologies[:place]:
            yield FieldError.duplicate(where, topology)
    sizes = [as_int(layer.get("size")) for layer in layers]
    for place, size in enumerate(sizes):
        if size < 1:
            stated = layers[place].get("size")
            yield FieldError.invalid(where, stated, "size must be greater than or equal to 1")
        elif place > 0 and sizes[place - 1] % size != 0:
            yield FieldError.invalid(
                where, size, f"size must divide that of its predecessor, {sizes[place - 1]}"
            )
    if template.pods and sizes[0] > template.pods:
        yield FieldError.invalid(
            where, sizes[0], f"size must not be greater than pod set count {template.pods}"
        )


def _find_group_name_errors(template: TemplateAnnotations, names: Names) -> Iterator[FieldError]:
    key = names.podset_group_name
    value = template.annotations.get(key)
    if value is None:
        return
    where = template.path.key(key)
    if not isinstance(value, str) or (value.isascii() and value.isdigit()):
        yield FieldError.invalid(where, value, "must not be a number")
    elif len(value) > _LONGEST_GROUP_NAME:
        yield FieldError.too_long(where, _LONGEST_GROUP_NAME)
    requests = (names.podset_required_topology, names.podset_preferred_topology)
    if not any(request in template.annotations for request in requests):
        yield FieldError.forbidden(
            where, f"may not be set when neither '{requests[0]}' nor '{requests[1]}' is"
        )
    for slices in (names.podset_slice_required_topology, names.podset_slice_size):
        if slices in template.annotations:
            yield FieldError.forbidden(where, f"may not be set together with '{slices}'")


def find_group_errors(templates: Sequence[TemplateAnnotations], names: Names) -> Iterator[FieldError]:
    """Yield the errors of podset groups. ``templates`` are those of all podsets of a job."""
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
        if all(member.pods not in (1, None) for member in members):
            yield FieldError.invalid(where, name, "at least one pod set of a group must have exactly 1 pod")
        for request in (names.podset_required_topology, names.podset_preferred_topology):
            values = [member.annotations.get(request) for member in members]
            if values[0] != values[1]:
                yield FieldError.invalid(
                    members[1].path.key(request),
                    values[1],
                    f"must be the same in both pod sets of group {name}",
                )

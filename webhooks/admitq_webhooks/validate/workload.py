"""Rules of Workloads and their status that the schema cannot express."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from admitq_api.conditions import ConditionType, is_true
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.field_errors import ErrorPath, FieldError, select_new_errors
from admitq_api.json_objects import JsonObject, aligned_objects_at, as_int, object_at, text_at
from admitq_api.labels import Names
from admitq_api.quantity import INT64_MAX, QuantityError, parse_amount, parse_quantity
from admitq_api.semantic_equality import are_equivalent
from admitq_webhooks.validate import admission_gates
from admitq_webhooks.validate.syntax import (
    check_annotations,
    check_labels,
    check_tolerations,
    is_being_deleted,
    texts_at,
)

PODS: Final = "pods"
"""The resource that counts pods; admitq adds it, and no podset may request it."""

_POD_SET_DEFAULTS: Final[Mapping[str, object]] = {"name": "main", "count": 1}
_ASSIGNMENT_DEFAULTS: Final[Mapping[str, object]] = {"name": "main"}
"""Defaults of the schema for absent fields."""

_SIGNED_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_INT32: Final = range(-(2**31), 2**31)


def validate_create(workload: JsonObject, names: Names, gates: FeatureGates) -> list[FieldError]:
    """Check a new Workload."""
    errors = [*_finished_label(workload, names), *_validate(workload, None, names, gates)]
    if gates.is_enabled(Gate.ADMISSION_GATED_BY):
        errors.extend(admission_gates.validate_create(workload, names))
    return errors


def validate_update(old: JsonObject, new: JsonObject, names: Names, gates: FeatureGates) -> list[FieldError]:
    """Check an update of a Workload or its status.

    All updates of a Workload being deleted are allowed, except that it gets the label of finished Workloads.
    """
    errors = select_new_errors(_finished_label(new, names), _finished_label(old, names))
    if is_being_deleted(old):
        return errors
    errors.extend(select_new_errors(_validate(new, old, names, gates), _validate(old, None, names, gates)))
    if gates.is_enabled(Gate.ADMISSION_GATED_BY):
        errors.extend(admission_gates.validate_update(old, new, names))
    elastic = _is_elastic(new, names, gates)
    may_scale_down = gates.is_enabled(Gate.ELASTIC_JOBS)
    if _has_quota(old):
        errors.extend(_pod_sets_unchanged(old, new, may_scale_down=may_scale_down))
        if _has_quota(new) and not elastic:
            errors.extend(_reclaimable_not_shrunk(old, new, may_scale_down=may_scale_down))
    errors.extend(_admission_unchanged(old, new, gates, elastic=elastic))
    errors.extend(_updates_of_ready_checks_unchanged(old, new))
    if not (may_scale_down and _is_replacement(new, names)):
        errors.extend(_cluster_was_nominated(old, new))
    return errors


def _finished_label(workload: JsonObject, names: Names) -> Iterator[FieldError]:
    """A manager that starts lists labelled Workloads last. Until then their quota would not count."""
    conditions = aligned_objects_at(workload, ("status", "conditions"))
    has_label = names.finished in object_at(workload, ("metadata", "labels"))
    if has_label and not is_true(conditions, ConditionType.FINISHED):
        yield FieldError.forbidden(
            ErrorPath("metadata.labels").key(names.finished),
            "the workload has not finished",
            f"leave it out: {names.product} sets it when the workload has finished",
        )


def _has_quota(workload: JsonObject) -> bool:
    return is_true(aligned_objects_at(workload, ("status", "conditions")), ConditionType.QUOTA_RESERVED)


def _is_elastic(workload: JsonObject, names: Names, gates: FeatureGates) -> bool:
    annotation = object_at(workload, ("metadata", "annotations")).get(names.elastic_job)
    return annotation == "true" and gates.is_enabled(Gate.ELASTIC_JOBS)


def _is_replacement(workload: JsonObject, names: Names) -> bool:
    return names.workload_slice_replacement_for in object_at(workload, ("metadata", "annotations"))


def _counts(workload: JsonObject) -> dict[str, int]:
    """Return the pods of each podset; one without a count has one pod."""
    return {
        text_at(pod_set, ("name",)): as_int(pod_set.get("count"), 1)
        for pod_set in aligned_objects_at(workload, ("spec", "podSets"))
    }


def _validate(
    workload: JsonObject, old: JsonObject | None, names: Names, gates: FeatureGates
) -> Iterator[FieldError]:
    yield from _pod_sets(workload, names, gates)
    if _has_quota(workload):
        yield from _admission(workload, old)
    yield from _reclaimable(workload, old, may_scale_down=gates.is_enabled(Gate.ELASTIC_JOBS))
    yield from _pod_set_updates(workload)
    if gates.is_enabled(Gate.PRIORITY_BOOST):
        yield from _priority_boost(workload, names)


def _pod_sets(workload: JsonObject, names: Names, gates: FeatureGates) -> Iterator[FieldError]:
    path = ErrorPath("spec.podSets")
    pod_sets = aligned_objects_at(workload, ("spec", "podSets"))
    partial = [place for place, pod_set in enumerate(pod_sets) if pod_set.get("minCount") is not None]
    if len(partial) > 1:
        yield FieldError.invalid(
            path,
            [text_at(pod_sets[place], ("name",)) for place in partial],
            "at most one podSet can use minCount",
        )
    if partial and object_at(workload, ("metadata", "annotations")).get(names.elastic_job) == "true":
        yield FieldError.invalid(
            path.at(partial[0], "minCount"),
            pod_sets[partial[0]].get("minCount"),
            "partial admission and elastic job cannot be used together",
            f"leave out minCount, or the annotation {names.elastic_job}",
        )
    for place, pod_set in enumerate(pod_sets):
        at = path.at(place)
        if gates.is_enabled(Gate.WORKLOAD_VALIDATION_FOR_POD_SET_METADATA):
            metadata = object_at(pod_set, ("template", "metadata"))
            where = at.at("template", "metadata")
            yield from check_labels(object_at(metadata, ("labels",)), where.at("labels"))
            yield from check_annotations(object_at(metadata, ("annotations",)), where.at("annotations"))
        yield from _resources(
            object_at(pod_set, ("template", "spec")), at.at("template", "spec"), names, gates
        )
        if gates.is_enabled(Gate.TAS_VALIDATE_WORKLOAD_SLICE_SIZE):
            yield from _slices(object_at(pod_set, ("topologyRequest",)), at.at("topologyRequest"))


def _resources(spec: JsonObject, path: ErrorPath, names: Names, gates: FeatureGates) -> Iterator[FieldError]:
    places = [
        (path.at(kind, place, "resources"), object_at(container, ("resources",)))
        for kind in ("initContainers", "containers")
        for place, container in enumerate(aligned_objects_at(spec, (kind,)))
    ]
    places.append((path.at("resources"), object_at(spec, ("resources",))))
    for where, resources in places:
        for kind in ("requests", "limits"):
            for resource, value in object_at(resources, (kind,)).items():
                field = where.at(kind).key(resource)
                if resource == PODS:
                    yield FieldError.invalid(
                        field,
                        resource,
                        f"the key is reserved for internal {names.product.lower()} use",
                        "leave it out: pods are counted anyway",
                    )
                elif gates.is_enabled(Gate.WORKLOAD_VALIDATE_RESOURCES_NON_NEGATIVE) and _is_negative(value):
                    yield FieldError.invalid(field, value, "must be greater than or equal to 0")


def _is_negative(value: Any) -> bool:
    try:
        return parse_quantity(value) < 0
    except QuantityError:
        # The schema rejects invalid quantities.
        return False


def _slices(request: JsonObject, path: ErrorPath) -> Iterator[FieldError]:
    topology, size = request.get("podSetSliceRequiredTopology"), request.get("podSetSliceSize")
    if topology is not None and size is None:
        yield FieldError.required(
            path.at("podSetSliceSize"), "must be set when podSetSliceRequiredTopology is specified"
        )
    if size is not None and topology is None:
        yield FieldError.required(
            path.at("podSetSliceRequiredTopology"), "must be set when podSetSliceSize is specified"
        )
    if size is not None and as_int(size) <= 0:
        yield FieldError.invalid(path.at("podSetSliceSize"), size, "must be greater than 0")
    for place, constraint in enumerate(
        aligned_objects_at(request, ("podsetSliceRequiredTopologyConstraints",))
    ):
        if as_int(constraint.get("size")) <= 0:
            yield FieldError.invalid(
                path.at("podsetSliceRequiredTopologyConstraints", place, "size"),
                constraint.get("size"),
                "must be greater than 0",
            )


def _admission(workload: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    path = ErrorPath("status.admission")
    admission = object_at(workload, ("status", "admission"))
    if not admission:
        stale = old is not None and _has_quota(old) and not object_at(old, ("status", "admission"))
        if not stale:
            yield FieldError.required(path, "must be set while the QuotaReserved condition is true")
        return
    counts = _counts(workload)
    for place, assignment in enumerate(aligned_objects_at(admission, ("podSetAssignments",))):
        at = path.at("podSetAssignments", place)
        name = text_at(assignment, ("name",))
        if name not in counts:
            yield FieldError.not_found(at.at("name"), name, "name a podset of spec.podSets")
        pods = as_int(assignment.get("count"), counts.get(name, 1))
        for resource, value in object_at(assignment, ("resourceUsage",)).items():
            if not _is_multiple(resource, value, pods):
                yield FieldError.invalid(
                    at.at("resourceUsage").key(resource), value, f"is not a multiple of {pods}"
                )


def _is_multiple(resource: str, value: Any, pods: int) -> bool:
    if pods <= 0:
        return True
    try:
        counted = parse_amount(resource, value)
        return counted == INT64_MAX or counted % pods == 0
    except QuantityError:
        return True


def _reclaimable(
    workload: JsonObject, old: JsonObject | None, *, may_scale_down: bool
) -> Iterator[FieldError]:
    path = ErrorPath("status.reclaimablePods")
    counts = _counts(workload)
    # After a scale-down, old counts remain until the job controller updates them.
    stale = (
        aligned_objects_at(old, ("status", "reclaimablePods")) if old is not None and may_scale_down else []
    )
    for place, entry in enumerate(aligned_objects_at(workload, ("status", "reclaimablePods"))):
        if entry in stale:
            continue
        name = text_at(entry, ("name",))
        if name not in counts:
            yield FieldError.not_supported(path.at(place, "name"), name, counts)
        elif as_int(entry.get("count")) > counts[name]:
            yield FieldError.invalid(
                path.at(place, "count"), entry.get("count"), f"should be less or equal to {counts[name]}"
            )


def _pod_set_updates(workload: JsonObject) -> Iterator[FieldError]:
    path = ErrorPath("status.admissionChecks")
    counts = _counts(workload)
    for place, check in enumerate(aligned_objects_at(workload, ("status", "admissionChecks"))):
        for index, update in enumerate(aligned_objects_at(check, ("podSetUpdates",))):
            at = path.at(place, "podSetUpdates", index)
            name = text_at(update, ("name",))
            if name not in counts:
                yield FieldError.not_supported(at.at("name"), name, counts)
            yield from check_labels(object_at(update, ("labels",)), at.at("labels"))
            yield from check_annotations(object_at(update, ("annotations",)), at.at("annotations"))
            yield from check_labels(object_at(update, ("nodeSelector",)), at.at("nodeSelector"))
            yield from check_tolerations(aligned_objects_at(update, ("tolerations",)), at.at("tolerations"))


def _priority_boost(workload: JsonObject, names: Names) -> Iterator[FieldError]:
    value = object_at(workload, ("metadata", "annotations")).get(names.priority_boost)
    if value is None:
        return
    valid = isinstance(value, str) and _SIGNED_INTEGER.fullmatch(value) and int(value) in _INT32
    if not valid:
        yield FieldError.invalid(
            ErrorPath("metadata.annotations").key(names.priority_boost), value, "must be a signed integer"
        )


def _pod_sets_unchanged(old: JsonObject, new: JsonObject, *, may_scale_down: bool) -> Iterator[FieldError]:
    before, after = aligned_objects_at(old, ("spec", "podSets")), aligned_objects_at(new, ("spec", "podSets"))
    if are_equivalent(before, after, _POD_SET_DEFAULTS):
        return
    if may_scale_down and _only_shrunk(before, after):
        return
    yield FieldError.invalid(
        "spec.podSets",
        [text_at(pod_set, ("name",)) for pod_set in after],
        "field is immutable",
        "it holds while quota is reserved; change the job instead",
    )


def _only_shrunk(before: list[JsonObject], after: list[JsonObject]) -> bool:
    return len(before) == len(after) and all(
        are_equivalent({**was, "count": 0}, {**is_now, "count": 0}, _POD_SET_DEFAULTS)
        and as_int(is_now.get("count"), 1) <= as_int(was.get("count"), 1)
        for was, is_now in zip(before, after, strict=True)
    )


def _reclaimable_not_shrunk(
    old: JsonObject, new: JsonObject, *, may_scale_down: bool
) -> Iterator[FieldError]:
    path = ErrorPath("status.reclaimablePods")
    after = {
        text_at(entry, ("name",)): entry for entry in aligned_objects_at(new, ("status", "reclaimablePods"))
    }
    places = {name: place for place, name in enumerate(after)}
    counts = _counts(new)
    for entry in aligned_objects_at(old, ("status", "reclaimablePods")):
        name, before = text_at(entry, ("name",)), as_int(entry.get("count"))
        if may_scale_down and counts.get(name, 0) < before:
            continue
        if name not in after:
            yield FieldError.required(path.key(name), "cannot be removed")
        elif as_int(after[name].get("count")) < before:
            yield FieldError.invalid(
                path.at(places[name], "count"), after[name].get("count"), f"cannot be less than {before}"
            )


def _admission_unchanged(
    old: JsonObject, new: JsonObject, gates: FeatureGates, *, elastic: bool
) -> Iterator[FieldError]:
    before, after = object_at(old, ("status", "admission")), object_at(new, ("status", "admission"))
    if not before or not after:
        return
    if _has_quota(new) and not _has_quota(old):
        # A new reservation replaces an admission that another program left without a reservation.
        return
    ignored: set[str] = set()
    if gates.is_enabled(Gate.TOPOLOGY_AWARE_SCHEDULING):
        ignored |= {"topologyAssignment", "delayedTopologyRequest"}
    if elastic:
        ignored |= {"count", "resourceUsage"}
    is_same = are_equivalent(
        _assignments_without(before, ignored), _assignments_without(after, ignored), _ASSIGNMENT_DEFAULTS
    ) and are_equivalent(_without_assignments(before), _without_assignments(after))
    if not is_same:
        yield FieldError.invalid(
            "status.admission",
            text_at(after, ("clusterQueue",)),
            "field is immutable",
            "a reservation can be taken back, but not changed",
        )


def _assignments_without(admission: JsonObject, ignored: set[str]) -> list[JsonObject]:
    return [
        {key: value for key, value in assignment.items() if key not in ignored}
        for assignment in aligned_objects_at(admission, ("podSetAssignments",))
    ]


def _without_assignments(admission: JsonObject) -> JsonObject:
    return {key: value for key, value in admission.items() if key != "podSetAssignments"}


def _updates_of_ready_checks_unchanged(old: JsonObject, new: JsonObject) -> Iterator[FieldError]:
    ready = {
        text_at(check, ("name",)): check
        for check in aligned_objects_at(old, ("status", "admissionChecks"))
        if text_at(check, ("state",)) == "Ready"
    }
    for place, check in enumerate(aligned_objects_at(new, ("status", "admissionChecks"))):
        before = ready.get(text_at(check, ("name",)))
        if before is None or text_at(check, ("state",)) != "Ready":
            continue
        if not are_equivalent(
            aligned_objects_at(before, ("podSetUpdates",)), aligned_objects_at(check, ("podSetUpdates",))
        ):
            yield FieldError.invalid(
                ErrorPath("status.admissionChecks").at(place, "podSetUpdates"),
                [text_at(update, ("name",)) for update in aligned_objects_at(check, ("podSetUpdates",))],
                "field is immutable",
                "it holds while the check is Ready",
            )


def _cluster_was_nominated(old: JsonObject, new: JsonObject) -> Iterator[FieldError]:
    before, after = text_at(old, ("status", "clusterName")), text_at(new, ("status", "clusterName"))
    if not after or before:
        return
    nominated = texts_at(old, ("status", "nominatedClusterNames"))
    if after not in nominated:
        yield FieldError.invalid(
            "status.clusterName",
            after,
            "when setting clusterName it must be one of the nominatedClusterNames",
            f"nominated: {', '.join(nominated) or 'none'}",
        )

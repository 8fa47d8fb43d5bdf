"""Changes of admitq's kinds on creation, in addition to the defaults of their schemas."""

from typing import Any, cast

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.json_objects import JsonObject, aligned_objects_at, object_at, with_value
from admitq_api.labels import Names


def add_finalizer(obj: JsonObject, names: Names) -> JsonObject:
    """Return the object with the finalizer, which keeps it until it is not used any more."""
    present = object_at(obj, ("metadata",)).get("finalizers")
    finalizers = cast("list[Any]", present) if isinstance(present, list) else []
    if names.finalizer in finalizers:
        return obj
    return with_value(obj, ("metadata", "finalizers"), [*finalizers, names.finalizer])


def mutate_workload(obj: JsonObject, gates: FeatureGates) -> JsonObject:
    """Return the Workload, without minimum counts if partial admission is disabled."""
    pod_sets = aligned_objects_at(obj, ("spec", "podSets"))
    if gates.is_enabled(Gate.PARTIAL_ADMISSION) or not any("minCount" in pod_set for pod_set in pod_sets):
        return obj
    without_minimum = [
        {key: value for key, value in pod_set.items() if key != "minCount"} for pod_set in pod_sets
    ]
    return with_value(obj, ("spec", "podSets"), without_minimum)

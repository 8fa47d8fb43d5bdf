"""Changes of admitq's kinds on creation, in addition to the defaults of their schemas."""

from typing import Any, cast

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.json_objects import JsonObject, aligned_objects_at, object_at, with_value, without_value
from admitq_api.labels import Names


def add_finalizer(obj: JsonObject, names: Names) -> JsonObject:
    """Return the object with the finalizer, which keeps it until it is not used any more."""
    present = object_at(obj, ("metadata",)).get("finalizers")
    finalizers = cast("list[Any]", present) if isinstance(present, list) else []
    if names.finalizer in finalizers:
        return obj
    return with_value(obj, ("metadata", "finalizers"), [*finalizers, names.finalizer])


def mutate_workload(obj: JsonObject, names: Names, gates: FeatureGates) -> JsonObject:
    """Return a new Workload as it is stored.

    A new Workload has not finished, so it loses the label of finished Workloads, for example after a restore
    from a backup. If partial admission is disabled, it also loses its minimum counts.
    """
    obj = without_value(obj, ("metadata", "labels", names.finished))
    pod_sets = aligned_objects_at(obj, ("spec", "podSets"))
    if gates.is_enabled(Gate.PARTIAL_ADMISSION) or not any("minCount" in pod_set for pod_set in pod_sets):
        return obj
    without_minimum = [
        {key: value for key, value in pod_set.items() if key != "minCount"} for pod_set in pod_sets
    ]
    return with_value(obj, ("spec", "podSets"), without_minimum)

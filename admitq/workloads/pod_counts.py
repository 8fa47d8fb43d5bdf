"""Numbers of pods by podset, from the spec of a Workload and from its admission."""

from admitq_api.json_objects import JsonObject, value_at


def requested_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Return the number of pods in the spec, by podset."""
    listed = value_at(workload, ("spec", "podSets"), [])
    return {pod_set.get("name", "main"): pod_set.get("count", 1) for pod_set in listed}


def assigned_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Return the number of pods in the admission, by podset.

    Another program may have written an assignment without a count. Such an assignment is for all pods.
    """
    requested = requested_pod_counts(workload)
    assignments = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    return {
        (name := assignment.get("name", "main")): requested.get(name, 0)
        if assignment.get("count") is None
        else assignment["count"]
        for assignment in assignments
    }


def covered_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Return the number of pods that have quota, by podset: the lower count of admission and spec.

    After a scale-down, the spec has the lower count before the assignment has it. Another program may have
    assigned fewer pods than the podset has.
    """
    requested = requested_pod_counts(workload)
    return {
        name: min(count, requested.get(name, count)) for name, count in assigned_pod_counts(workload).items()
    }

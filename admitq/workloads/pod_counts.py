"""Numbers of pods by podset, from the spec of a Workload and from its admission."""

from admitq_api.json_objects import JsonObject, value_at


def requested_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Return the number of pods in the spec, by podset."""
    listed = value_at(workload, ("spec", "podSets"), [])
    return {one.get("name", "main"): one.get("count", 1) for one in listed}


def assigned_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Return the number of pods in the admission, by podset.

    Another program may have written an assignment without a count. Such an assignment is for all pods.
    """
    wanted = requested_pod_counts(workload)
    assignments = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    return {
        (name := one.get("name", "main")): wanted.get(name, 0) if one.get("count") is None else one["count"]
        for one in assignments
    }


def covered_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Return the number of pods that have quota, by podset: the lower count of admission and spec.

    After a scale-down, the spec has the lower count before the assignment has it. Another program may have
    assigned fewer pods than the podset has.
    """
    wanted = requested_pod_counts(workload)
    return {
        name: min(count, wanted.get(name, count)) for name, count in assigned_pod_counts(workload).items()
    }

"""How many pods each podset of a Workload has, as its spec says and as its admission says."""

from admitq_api.json_objects import JsonObject, value_at


def requested_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Pods by podset, as the spec says."""
    listed = value_at(workload, ("spec", "podSets"), [])
    return {one.get("name", "main"): one.get("count", 1) for one in listed}


def assigned_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Pods by podset, as the admission says.

    An assignment may leave the count out, which another program may do: it is for all pods of its podset.
    """
    wanted = requested_pod_counts(workload)
    assignments = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    return {
        (name := one.get("name", "main")): wanted.get(name, 0) if one.get("count") is None else one["count"]
        for one in assignments
    }


def covered_pod_counts(workload: JsonObject) -> dict[str, int]:
    """Pods by podset that the admission has quota for: at most those that the spec says.

    A podset that is scaled down holds quota for its lower count before its assignment says so. Another
    program may have assigned fewer pods than the podset has.
    """
    wanted = requested_pod_counts(workload)
    return {
        name: min(count, wanted.get(name, count)) for name, count in assigned_pod_counts(workload).items()
    }

"""Laws that hold after every step of every history, with or without kills (semantics, Lifecycle)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from admitq.core.topology.domains import HOST_NAME
from admitq.integrations.ownership import get_controller
from admitq.workloads.transitions import is_condition_true, is_reserved
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names
from admitq_api.quantity import parse_amount
from tests.controlplane.hosts import hosts_of_pod_set
from tests.kills.chronicle import Place, Step

_RISING: Final = ("QuotaReserved", "Admitted", "Evicted", "Preempted", "Finished")
"""Conditions with counted transitions to true: a kill must not cause a second admission or eviction."""


def count_transitions(steps: Iterable[Step], symbols: dict[str, str]) -> Counter[str]:
    """Count how often conditions of Workloads became true."""
    before: dict[Place, JsonObject] = {}
    counts: Counter[str] = Counter()
    for step in steps:
        if step.place[0] == "Workload" and step.obj is not None:
            name = symbols.get(step.place[1], step.place[1])
            for type_ in _RISING:
                if _is_true(step.obj, type_) and not _is_true(before.get(step.place), type_):
                    counts[f"{name} {type_}"] += 1
        if step.obj is None:
            before.pop(step.place, None)
        else:
            before[step.place] = step.obj
    return counts


def find_violations(steps: Iterable[Step], names: Names) -> list[str]:
    """Every violation of a law, with its step."""
    now: dict[Place, JsonObject] = {}
    found: list[str] = []
    for step in steps:
        before = now.get(step.place)
        if step.obj is None:
            now.pop(step.place, None)
        else:
            now[step.place] = step.obj
        found += (
            f"{' '.join(step.place)} at {step.version}: {law}" for law in _broken(step, before, now, names)
        )
    return found


def _broken(
    step: Step, before: JsonObject | None, now: dict[Place, JsonObject], names: Names
) -> Iterator[str]:
    kind, obj = step.place[0], step.obj
    if obj is None:
        return
    if kind == "Workload":
        yield from _of_workload(obj, before)
        yield from _of_quota(now, names)
        yield from _of_hosts(now)
        if (
            is_reserved(before or {})
            and not is_reserved(obj)
            and not is_condition_true(obj, ConditionType.FINISHED)
        ):
            yield from (f"gave back quota while {name} runs" for name in _running(obj, now))
        yield from _of_owners(now, names)
    elif kind == "Pod":
        gate = {"name": names.admission_gate}
        if _has_gate(before, gate) and not _has_gate(obj, gate) and not _admitted(obj, now, names):
            yield "let go without being admitted"
        placed = {"name": names.topology_gate}
        if _has_gate(before, placed) and not _has_gate(obj, placed):
            yield from _of_placed_pod(obj, now, names)
    elif _is_suspended(before) and not _is_suspended(obj) and not _admitted(obj, now, names):
        yield "started without being admitted"


def _of_workload(obj: JsonObject, before: JsonObject | None) -> Iterator[str]:
    if (
        before is not None
        and is_condition_true(before, ConditionType.FINISHED)
        and not is_condition_true(obj, ConditionType.FINISHED)
    ):
        yield "is finished no longer"
    if is_condition_true(obj, ConditionType.ADMITTED) and not is_reserved(obj):
        yield "is admitted without quota"
    rises = is_condition_true(obj, ConditionType.ADMITTED) and not is_condition_true(
        before or {}, ConditionType.ADMITTED
    )
    if rises and value_at(obj, ("spec", "active"), True) is False:
        yield "is admitted while inactive"
    if rises and is_condition_true(obj, ConditionType.FINISHED):
        yield "is admitted after its end"


def _of_quota(now: dict[Place, JsonObject], names: Names) -> Iterator[str]:
    """Compare the reserved CPU with the quota of all ClusterQueues."""
    quota = sum(
        parse_amount("cpu", resource["nominalQuota"])
        for (kind, _), queue in now.items()
        if kind == "ClusterQueue"
        for group in value_at(queue, ("spec", "resourceGroups"), [])
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == "cpu"
    )
    workloads = {name: obj for (kind, name), obj in now.items() if kind == "Workload"}
    # A slice with quota includes that of the slice that it replaces, until that has ended.
    replaced = {
        str(value_at(obj, ("metadata", "annotations", names.workload_slice_replacement_for), "")).rpartition(
            "/"
        )[2]
        for obj in workloads.values()
        if is_reserved(obj)
    }
    held = sum(_held_cpu(obj) for name, obj in workloads.items() if name not in replaced)
    if held > quota:
        yield f"{held}m CPU are held of {quota}m"


def _of_hosts(now: dict[Place, JsonObject]) -> Iterator[str]:
    """Compare the CPU of assigned pods with that of each host that exists."""
    used: Counter[str] = Counter()
    for (kind, _), obj in now.items():
        if kind == "Workload" and is_reserved(obj) and not is_condition_true(obj, ConditionType.FINISHED):
            for part in value_at(obj, ("status", "admission", "podSetAssignments"), []):
                of_pod = parse_amount("cpu", part["resourceUsage"]["cpu"]) // part["count"]
                used.update({host: of_pod * count for host, count in _hosts_of(part).items()})
    for host, cpu in used.items():
        node = now.get(("Node", host))
        free = None if node is None else parse_amount("cpu", node["status"]["allocatable"]["cpu"])
        if free is not None and cpu > free:
            yield f"{cpu}m CPU are assigned to {host}, which has {free}m"


def _hosts_of(part: JsonObject) -> Counter[str]:
    """The number of pods that a podset has on each host."""
    if "topologyAssignment" not in part:
        return Counter()
    return hosts_of_pod_set(part)


def _of_placed_pod(pod: JsonObject, now: dict[Place, JsonObject], names: Names) -> Iterator[str]:
    """Check that a pod goes to a host of its podset, beside no more pods than are assigned there."""
    host = value_at(pod, ("spec", "nodeSelector", HOST_NAME))
    if host is None:
        return  # A group of pods without a topology: its pods have the gate until they are admitted.
    name, pod_set = _pod_set_of(pod, names)
    parts = value_at(now.get(("Workload", name)), ("status", "admission", "podSetAssignments"), [])
    assigned = next((_hosts_of(part) for part in parts if part["name"] == pod_set), Counter[str]())
    present = sum(
        1
        for (kind, _), other in now.items()
        if kind == "Pod"
        and _pod_set_of(other, names) == (name, pod_set)
        and value_at(other, ("spec", "nodeSelector", HOST_NAME)) == host
        and value_at(other, ("status", "phase")) not in {"Succeeded", "Failed"}
    )
    if present > assigned[host]:
        yield f"is pod {present} of {assigned[host]} that are assigned to {host}"


def _pod_set_of(pod: JsonObject, names: Names) -> tuple[str, str]:
    return (
        value_at(pod, ("metadata", "annotations", names.workload), ""),
        value_at(pod, ("metadata", "labels", names.podset), ""),
    )


def _held_cpu(workload: JsonObject) -> int:
    if is_condition_true(workload, ConditionType.FINISHED) or not is_reserved(workload):
        return 0
    ended = {one["name"]: one["count"] for one in value_at(workload, ("status", "reclaimablePods"), [])}
    return sum(
        parse_amount("cpu", one["resourceUsage"]["cpu"])
        * (one["count"] - ended.get(one["name"], 0))
        // one["count"]
        for one in value_at(workload, ("status", "admission", "podSetAssignments"), [])
    )


def _of_owners(now: dict[Place, JsonObject], names: Names) -> Iterator[str]:
    unfinished: Counter[str] = Counter()
    for (kind, _), obj in now.items():
        owner = get_controller(obj) if kind == "Workload" else None
        if owner is not None and not is_condition_true(obj, ConditionType.FINISHED):
            unfinished[owner["uid"]] += 1
    for (kind, name), obj in now.items():
        # The larger slice of an elastic job waits beside the one that runs.
        most = 2 if value_at(obj, ("metadata", "annotations", names.elastic_job)) == "true" else 1
        if unfinished[obj["metadata"]["uid"]] > most:
            yield f"{kind} {name} has {unfinished[obj['metadata']['uid']]} Workloads"


def _running(workload: JsonObject, now: dict[Place, JsonObject]) -> Iterator[str]:
    owner = get_controller(workload)
    for (kind, name), obj in now.items():
        is_owner = owner is not None and obj["metadata"]["uid"] == owner["uid"]
        if is_owner and (not _is_suspended(obj) or value_at(obj, ("status", "active"), 0)):
            yield f"{kind} {name}"


def _admitted(obj: JsonObject, now: dict[Place, JsonObject], names: Names) -> bool:
    """Whether a Workload of the object, of its owner or of its group, is admitted."""
    owner = get_controller(obj)
    uids = {obj["metadata"]["uid"], *(() if owner is None else (owner["uid"],))}
    group = value_at(obj, ("metadata", "labels", names.pod_group_name), "")
    for (kind, name), workload in now.items():
        if kind == "Workload" and is_condition_true(workload, ConditionType.ADMITTED):
            owners = value_at(workload, ("metadata", "ownerReferences"), [])
            if name == group or uids.intersection(one["uid"] for one in owners):
                return True
    return False


def _is_suspended(obj: JsonObject | None) -> bool:
    return value_at(obj, ("spec", "suspend")) is True


def _is_true(obj: JsonObject | None, type_: str) -> bool:
    conditions = value_at(obj, ("status", "conditions"), [])
    return any(one["type"] == type_ and one["status"] == "True" for one in conditions)


def _has_gate(obj: JsonObject | None, gate: JsonObject) -> bool:
    return gate in value_at(obj, ("spec", "schedulingGates"), [])

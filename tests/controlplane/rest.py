"""The state of a namespace and its queues at rest: facts for the comparison of two plays, and laws.

Facts leave out what differs between any two plays: times, versions, messages and generated names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from admitq.integrations.ownership import get_controller
from admitq.runtime.resources import JOBS
from admitq.workloads.evictions import RequeueTime, reasons_requeued
from admitq.workloads.transitions import (
    holds_quota,
    is_active,
    is_condition_true,
    is_finished_or_deleting,
    is_reserved,
)
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names
from admitq_api.quantity import parse_amount
from tests.controlplane.stage import Stage, condition_of, owner_of

_COUNTERS: Final = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
_HELD_BACK: Final = frozenset(
    {Reason.ON_HOLD, Reason.ADMISSION_GATED, Reason.MISCONFIGURED, Reason.SUSPENDED}
)
"""Waiting reasons that free quota does not end."""
_STAYS_OUT: Final = reasons_requeued(RequeueTime.AT_ONCE)
"""Evictions after which Workloads are not requeued at once: another program ends them."""


@dataclass(frozen=True)
class Snapshot:
    """All objects of a story at one moment."""

    workloads: Sequence[JsonObject]
    jobs: Sequence[JsonObject]
    local_queues: Sequence[JsonObject]
    cluster_queue: JsonObject

    @classmethod
    async def of(cls, stage: Stage, cluster_queue: str = "cq") -> "Snapshot":
        """Read the objects of a stage, and one of its ClusterQueues."""
        kinds = stage.kinds
        workloads, _ = await stage.client.list(kinds.workloads, stage.namespace)
        jobs, _ = await stage.client.list(JOBS, stage.namespace)
        local_queues, _ = await stage.client.list(kinds.local_queues, stage.namespace)
        queue = await stage.get(kinds.cluster_queues, stage.own(cluster_queue))
        return cls(workloads, jobs, local_queues, queue)

    @property
    def versions(self) -> Mapping[str, str]:
        """The resourceVersion of every object, by UID: they do not change while nothing is written."""
        objects = (*self.workloads, *self.jobs, *self.local_queues, self.cluster_queue)
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in objects}


# --- facts ----------------------------------------------------------------------------------------


def facts(seen: Snapshot, subject: str, names: Names) -> dict[str, Any]:
    """The compared facts of a story about one Workload: the Workload, its job, and the queues.

    Of the slices of an elastic job it is the one with quota. Slices that are over are left out: how many
    there were in between depends on the pace of the machine.

    Args:
        seen: the objects.
        subject: the name of the job, or of the Workload where it has no job.
        names: the names of the API group.

    Raises:
        LookupError: the subject has several Workloads, and is not elastic.
    """
    found = [one for one in seen.workloads if subject in (one["metadata"]["name"], owner_of(dict(one)))]
    workload, *others = _slices(found) or found or (None,)
    if others and not _slices(found):
        raise LookupError(f"{len(found)} Workloads of {subject}")
    return {
        **({"Workload": "gone"} if workload is None else _of_workload(workload, names)),
        "further slices": [_pods(one) for one in others],
        "job": next((_runs(one) for one in seen.jobs if one["metadata"]["name"] == subject), "none"),
        "ClusterQueue": _of_queue(seen.cluster_queue),
        "LocalQueues": {one["metadata"]["name"]: _of_queue(one) for one in seen.local_queues},
    }


def _slices(workloads: Sequence[JsonObject]) -> list[JsonObject]:
    """The unfinished slices of an elastic job, the one with quota first."""
    living = [
        one for one in workloads if _is_slice(one) and not is_condition_true(one, ConditionType.FINISHED)
    ]
    return sorted(living, key=is_reserved, reverse=True)


def _is_slice(workload: JsonObject) -> bool:
    return bool(_annotation(workload, "workload-slice-name"))


def _annotation(workload: JsonObject, name: str) -> str:
    """An annotation of admitq, whatever its API group; empty if there is none."""
    annotations: Mapping[str, str] = value_at(workload, ("metadata", "annotations"), {})
    return next((value for key, value in annotations.items() if key.endswith(f"/{name}")), "")


def _pods(workload: JsonObject) -> list[int]:
    """The pods of each podset."""
    return [one.get("count", 1) for one in workload["spec"]["podSets"]]


def _of_workload(workload: JsonObject, names: Names) -> dict[str, Any]:
    status: JsonObject = workload.get("status") or {}
    conditions = {one["type"]: f"{one['status']} {one['reason']}" for one in status.get("conditions", [])}
    if not is_reserved(workload) and conditions.get("PodsReady") == "False WaitForStart":
        # Without quota it says no more than that there is no such condition yet.
        del conditions["PodsReady"]
    if _is_slice(workload) and conditions.get("PodsReady") == "True Recovered":
        # A slice given less quota loses pods until its job asks for less, unless that happens first.
        conditions["PodsReady"] = "True Started"
    state: JsonObject = status.get("requeueState") or {}
    return {
        **conditions,
        "admission": _of_admission(status.get("admission")),
        "checks": [(one["state"], one.get("retryCount", 0)) for one in status.get("admissionChecks", [])],
        "requeueState": (state.get("count", 0), "requeueAt" in state),
        "reclaimable": [(one["name"], one["count"]) for one in status.get("reclaimablePods", [])],
        "evictions": value_at(status, ("schedulingStats", "evictions"), []),
        "unhealthy hosts": len(status.get("unhealthyNodes") or ()),
        "shows requests": bool(status.get("resourceRequests")),
        "active": is_active(workload),
        "priority": value_at(workload, ("spec", "priority"), 0),
        "queue": value_at(workload, ("spec", "queueName"), ""),
        "finalizer": names.finalizer in value_at(workload, ("metadata", "finalizers"), []),
        "pods": _pods(workload),
        "owners": [
            (one["kind"], one["name"], one.get("controller", False))
            for one in value_at(workload, ("metadata", "ownerReferences"), [])
        ],
        "states its job": value_at(workload, ("metadata", "labels", names.job_uid)) is not None,
    }


def _of_admission(admission: JsonObject | None) -> Any:
    """The facts of an admission, without names."""
    if admission is None:
        return None
    return [
        (
            one["name"],
            one.get("count"),
            sorted(one.get("flavors", {})),
            sorted((key, parse_amount(key, value)) for key, value in one.get("resourceUsage", {}).items()),
        )
        for one in admission["podSetAssignments"]
    ]


def _of_queue(queue: JsonObject) -> dict[str, Any]:
    status: JsonObject = queue.get("status") or {}
    return {
        **{name: status.get(name, 0) for name in _COUNTERS},
        "reserved": _cpu(status, "flavorsReservation"),
        "used": _cpu(status, "flavorsUsage"),
    }


def _cpu(status: JsonObject, field: str) -> int:
    return sum(
        parse_amount("cpu", resource.get("total", "0"))
        for flavor in status.get(field, [])
        for resource in flavor["resources"]
        if resource["name"] == "cpu"
    )


def _runs(job: JsonObject) -> str:
    return "suspended" if value_at(job, ("spec", "suspend"), False) else "running"


# --- laws -----------------------------------------------------------------------------------------


def find_violations(seen: Snapshot, now: str) -> list[str]:
    """Every violated law of a story at rest.

    Args:
        seen: the objects.
        now: the time as the API writes it.
    """
    return [*_of_each(seen, now), *_of_jobs(seen), *_of_quota(seen)]


def held_cpu(workload: JsonObject) -> int:
    """The CPU that the status of a Workload with quota reserves, in thousandths."""
    ended = {one["name"]: one["count"] for one in value_at(workload, ("status", "reclaimablePods"), [])}
    pods = {one["name"]: one.get("count", 1) for one in workload["spec"]["podSets"]}
    return sum(
        parse_amount("cpu", value_at(one, ("resourceUsage", "cpu"), "0"))
        * min(one["count"], max(0, pods[one["name"]] - ended.get(one["name"], 0)))
        // max(1, one["count"])
        for one in value_at(workload, ("status", "admission", "podSetAssignments"), [])
    )


def _of_each(seen: Snapshot, now: str) -> Iterator[str]:
    free = _nominal(seen.cluster_queue) - sum(map(held_cpu, _reserving(seen)))
    for workload in seen.workloads:
        name = workload["metadata"]["name"]
        if is_condition_true(workload, ConditionType.FINISHED):
            continue
        reserved, admitted = is_reserved(workload), is_condition_true(workload, ConditionType.ADMITTED)
        if admitted and not reserved:
            yield f"{name} is admitted without quota"
        if not reserved and value_at(workload, ("status", "admission")) is not None:
            yield f"{name} has an admission without quota"
        if (
            reserved
            and is_condition_true(workload, ConditionType.EVICTED)
            and get_controller(workload) is not None
        ):
            yield f"{name} is evicted, and its quota is not released"
        if not is_active(workload):
            if reserved and get_controller(workload) is not None:
                yield f"{name} is inactive and holds quota"
            continue
        lacks_check = value_at(workload, ("status", "admissionChecks"), [])
        if reserved and not (admitted or lacks_check or is_condition_true(workload, ConditionType.EVICTED)):
            yield f"{name} holds quota, lacks no check, and is not admitted"
        if not reserved:
            within_reach = free + _held_by_original(workload, seen)
            yield from (f"{name} {problem}" for problem in _waits_in_vain(workload, within_reach, now))


def _held_by_original(workload: JsonObject, seen: Snapshot) -> int:
    """The CPU of the slice that the Workload will replace."""
    replaced = _annotation(workload, "workload-slice-replacement-for").partition("/")[2]
    return sum(held_cpu(one) for one in _reserving(seen) if one["metadata"]["name"] == replaced)


def _waits_in_vain(workload: JsonObject, free: int, now: str) -> Iterator[str]:
    """Why a waiting Workload will never run: no event will end its wait."""
    quota = condition_of(dict(workload), "QuotaReserved")
    if quota is None:
        yield "waits and does not say why"
        return
    if quota[1] in _HELD_BACK or is_condition_true(workload, ConditionType.WAITING_FOR_REPLACEMENT_PODS):
        return
    if (due := value_at(workload, ("status", "requeueState", "requeueAt"))) is not None:
        if due < now:
            yield f"waits until {due}, which is over"
        return
    requeued = condition_of(dict(workload), "Requeued")
    if requeued is not None and requeued[0] == "False":
        if requeued[1] not in _STAYS_OUT:
            yield f"may not be requeued because of {requeued[1]}, which nothing ends"
    elif _requested(workload) <= free:
        yield f"waits because of {quota[1]} and fits into {free}m CPU that are free"


def _requested(workload: JsonObject) -> int:
    return sum(
        pod_set.get("count", 1)
        * parse_amount("cpu", value_at(container, ("resources", "requests", "cpu"), "0"))
        for pod_set in workload["spec"]["podSets"]
        for container in pod_set["template"]["spec"]["containers"]
    )


def _nominal(cluster_queue: JsonObject) -> int:
    return sum(
        parse_amount("cpu", resource["nominalQuota"])
        for group in value_at(cluster_queue, ("spec", "resourceGroups"), [])
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == "cpu"
    )


def _of_jobs(seen: Snapshot) -> Iterator[str]:
    for job in seen.jobs:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        mine = [one for one in seen.workloads if (get_controller(one) or {}).get("uid") == uid]
        living = [one for one in mine if not is_condition_true(one, ConditionType.FINISHED)]
        yield from _of_number(name, mine, living)
        admitted = any(is_condition_true(one, ConditionType.ADMITTED) for one in living)
        if _runs(job) != ("running" if admitted else "suspended"):
            yield f"Job {name} is {_runs(job)}, and {'' if admitted else 'not '}admitted"
        if not admitted and value_at(job, ("status", "active"), 0):
            yield f"Job {name} has pods and is not admitted"


def _of_number(job: str, mine: Sequence[JsonObject], living: Sequence[JsonObject]) -> Iterator[str]:
    """A job has one Workload. An elastic job has at most one with quota and one that will replace it."""
    if not any(map(_is_slice, mine)):
        if len(mine) != 1:
            yield f"Job {job} has {len(mine)} Workloads"
        return
    held = sum(map(is_reserved, living))
    if held > 1 or len(living) - held > 1:
        yield f"Job {job} has {held} slices with quota, and {len(living) - held} without"
    for one in mine if living else ():
        if one not in living and one["metadata"].get("finalizers"):
            yield f"slice {one['metadata']['name']} of job {job} is over, and kept"


def _reserving(seen: Snapshot) -> list[JsonObject]:
    """The Workloads with reserved quota of the ClusterQueue."""
    name = seen.cluster_queue["metadata"]["name"]
    return [
        one
        for one in seen.workloads
        if holds_quota(one) and value_at(one, ("status", "admission", "clusterQueue")) == name
    ]


def _of_quota(seen: Snapshot) -> Iterator[str]:
    own = seen.cluster_queue["metadata"]["name"]
    of_queue: dict[str, list[JsonObject]] = {one["metadata"]["name"]: [] for one in seen.local_queues}
    for workload in seen.workloads:
        of_queue.get(workload["spec"].get("queueName", ""), []).append(workload)
    for queue in seen.local_queues:
        name = queue["metadata"]["name"]
        counted = _counted(of_queue[name], list(filter(holds_quota, of_queue[name])))
        yield from _miscounted(f"LocalQueue {name}", queue, counted)
    leading = [one["metadata"]["name"] for one in seen.local_queues if one["spec"]["clusterQueue"] == own]
    queued = [one for name in leading for one in of_queue[name]]
    yield from _miscounted("the ClusterQueue", seen.cluster_queue, _counted(queued, _reserving(seen)))


def _counted(queued: Sequence[JsonObject], reserving: Sequence[JsonObject]) -> dict[str, int]:
    """The expected counters of a queue, from its Workloads and those with quota."""
    admitted = [one for one in reserving if is_condition_true(one, ConditionType.ADMITTED)]
    return {
        "pendingWorkloads": sum(map(_is_pending, queued)),
        "reservingWorkloads": len(reserving),
        "admittedWorkloads": len(admitted),
        "reserved": sum(map(held_cpu, reserving)),
        "used": sum(map(held_cpu, admitted)),
    }


def _miscounted(queue: str, obj: JsonObject, counted: Mapping[str, int]) -> Iterator[str]:
    said = _of_queue(obj)
    for what, value in counted.items():
        if said[what] != value:
            yield f"{queue} says {what} {said[what]}, and the Workloads say {value}"


def _is_pending(workload: JsonObject) -> bool:
    """Whether a Workload waits only for quota."""
    reason = (condition_of(dict(workload), "QuotaReserved") or ("", "", ""))[1]
    return (
        is_active(workload)
        and not is_reserved(workload)
        and not is_finished_or_deleting(workload)
        and reason not in {Reason.ON_HOLD, Reason.ADMISSION_GATED}
        and not is_condition_true(workload, ConditionType.WAITING_FOR_REPLACEMENT_PODS)
    )

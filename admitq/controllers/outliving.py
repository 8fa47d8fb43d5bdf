"""Pods that outlive their job, and keep the quota of its Workload reserved.

A job that is deleted with its pods orphaned, or that a finalizer of another program holds, leaves pods that
run on. No watch covers all pods of the cluster. When an admitted job goes, the pods of its namespace are
listed once, and again now and then while some of its pods remain. The list is not limited to a label: users
who may edit pods may remove labels.

A job may have started more pods than were admitted in the moment before it went, or pods although nothing was
admitted. No controller stops those. They are deleted, newest first, down to what was admitted.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.excess_pods import EXCESS_NOTE, EXCESS_POD_DELETED, counted, job_kind
from admitq.controllers.plan import Action, Delete, Tell
from admitq.controllers.settings import Settings
from admitq.core.model import Instant
from admitq.integrations import pods as pods_of
from admitq.integrations.job_pods import CONTROLLER_UID
from admitq.integrations.ownership import controller_of
from admitq.integrations.paths import Object, only, value_at
from admitq.pod_counts import covered_counts, pod_counts
from admitq.runtime.resources import PODS
from admitq.transitions import Transition, holds, is_admitted, since
from admitq_api.conditions import SECOND, ConditionType, Reason
from admitq_api.labels import Names

ORPHANED_PODS: Final = replace(PODS, view="of jobs that are gone")
"""Pods that are written and not watched: no store takes the answers in."""

SHORTEST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 15.0

_NAMED: Final = 3
"""Most pods that a message names."""

_ENDED: Final = ("Succeeded", "Failed")
_NOT_ENDED: Final = ",".join(f"status.phase!={phase}" for phase in _ENDED)
_KEPT: Final = (
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "ownerReferences",
    "creationTimestamp",
    "deletionTimestamp",
)


def may_have_pods(workload: Object) -> bool:
    """Whether pods of the Workload may run: it is admitted, or its job has not stopped since."""
    return is_admitted(workload) and not holds(workload, ConditionType.FINISHED)


def may_run(pod: Object, names: Names) -> bool:
    """Whether a pod holds resources, or may yet: it has not ended, and no gate of ours holds it.

    A pod that is being deleted runs until its object is gone, if it has a node. Without one it never starts.
    """
    if value_at(pod, ("status", "phase")) in _ENDED:
        return False
    if "deletionTimestamp" in pod["metadata"] and not value_at(pod, ("spec", "nodeName")):
        return False
    gates = value_at(pod, ("spec", "schedulingGates"), [])
    held_by = {gate.get("name") for gate in gates if isinstance(gate, Mapping)}
    return held_by.isdisjoint((names.admission_gate, names.elastic_gate))


def belongs_to(pod: Object, workload: Object, names: Names) -> bool:
    """Whether a pod was created for the job of a Workload.

    The annotations that the admission gave the pod name the Workload, or the first slice of an elastic job.
    A pod without them has the UID of the job as its owner's, or in a label that the job's controller set.
    The pods of a group own its Workload.
    """
    metadata: Object = workload["metadata"]
    annotations: Object = value_at(pod, ("metadata", "annotations"), {})
    if annotations.get(names.workload) == metadata["name"]:
        return True
    chain = value_at(metadata, ("annotations", names.workload_slice_name))
    if chain is not None and annotations.get(names.workload_slice_name) == chain:
        return True
    owners_of_workload = value_at(metadata, ("ownerReferences",), [])
    if value_at(pod, ("metadata", "uid")) in {one.get("uid") for one in owners_of_workload}:
        return True
    uids = _uids_of_job(workload, names)
    labels: Object = value_at(pod, ("metadata", "labels"), {})
    owners = value_at(pod, ("metadata", "ownerReferences"), [])
    return not uids.isdisjoint((*labels.values(), *(one.get("uid") for one in owners)))


def _uids_of_job(workload: Object, names: Names) -> set[str]:
    stated = (
        value_at(workload, ("metadata", "labels", names.job_uid)),
        value_at(controller_of(workload), ("uid",)),
    )
    return {uid for uid in stated if uid}


def _uid_of_job(workload: Object, names: Names) -> str:
    """The UID of the Job that a Workload was created for; empty if it says none, or is of another kind."""
    is_other = controller_of(workload) is not None and job_kind(workload) != "Job.batch"
    return "" if is_other else min(_uids_of_job(workload, names), default="")


def excess_of(workload: Object, pods: Sequence[Object], names: Names) -> list[Object]:
    """The pods of a Workload whose job is gone that run beyond what was admitted, newest first.

    Args:
        workload: not one slice among several: the pods of an elastic job are those of all its slices.
        pods: those that belong to the Workload and may run. A pod that does not name its podset counts as one
            of the only podset; of several podsets, it is left alone.
        names: of labels and annotations.
    """
    if value_at(workload, ("metadata", "annotations", names.workload_slice_name)) is not None:
        return []
    counts = pod_counts(workload)
    allowed = covered_counts(workload) if may_have_pods(workload) else {}
    only_one = next(iter(counts)) if len(counts) == 1 else ""
    by_podset: dict[str, list[Object]] = {}
    for pod in pods:
        if not pods_of.is_deleting(pod):
            by_podset.setdefault(pods_of.label(pod, names.podset) or only_one, []).append(pod)
    beyond = [
        one
        for name, found in by_podset.items()
        if name in counts
        for one in sorted(found, key=pods_of.age)[allowed.get(name, 0) :]
    ]
    return sorted(beyond, key=pods_of.age, reverse=True)


def may_delete_pods(settings: Settings) -> bool:
    """Whether the manager has the right to delete pods, which it has for other reasons."""
    elastic = settings.elastic_jobs and any(one.can_be_elastic for one in settings.integrations)
    return elastic or any((one.group, one.kind) == ("", "Pod") for one in settings.integrations)


def stop_excess(workload: Object, pods: Sequence[Object], names: Names, settings: Settings) -> list[Action]:
    """Delete the pods of a Workload without a job that run beyond what was admitted; report each of them."""
    kind, actions = job_kind(workload), list[Action]()
    for one in excess_of(workload, pods, names) if may_delete_pods(settings) else ():
        actions += (
            Delete(ORPHANED_PODS, one),
            Tell(one, "Warning", EXCESS_POD_DELETED, EXCESS_NOTE),
            counted(workload, kind, 1),
        )
    return actions


@dataclass(slots=True)
class _Listed:
    """The pods of a namespace that may run, as of the last list."""

    begun: float = float("-inf")
    pods: Sequence[Object] = ()
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OutlivingPods:
    """Finds pods of Workloads whose jobs are gone, or going.

    Jobs of one namespace that go together share lists. That no pods remain, only a list says that began after
    the question; that pods remain, a list of the last second says as well.

    Args:
        ctx: client and names.
        clock: seconds that only grow.
    """

    def __init__(self, ctx: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._ctx = ctx
        self._clock = clock
        self._listed: dict[str, _Listed] = {}

    async def of(self, workloads: Sequence[Object]) -> Mapping[str, tuple[Object, ...]]:
        """The pods that may run, by UID of their Workload; a Workload without such pods is left out.

        Args:
            workloads: of one namespace. Only those that may have pods are looked for.

        Raises:
            ApiError: pods cannot be listed. What is not known to have ended keeps its quota.
        """
        asked = [one for one in workloads if may_have_pods(one)]
        if not asked:
            return {}
        namespace = asked[0]["metadata"]["namespace"]
        if self._is_recent(recent := self._listed.get(namespace, _Listed())):
            found = self._found(recent.pods, asked)
            if len(found) == len(asked):
                return found
        return self._found(await self._pods_in(namespace), asked)

    async def of_gone(self, workloads: Sequence[Object]) -> Mapping[str, tuple[Object, ...]]:
        """The same for Workloads whose job is gone or going, with the pods of those that are not admitted.

        A Job that was started by hand may have pods although its Workload waits. They are found by the UID of
        the Job, which Kubernetes writes into a label.

        Raises:
            ApiError: pods cannot be listed.
        """
        found = dict(await self.of(workloads))
        for one in workloads:
            uid = _uid_of_job(one, self._ctx.names)
            if uid and not may_have_pods(one) and not holds(one, ConditionType.FINISHED):
                listed, _ = await self._ctx.client.list(
                    PODS,
                    one["metadata"]["namespace"],
                    label_selector=f"{CONTROLLER_UID}={uid}",
                    field_selector=_NOT_ENDED,
                )
                if running := tuple(self._running(listed)):
                    found[one["metadata"]["uid"]] = running
        return found

    def _running(self, listed: Sequence[Object]) -> list[Object]:
        return [
            {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": only(pod["metadata"], _KEPT)}
            for pod in listed
            if may_run(pod, self._ctx.names)
        ]

    def _is_recent(self, listed: _Listed) -> bool:
        return self._clock() - listed.begun < SHORTEST_DELAY_SECONDS

    def _found(self, pods: Sequence[Object], workloads: Sequence[Object]) -> Mapping[str, tuple[Object, ...]]:
        names = self._ctx.names
        found = {
            one["metadata"]["uid"]: tuple(pod for pod in pods if belongs_to(pod, one, names))
            for one in workloads
        }
        return {uid: pods for uid, pods in found.items() if pods}

    async def _pods_in(self, namespace: str) -> Sequence[Object]:
        """The pods that may run, by a list that begins after the call."""
        self._listed = {
            key: one for key, one in self._listed.items() if one.lock.locked() or self._is_recent(one)
        }
        listed = self._listed.setdefault(namespace, _Listed())
        asked_at = self._clock()
        async with listed.lock:
            if listed.begun <= asked_at:
                begun = self._clock()
                found, _ = await self._ctx.client.list(PODS, namespace, field_selector=_NOT_ENDED)
                listed.pods = self._running(found)
                listed.begun = begun
            return listed.pods


def report(transition: Transition, pods: Sequence[Object]) -> None:
    """State in the Workload's status which pods keep its quota reserved."""
    names = sorted(one["metadata"]["name"] for one in pods)
    named = ", ".join(names[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
    count = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    transition.set(
        ConditionType.PODS_OUTLIVE_JOB,
        True,
        Reason.PODS_RUNNING,
        f"{count} can still run after the end of the job: {named}. Delete them to release the quota",
    )


def withdraw(transition: Transition) -> None:
    """Stop stating that pods keep the quota reserved."""
    if transition.find(ConditionType.PODS_OUTLIVE_JOB) is not None:
        transition.drop(ConditionType.PODS_OUTLIVE_JOB)


def next_look(workload: Object, now: Instant) -> float:
    """Seconds until the pods are listed again: half of the time that they have remained, within bounds."""
    remained = max(0, now - (since(workload, ConditionType.PODS_OUTLIVE_JOB) or now)) / SECOND
    return min(LONGEST_DELAY_SECONDS, max(SHORTEST_DELAY_SECONDS, remained / 2))

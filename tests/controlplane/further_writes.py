"""More rows of the table of writes: hosts, slices of elastic jobs, prebuilt Workloads, and retention.

Counters of queues are not among the ends: the laws of rest compare them with the Workloads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from admitq.workloads.transitions import StatusTransition, is_condition_true, is_reserved
from admitq_api.conditions import SECOND, ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.labels import names_for
from tests.controlplane.manners import Change
from tests.controlplane.stage import Stage
from tests.controlplane.table_of_writes import Row
from tests.controlplane.test_elastic_jobs import create_elastic_job, resize, until_pods, until_slices
from tests.controlplane.workload_changes import (
    REMOVALS,
    list_unhealthy,
    move_to_other_host,
    reserve,
    spec,
    status,
)
from tests.controlplane.workload_scenes import (
    ALONE,
    JOB,
    Step,
    alone_admitted,
    grow,
    job_placed,
    nothing,
    preempt,
    subject_of,
    until,
    until_waiting,
    workload,
)

PREBUILT: Final = "w"
"""The prebuilt Workload of a scene."""
ORIGINAL: Final = "w0"
"""The Workload that the one without job will replace."""
LONG_AGO: Final = 3600 * SECOND


# --- which slice is written -----------------------------------------------------------------------


async def held_slice(stage: Stage) -> JsonObject:
    """The slice of the job that holds quota."""
    [found] = [one for one in await _living(stage) if is_reserved(one)]
    return found


async def waiting_slice(stage: Stage) -> JsonObject:
    """The slice of the job that waits to replace the one with quota."""
    [found] = [one for one in await _living(stage) if not is_reserved(one)]
    return found


async def _living(stage: Stage) -> list[dict[str, Any]]:
    return [one for one in await stage.workloads(JOB) if not is_condition_true(one, ConditionType.FINISHED)]


# --- changes --------------------------------------------------------------------------------------


def resized(pods: int) -> Change:
    """Change the number of pods of the podset."""
    return lambda workload, _: with_value(workload, ("spec", "podSets", 0, "count"), pods)


def assign(pods: int) -> Callable[[StatusTransition], None]:
    """Write an admission for a number of pods with a CPU each."""

    def assigned(transition: StatusTransition) -> None:
        admission: JsonObject = transition.status["admission"]
        [assignment] = admission["podSetAssignments"]
        fewer = {**assignment, "count": pods, "resourceUsage": {"cpu": str(pods)}}
        transition.status["admission"] = {**admission, "podSetAssignments": [fewer]}

    return assigned


def finish_slice(reason: Reason) -> Change:
    """Finish a slice."""
    return status(lambda one: one.finish(reason, "m"))


def finish_long_ago(workload: JsonObject, now: int) -> JsonObject:
    """Write that the Workload finished an hour ago."""
    return status(lambda one: one.finish(Reason.SUCCEEDED, "done"))(workload, now - LONG_AGO)


def _without_annotations(workload: JsonObject, _: int) -> JsonObject:
    """Remove all annotations."""
    return with_value(workload, ("metadata", "annotations"), {})


def _with_other_image(workload: JsonObject, _: int) -> JsonObject:
    """Change the image of the first container."""
    image = ("spec", "podSets", 0, "template", "spec", "containers", 0, "image")
    return with_value(workload, image, "example.com/other:1")


def _without_label(workload: JsonObject, _: int) -> JsonObject:
    """Remove the label with the UID of the job."""
    job_uid = names_for(workload["apiVersion"].partition("/")[0]).job_uid
    labels = {key: value for key, value in workload["metadata"]["labels"].items() if key != job_uid}
    return with_value(workload, ("metadata", "labels"), labels)


def _without_owner(workload: JsonObject, now: int) -> JsonObject:
    """Remove the metadata that names the owner of the Workload."""
    return with_value(_without_label(workload, now), ("metadata", "ownerReferences"), [])


def _owned_only(workload: JsonObject, _: int) -> JsonObject:
    """Write the job as an owner that is not the controller."""
    references: list[JsonObject] = workload["metadata"]["ownerReferences"]
    owners = [{key: value for key, value in one.items() if key != "controller"} for one in references]
    return with_value(workload, ("metadata", "ownerReferences"), owners)


# --- scenes ---------------------------------------------------------------------------------------


async def slice_runs(stage: Stage) -> None:
    """An elastic job of two pods runs."""
    await _runs(stage, 2)


async def slice_waits(stage: Stage) -> None:
    """An elastic job runs with all the quota, and a slice of two pods waits to replace its Workload."""
    await _runs(stage, 1)
    await _grows(stage)


async def preemptible_slice_waits(stage: Stage) -> None:
    """An elastic job with a waiting slice in a ClusterQueue with preemption."""
    await _runs(stage, 1, preemption={"withinClusterQueue": "LowerPriority"})
    await _grows(stage)


async def _runs(stage: Stage, pods: int, **queue: Any) -> None:
    await stage.queues(cpu=pods, **queue)
    await create_elastic_job(stage, pods, JOB)
    await until_pods(stage, pods, 0, JOB)
    await until(stage, JOB, "PodsReady", "True")


async def _grows(stage: Stage) -> None:
    await resize(stage, 2, JOB)
    await until_slices(stage, (1, True), (2, False), name=JOB)

    async def says_why() -> bool:
        slices = value_at(await waiting_slice(stage), ("status", "conditions"), [])
        return any(one["type"] == "QuotaReserved" for one in slices)

    await stage.until(says_why, what="why the slice waits")


async def replacement_waits(stage: Stage) -> None:
    """A Workload without job waits to replace another, which holds all the quota."""
    await stage.queues(cpu=1)
    await workload(stage, ORIGINAL)
    await until(stage, ORIGINAL, "Admitted", "True")
    replaces = {stage.names.workload_slice_replacement_for: f"{stage.namespace}/{ORIGINAL}"}
    await workload(stage, pods=2, metadata={"annotations": replaces})
    await until_waiting(stage, ALONE)


async def two_pods_hold_all(stage: Stage) -> None:
    """A Workload without job holds all the quota with two pods, and another waits."""
    await stage.queues(cpu=2)
    await workload(stage, pods=2)
    await until(stage, ALONE, "Admitted", "True")
    await workload(stage, ORIGINAL)
    await until_waiting(stage, ORIGINAL)


async def prebuilt_runs(stage: Stage) -> None:
    """A job runs with a prebuilt Workload."""
    await stage.queues(cpu=2)
    job = await stage.job(JOB, labels={stage.names.prebuilt_workload_name: PREBUILT})
    template = {"spec": job["spec"]["template"]["spec"]}
    pod_set = {"name": "main", "count": 1, "template": template}
    await workload(stage, PREBUILT, spec={"podSets": [pod_set]})
    await until(stage, JOB, "PodsReady", "True")


async def job_admitted(stage: Stage) -> None:
    """A job is started, in a cluster without nodes."""
    await stage.queues(cpu=2)
    await stage.job(JOB)
    await until(stage, JOB, "Admitted", "True")
    await stage.until_running(JOB)


# --- what happens besides -------------------------------------------------------------------------


def to_size(pods: int) -> Step:
    """Change the number of pods of the job, and the quota."""

    async def resized(stage: Stage) -> None:
        await resize(stage, pods, JOB)
        await grow(stage, max(2, pods))

    return resized


async def preempt_slice(stage: Stage) -> None:
    """Create a job of higher priority, which runs and is then deactivated."""
    await preempt(stage)
    await stage.until_running("preemptor", running=False)


# --- the rows -------------------------------------------------------------------------------------


def _runs_with(pods: int, **facts: Any) -> Mapping[str, Any]:
    """The end of an elastic job that runs with quota for so many pods."""
    return {
        "Admitted": "True Admitted",
        "PodsReady": "True Started",
        "job": "running",
        "pods": [pods],
        "admission": [("main", pods, ["cpu"], [("cpu", 1000 * pods)])],
        "further slices": [],
        **facts,
    }


_GONE: Final = {"Workload": "gone"}

_KEEPS_RUNNING: Final = {
    "Admitted": "True Admitted",
    "PodsReady": "True Started",
    "job": "running",
    "unhealthy hosts": 0,
    "evictions": [],
}

FURTHER: Final[Mapping[str, Sequence[Row]]] = {
    "hosts": (
        Row(
            "list-unhealthy-host-that-is-healthy",
            ("transitions.set_unhealthy_nodes", "admission_patches.topology_patch"),
            job_placed,
            list_unhealthy,
            {
                "Admitted": "True Admitted",
                "PodsReady": "True Started",
                "job": "running",
                "unhealthy hosts": 0,
                "evictions": [],
            },
        ),
        Row(
            "assign-another-host",
            ("admission_patches.topology_patch",),
            job_placed,
            move_to_other_host,
            {
                "Admitted": "True Admitted",
                "PodsReady": "True Started",
                "job": "running",
                "unhealthy hosts": 0,
                "evictions": [],
            },
        ),
    ),
    "workload_slices": (
        Row(
            "reserve-replacement-slice",
            ("workload.finish_replaced_slice", "admission_patches.reservation_patch"),
            slice_waits,
            reserve(admit=False),
            _runs_with(2),
            grow,
            written=waiting_slice,
        ),
        Row(
            "admit-replacement-slice",
            ("workload.finish_replaced_slice", "admission_patches.reservation_patch"),
            slice_waits,
            reserve(admit=True),
            _runs_with(2),
            grow,
            written=waiting_slice,
        ),
        Row(
            "finish-replaced-slice",
            ("workload_slices._finish_replaced_slice", "transitions.finish"),
            slice_waits,
            finish_slice(Reason.WORKLOAD_SLICE_REPLACED),
            _runs_with(2),
            cause=grow,
            then=grow,
            written=held_slice,
        ),
        Row(
            "finish-replaced-slice-for-another-reason",
            ("workload_slices._finish_replaced_slice", "transitions.finish"),
            slice_waits,
            finish_slice(Reason.SUCCEEDED),
            _runs_with(2),
            cause=grow,
            then=grow,
            written=held_slice,
        ),
        Row(
            "finish-waiting-slice",
            ("workload_slices._finish_replaced_slice", "transitions.finish"),
            slice_waits,
            finish_slice(Reason.WORKLOAD_SLICE_REPLACED),
            _runs_with(1),
            cause=to_size(1),
            then=to_size(1),
            written=waiting_slice,
        ),
        Row(
            "resize-waiting-slice",
            ("workload_slices._update_waiting_slice",),
            slice_waits,
            resized(3),
            _runs_with(3),
            cause=to_size(3),
            then=to_size(3),
            written=waiting_slice,
        ),
        Row(
            "resize-waiting-slice-otherwise-than-the-job",
            ("workload_slices._update_waiting_slice",),
            slice_waits,
            resized(3),
            _runs_with(2),
            cause=grow,
            then=grow,
            written=waiting_slice,
        ),
        Row(
            "move-waiting-slice",
            ("workload_slices._update_waiting_slice",),
            slice_waits,
            spec(queueName="missing"),
            _runs_with(2, queue="lq"),
            cause=grow,
            then=grow,
            written=waiting_slice,
        ),
        Row(
            "unmark-waiting-slice",
            ("workload_slices._update_waiting_slice",),
            slice_waits,
            _without_annotations,
            _runs_with(2),
            cause=grow,
            then=grow,
            written=waiting_slice,
        ),
        Row(
            "change-pods-of-waiting-slice",
            ("workload_slices._finish_replaced_slice",),
            slice_waits,
            _with_other_image,
            _runs_with(2),
            cause=grow,
            then=grow,
            written=waiting_slice,
        ),
        Row(
            "shrink-slice",
            ("workload_slices._resize_slice", "workload_slices._release_shrunk_quota"),
            slice_runs,
            resized(1),
            _runs_with(1),
            cause=to_size(1),
            then=to_size(1),
            written=held_slice,
        ),
        Row(
            "shrink-assignment-of-slice",
            ("workload_slices._release_shrunk_quota",),
            slice_runs,
            status(assign(1)),
            _runs_with(1),
            cause=to_size(1),
            then=to_size(1),
            written=held_slice,
        ),
        Row(
            "assign-fewer-pods-than-the-job-has",
            ("workload_slices._release_shrunk_quota",),
            slice_runs,
            status(assign(1)),
            _runs_with(2),
            cause=nothing,
            written=held_slice,
        ),
        Row(
            "release-slice",
            ("transitions.release",),
            slice_runs,
            status(lambda one: one.release(Reason.PENDING, "released")),
            _runs_with(2),
            cause=nothing,
            written=held_slice,
        ),
        Row(
            "evict-slice-that-is-to-be-replaced",
            ("transitions.preempt", "transitions.evict", "workload_slices._finish_replaced_slice"),
            preemptible_slice_waits,
            status(lambda one: one.preempt(Reason.IN_CLUSTER_QUEUE, "m")),
            _runs_with(2),
            cause=preempt_slice,
            then=grow,
            written=held_slice,
        ),
        Row(
            "reserve-replacement-without-job",
            ("workload.finish_replaced_slice", "admission_patches.reservation_patch"),
            replacement_waits,
            reserve(admit=True),
            {"Admitted": "True Admitted", "pods": [2]},
            grow,
            subject=ALONE,
        ),
        Row(
            "shrink-workload-without-job",
            ("workload_slices._resize_slice",),
            two_pods_hold_all,
            resized(1),
            {"Admitted": "True Admitted", "pods": [1]},
            subject=ALONE,
        ),
    ),
    "prebuilt_workloads": tuple(
        Row(
            name,
            ("prebuilt_workloads.adopt",),
            prebuilt_runs,
            change,
            {
                "Admitted": "True Admitted",
                "PodsReady": "True Started",
                "job": "running",
                "owners": [("Job", JOB, True)],
                "states its job": True,
            },
            cause=nothing,
            manners=REMOVALS,
        )
        for name, change in (
            ("disown", _without_owner),
            ("remove-job-uid", _without_label),
            ("own-without-control", _owned_only),
        )
    ),
}
"""By topic."""

RETENTION: Final[Sequence[Row]] = (
    Row(
        "finish-and-be-deleted",
        ("workload.retain_or_delete_finished",),
        alone_admitted,
        status(lambda one: one.finish(Reason.SUCCEEDED, "done")),
        _GONE,
        subject=ALONE,
    ),
    Row(
        "finish-long-ago-and-be-deleted",
        ("workload.retain_or_delete_finished",),
        alone_admitted,
        finish_long_ago,
        _GONE,
        subject=ALONE,
    ),
    Row(
        "deactivate-for-a-cause-and-be-deleted",
        ("quota_release.handle_eviction", "workload.set_inactive", "workload.evict_inactive"),
        job_admitted,
        status(
            lambda one: one.set_condition(
                ConditionType.DEACTIVATION_TARGET, True, Reason.MAXIMUM_EXECUTION_TIME_EXCEEDED, "too long"
            )
        ),
        {**_GONE, "job": "none"},
    ),
    Row(
        "deactivate-by-hand-and-stay",
        ("quota_release.handle_eviction", "workload.evict_inactive"),
        job_admitted,
        spec(active=False),
        {
            "active": False,
            "QuotaReserved": "False Deactivated",
            "Evicted": "True Deactivated",
            "admission": None,
            "job": "suspended",
        },
    ),
)
"""Rows for an installation with a retention period of one second."""


async def written_workload(stage: Stage, row: Row) -> JsonObject:
    """The Workload that a row writes."""
    return await (subject_of(stage, row.subject) if row.written is None else row.written(stage))

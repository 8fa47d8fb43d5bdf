"""``jobset.x-k8s.io/v1alpha2`` JobSet: jobs of several roles that start, fail and end together.

Each replicated job is a podset. The pod templates of a suspended JobSet can be changed, also in the same
update as the suspension.
"""

from collections.abc import Mapping

from admitq.integrations.base import (
    ChildDifference,
    Delegation,
    ElasticityCheck,
    Integration,
    JobOutcome,
    KindOwnership,
    PodSetTemplate,
    PodTemplates,
    Scaling,
)
from admitq.integrations.families import replicated_jobs
from admitq.integrations.job_fields import find_end
from admitq_api.json_objects import JsonObject, objects_at, value_at
from admitq_api.labels import Names

REPLICATED_JOBS = ("spec", "replicatedJobs")
STATUSES = ("status", "replicatedJobsStatus")

FINISHING_CONDITIONS = {"Completed": True, "Failed": False}
"""The conditions that end a JobSet, and whether it succeeded."""


def list_pod_sets(jobset: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return one podset for each replicated job, with the pods of all its replicas."""
    return replicated_jobs.list_pod_sets(value_at(jobset, REPLICATED_JOBS), REPLICATED_JOBS)


def find_outcome(jobset: JsonObject) -> JobOutcome | None:
    """Return the outcome from the JobSet's conditions; None while it has not ended."""
    return find_end(jobset, FINISHING_CONDITIONS)


def is_active(jobset: JsonObject) -> bool:
    """Whether a job of the JobSet has pods that are pending or running."""
    return replicated_jobs.is_active(objects_at(jobset, STATUSES))


def are_pods_ready(jobset: JsonObject) -> bool:
    """Whether all jobs of the JobSet are ready or have succeeded."""
    return replicated_jobs.are_pods_ready(value_at(jobset, REPLICATED_JOBS), objects_at(jobset, STATUSES))


def count_reclaimable_pods(jobset: JsonObject) -> Mapping[str, int]:
    """Return the numbers of pods of succeeded jobs, unless the JobSet can restart."""
    return replicated_jobs.count_reclaimable_pods(
        value_at(jobset, ("spec",)), value_at(jobset, REPLICATED_JOBS), objects_at(jobset, STATUSES)
    )


def compare_child(
    jobset: JsonObject, job: JsonObject, _is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how a Job differs from the replicated job of its name."""
    return replicated_jobs.compare_job(jobset, value_at(jobset, REPLICATED_JOBS), job)


JOBSET = Integration(
    framework="jobset.x-k8s.io/jobset",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    plural="jobsets",
    list_pod_sets=list_pod_sets,
    find_outcome=find_outcome,
    is_active=is_active,
    are_pods_ready=are_pods_ready,
    templates=PodTemplates(pod_sets_field=".".join(REPLICATED_JOBS)),
    scaling=Scaling(count_reclaimable_pods=count_reclaimable_pods),
    ownership=KindOwnership(
        created_kinds=frozenset({("batch", "Job")}),
        compare_child=compare_child,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller="jobset.sigs.k8s.io/jobset-controller",
        adopts_prebuilt_workload=True,
    ),
)

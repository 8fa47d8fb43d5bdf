"""``jobset.x-k8s.io/v1alpha2`` JobSet: jobs of several roles that start, fail and end together.

Every replicated job is a podset. The JobSet's controller takes suspension and another template together, and
may have its pod templates changed for as long as it is suspended.
"""

from collections.abc import Mapping

from admitq.integrations.base import (
    Delegation,
    Difference,
    Elastic,
    Finished,
    Integration,
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
"""Whether the JobSet succeeded, by the condition that ends it."""


def pod_sets(jobset: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """One podset for each replicated job, with the pods of all its replicas."""
    return replicated_jobs.pod_sets(value_at(jobset, REPLICATED_JOBS), REPLICATED_JOBS)


def finished(jobset: JsonObject) -> Finished | None:
    """As the JobSet's conditions say."""
    return find_end(jobset, FINISHING_CONDITIONS)


def is_active(jobset: JsonObject) -> bool:
    """While a job of it has pods that are pending or running."""
    return replicated_jobs.is_active(objects_at(jobset, STATUSES))


def pods_ready(jobset: JsonObject) -> bool:
    """When all of its jobs are ready or have succeeded."""
    return replicated_jobs.pods_ready(value_at(jobset, REPLICATED_JOBS), objects_at(jobset, STATUSES))


def reclaimable(jobset: JsonObject) -> Mapping[str, int]:
    """The pods of jobs that succeeded."""
    return replicated_jobs.reclaimable(value_at(jobset, REPLICATED_JOBS), objects_at(jobset, STATUSES))


def differs(jobset: JsonObject, job: JsonObject, _is_elastic: Elastic) -> Difference | None:
    """In what a Job differs from the replicated job of its name."""
    return replicated_jobs.differing_job(jobset, value_at(jobset, REPLICATED_JOBS), job)


JOBSET = Integration(
    framework="jobset.x-k8s.io/jobset",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    plural="jobsets",
    pod_sets=pod_sets,
    finished=finished,
    is_active=is_active,
    pods_ready=pods_ready,
    templates=PodTemplates(pod_sets_field=".".join(REPLICATED_JOBS)),
    scaling=Scaling(reclaimable=reclaimable),
    ownership=KindOwnership(
        creates=frozenset({("batch", "Job")}),
        differs=differs,
    ),
    delegation=Delegation(
        managed_by_path=("spec", "managedBy"),
        own_controller="jobset.sigs.k8s.io/jobset-controller",
        adopts_prebuilt_workload=True,
    ),
)

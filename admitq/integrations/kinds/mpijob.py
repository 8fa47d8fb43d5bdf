"""``kubeflow.org/v2beta1`` MPIJob: a launcher and workers.

Its controller runs the launcher as a Job of its own, which it suspends and resumes with the MPIJob, and makes
the workers' pods itself.
"""

from typing import Final

from admitq.integrations.base import Difference, Elastic, Rules
from admitq.integrations.children import Pods, differing_pods, name_of
from admitq.integrations.families.batch_jobs import pods_at_a_time
from admitq.integrations.families.kubeflow_jobs import Roles, replica_job
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, object_at, value_at, with_value

ROLES: Final = Roles("mpiReplicaSpecs", ("Launcher", "Worker"))


def mutate(job: JsonObject, rules: Rules) -> JsonObject:
    """Where the launcher works too it has index 0, and those of the workers begin with 1."""
    if not rules.gates.enabled(Gate.TOPOLOGY_AWARE_SCHEDULING):
        return job
    if value_at(job, ("spec", "runLauncherAsWorker")) is not True:
        return job
    for pod_set in ROLES.pod_sets(job, rules.names):
        if pod_set.name == "worker":
            offset = (*pod_set.template_path, "metadata", "annotations", rules.names.pod_index_offset)
            return with_value(job, offset, "1")
    return job


def differs(job: JsonObject, child: JsonObject, is_elastic: Elastic) -> Difference | None:
    """In what the child differs from the launcher's Job, or from a pod of the workers."""
    if child.get("kind") != "Job":
        return ROLES.differs(job, child, is_elastic)
    if name_of(child) != f"{name_of(job)}-launcher":
        return Difference.IDENTITY
    launchers = (one for one in ROLES.pod_sets_of(job) if one.name == "launcher")
    granted = next((Pods(one.template_in(job), one.count) for one in launchers), None)
    pods = Pods(object_at(child, ("spec", "template")), pods_at_a_time(object_at(child, ("spec",))))
    return differing_pods(pods, granted)


MPI_JOB: Final = replica_job(
    "MPIJob",
    "v2beta1",
    ROLES,
    controller="kubeflow.org/mpi-operator",
    creates=frozenset({("", "Pod"), ("batch", "Job")}),
    differs=differs,
    mutate=mutate,
)

"""``kubeflow.org/v2beta1`` MPIJob: a launcher and workers.

Its controller creates a Job for the launcher, which it suspends and resumes with the MPIJob. It creates the
pods of the workers itself.
"""

from typing import Final

from admitq.integrations.base import ChildDifference, ElasticityCheck, RuleContext
from admitq.integrations.children import PodsOfTemplate, compare_pods, get_name
from admitq.integrations.families.batch_jobs import count_parallel_pods
from admitq.integrations.families.kubeflow_jobs import ReplicaRoles, create_replica_job_kind
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, object_at, value_at, with_value

ROLES: Final = ReplicaRoles("mpiReplicaSpecs", ("Launcher", "Worker"))


def mutate(job: JsonObject, context: RuleContext) -> JsonObject:
    """Set the index offset of the workers: if the launcher is a worker too, it has index 0."""
    if not context.gates.is_enabled(Gate.TOPOLOGY_AWARE_SCHEDULING):
        return job
    if value_at(job, ("spec", "runLauncherAsWorker")) is not True:
        return job
    for pod_set in ROLES.list_pod_sets(job, context.names):
        if pod_set.name == "worker":
            offset = (*pod_set.template_path, "metadata", "annotations", context.names.pod_index_offset)
            return with_value(job, offset, "1")
    return job


def compare_child(job: JsonObject, child: JsonObject, is_elastic: ElasticityCheck) -> ChildDifference | None:
    """Return how the child differs from the launcher's Job, or from the pods of the workers."""
    if child.get("kind") != "Job":
        return ROLES.compare_child(job, child, is_elastic)
    if get_name(child) != f"{get_name(job)}-launcher":
        return ChildDifference.IDENTITY
    launchers = (pod_set for pod_set in ROLES.list_role_pod_sets(job) if pod_set.name == "launcher")
    granted = next((PodsOfTemplate(pod_set.get_template(job), pod_set.count) for pod_set in launchers), None)
    pods = PodsOfTemplate(
        object_at(child, ("spec", "template")), count_parallel_pods(object_at(child, ("spec",)))
    )
    return compare_pods(pods, granted)


MPI_JOB: Final = create_replica_job_kind(
    "MPIJob",
    "v2beta1",
    ROLES,
    controller="kubeflow.org/mpi-operator",
    creates=frozenset({("", "Pod"), ("batch", "Job")}),
    differs=compare_child,
    mutate=mutate,
)

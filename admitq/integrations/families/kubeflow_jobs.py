"""The job kinds of Kubeflow, which have a pod template for each role.

The templates are in a map from roles to replicas. ``spec.runPolicy`` has the suspension, the priority class
and the name of the controller. If such a job is suspended, its controller deletes its pods, and sets the
numbers of active pods to 0 and the condition Running to False.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from admitq.integrations.base import (
    KUEUE_MULTIKUEUE_CONTROLLER,
    ChildDifference,
    Delegation,
    ElasticityCheck,
    Integration,
    JobLifecycle,
    JobOutcome,
    KindOwnership,
    KindWebhook,
    PodIndexLabels,
    PodSetTemplate,
    PodTemplates,
    RuleContext,
    return_unchanged,
)
from admitq.integrations.children import is_pod_within
from admitq.integrations.job_fields import count_pods, find_end, is_condition_true
from admitq_api.field_errors import MapKey
from admitq_api.json_objects import JsonObject, as_int, object_at, text_at
from admitq_api.labels import Names

GROUP: Final = "kubeflow.org"
RUN_POLICY: Final = ("spec", "runPolicy")
SUSPEND: Final = (*RUN_POLICY, "suspend")
MANAGED_BY: Final = (*RUN_POLICY, "managedBy")

FINISHING_CONDITIONS: Final = {"Succeeded": True, "Failed": False}
"""The conditions that end a job, and whether it succeeded."""

PODS_ONLY: Final = frozenset({("", "Pod")})

_REPLICA_INDEX_LABEL: Final = "training.kubeflow.org/replica-index"
_INDEX: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class ReplicaRoles:
    """The field of a kind's pod templates, and the roles, in the order of the podsets."""

    field: str
    role_names: tuple[str, ...]
    ignores_case: bool = False
    """Whether the controller accepts the name of a role in any case."""

    def list_pod_sets(self, job: JsonObject, _names: Names) -> list[PodSetTemplate]:
        """Return a podset for each role that the job has."""
        return self.list_role_pod_sets(job)

    def list_role_pod_sets(self, job: JsonObject) -> list[PodSetTemplate]:
        """Return a podset for each role that the job has."""
        path = ("spec", self.field)
        replicas = object_at(job, path)
        pod_sets: list[PodSetTemplate] = []
        for role in self.role_names:
            key = self._find_role_key(replicas, role)
            if isinstance(replicas.get(key), Mapping):
                count = count_pods(replicas[key].get("replicas"))
                template = (*path, MapKey(key), "template")
                pod_sets.append(
                    PodSetTemplate(
                        role.lower(), count, template, index_labels=PodIndexLabels(_REPLICA_INDEX_LABEL)
                    )
                )
        return pod_sets

    def _find_role_key(self, replicas: JsonObject, role: str) -> str:
        if role in replicas or not self.ignores_case:
            return role
        return next((key for key in replicas if key.lower() == role.lower()), role)

    def find_priority_class(self, job: JsonObject) -> str | None:
        """Return the PriorityClass of the run policy, or that of the first role with one."""
        policy = (*RUN_POLICY, "schedulingPolicy", "priorityClass")
        pods = (
            (*pod_set.template_path, "spec", "priorityClassName") for pod_set in self.list_role_pod_sets(job)
        )
        return next((name for path in (policy, *pods) if (name := text_at(job, path))), None)

    def compare_child(
        self, job: JsonObject, pod: JsonObject, _is_elastic: ElasticityCheck
    ) -> ChildDifference | None:
        """Return how a pod differs from the replica of its name; None if it does not."""
        owner, name = (text_at(obj, ("metadata", "name")) for obj in (job, pod))
        for pod_set in self.list_role_pod_sets(job):
            prefix = f"{owner}-{pod_set.name}-"
            index = name.removeprefix(prefix)
            if name.startswith(prefix) and _INDEX.fullmatch(index) and int(index) < pod_set.count:
                return None if is_pod_within(pod, pod_set.get_template(job)) else ChildDifference.REQUESTS
        return ChildDifference.IDENTITY


def find_outcome(job: JsonObject) -> JobOutcome | None:
    """Return the outcome from the job's conditions; None while it has not ended."""
    return find_end(job, FINISHING_CONDITIONS)


def is_active(job: JsonObject) -> bool:
    """Whether pods of any role run."""
    statuses = object_at(job, ("status", "replicaStatuses"))
    return any(as_int(object_at(status).get("active")) > 0 for status in statuses.values())


def are_pods_ready(job: JsonObject) -> bool:
    """Whether the job has the condition Running."""
    return is_condition_true(job, "Running")


def create_replica_job_kind(
    name: str,
    version: str,
    roles: ReplicaRoles,
    *,
    controller: str,
    creates: frozenset[tuple[str, str]] = PODS_ONLY,
    differs: Callable[[JsonObject, JsonObject, ElasticityCheck], ChildDifference | None] | None = None,
    adopts_prebuilt_workload: bool = True,
    mutate: Callable[[JsonObject, RuleContext], JsonObject] = return_unchanged,
) -> Integration:
    """Return the record of a kind of this family.

    Args:
        name: the name of the kind.
        version: the version of its API.
        roles: its pod templates.
        controller: the value of ``managedBy`` for the kind's own controller.
        creates: the kinds of objects that the controller creates.
        differs: returns how an object differs from those that the controller creates; by default, the
            controller creates one pod for each replica.
        adopts_prebuilt_workload: whether a job can name an existing Workload.
        mutate: sets the defaults of the kind.
    """
    return Integration(
        framework=f"{GROUP}/{name.lower()}",
        group=GROUP,
        version=version,
        kind=name,
        plural=f"{name.lower()}s",
        list_pod_sets=roles.list_pod_sets,
        find_outcome=find_outcome,
        is_active=is_active,
        are_pods_ready=are_pods_ready,
        templates=PodTemplates(
            pod_sets_field=f"spec.{roles.field}",
            find_priority_class=roles.find_priority_class,
        ),
        lifecycle=JobLifecycle(suspend_path=SUSPEND),
        ownership=KindOwnership(
            created_kinds=creates,
            compare_child=differs or roles.compare_child,
        ),
        delegation=Delegation(
            adopts_prebuilt_workload=adopts_prebuilt_workload,
            managed_by_path=MANAGED_BY,
            own_controller=controller,
            dispatch_controller=KUEUE_MULTIKUEUE_CONTROLLER,
        ),
        webhook=KindWebhook(mutate=mutate),
    )

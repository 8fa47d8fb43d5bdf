"""Jobs that hold a pod template for each role that a pod can have, as those of Kubeflow do.

Their templates stand under a map from role to replicas; they are suspended, and their priority class and
their controller named, in ``spec.runPolicy``. When such a job is suspended its controller deletes its pods,
and sets the numbers of active ones to 0 and the condition Running to False.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from admitq.integrations.base import (
    KNOWN_DISPATCHER,
    Delegation,
    Difference,
    Elastic,
    Finished,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    PodIndexes,
    PodSetTemplate,
    PodTemplates,
    Rules,
    unchanged,
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
"""Whether the job succeeded, by the condition that ends it."""

PODS_ONLY: Final = frozenset({("", "Pod")})

_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_INDEX: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Roles:
    """Where a kind holds its templates, and for which roles, in the order of the podsets."""

    field: str
    names: tuple[str, ...]
    any_case: bool = False
    """Whether the controller takes the name of a role in upper and lower case alike."""

    def pod_sets(self, job: JsonObject, _names: Names) -> list[PodSetTemplate]:
        """A podset for each role that the job has."""
        return self.pod_sets_of(job)

    def pod_sets_of(self, job: JsonObject) -> list[PodSetTemplate]:
        """A podset for each role that the job has."""
        path = ("spec", self.field)
        replicas = object_at(job, path)
        found: list[PodSetTemplate] = []
        for role in self.names:
            key = self._key(replicas, role)
            if isinstance(replicas.get(key), Mapping):
                count = count_pods(replicas[key].get("replicas"))
                template = (*path, MapKey(key), "template")
                found.append(
                    PodSetTemplate(role.lower(), count, template, indexes=PodIndexes(_REPLICA_INDEX))
                )
        return found

    def _key(self, replicas: JsonObject, role: str) -> str:
        if role in replicas or not self.any_case:
            return role
        return next((key for key in replicas if key.lower() == role.lower()), role)

    def priority_class(self, job: JsonObject) -> str | None:
        """The class of the run policy, or that of the first role which has one."""
        policy = (*RUN_POLICY, "schedulingPolicy", "priorityClass")
        pods = ((*pod_set.template_path, "spec", "priorityClassName") for pod_set in self.pod_sets_of(job))
        return next((name for path in (policy, *pods) if (name := text_at(job, path))), None)

    def differs(self, job: JsonObject, pod: JsonObject, _is_elastic: Elastic) -> Difference | None:
        """In what a pod differs from the job's replica of its name, of which there is only one."""
        owner, name = (text_at(one, ("metadata", "name")) for one in (job, pod))
        for pod_set in self.pod_sets_of(job):
            prefix = f"{owner}-{pod_set.name}-"
            index = name.removeprefix(prefix)
            if name.startswith(prefix) and _INDEX.fullmatch(index) and int(index) < pod_set.count:
                return None if is_pod_within(pod, pod_set.template_in(job)) else Difference.REQUESTS
        return Difference.IDENTITY


def finished(job: JsonObject) -> Finished | None:
    """As the job's conditions say."""
    return find_end(job, FINISHING_CONDITIONS)


def is_active(job: JsonObject) -> bool:
    """While pods of any role run."""
    statuses = object_at(job, ("status", "replicaStatuses"))
    return any(as_int(object_at(one).get("active")) > 0 for one in statuses.values())


def pods_ready(job: JsonObject) -> bool:
    """When the controller says that the job runs."""
    return is_condition_true(job, "Running")


def replica_job(
    name: str,
    version: str,
    roles: Roles,
    *,
    controller: str,
    creates: frozenset[tuple[str, str]] = PODS_ONLY,
    differs: Callable[[JsonObject, JsonObject, Elastic], Difference | None] | None = None,
    adopts_prebuilt_workload: bool = True,
    mutate: Callable[[JsonObject, Rules], JsonObject] = unchanged,
) -> Integration:
    """The record of a kind of this family.

    Args:
        name: of the kind.
        version: of its API.
        roles: its templates.
        controller: what ``managedBy`` calls the kind's own controller.
        creates: what that controller makes.
        differs: in what an object differs from those; by default from pods named after the job's replicas.
        adopts_prebuilt_workload: whether a job may name the Workload that stands for it.
        mutate: defaults of the kind.
    """
    return Integration(
        framework=f"{GROUP}/{name.lower()}",
        group=GROUP,
        version=version,
        kind=name,
        plural=f"{name.lower()}s",
        pod_sets=roles.pod_sets,
        finished=finished,
        is_active=is_active,
        pods_ready=pods_ready,
        templates=PodTemplates(
            pod_sets_field=f"spec.{roles.field}",
            priority_class=roles.priority_class,
        ),
        lifecycle=JobLifecycle(suspend_path=SUSPEND),
        ownership=KindOwnership(
            creates=creates,
            differs=differs or roles.differs,
        ),
        delegation=Delegation(
            adopts_prebuilt_workload=adopts_prebuilt_workload,
            managed_by_path=MANAGED_BY,
            own_controller=controller,
            dispatched_as=KNOWN_DISPATCHER,
        ),
        webhook=KindWebhook(mutate=mutate),
    )

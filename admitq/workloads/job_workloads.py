"""The Workload of a job: its podsets, queue, priority and limits. Pure functions.

The job controller creates Workloads with it on a cluster, and the simulator in memory.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from admitq.integrations.admission_gates import list_gates
from admitq.integrations.base import Composition, Integration, PodSetTemplate, get_group_name, list_members
from admitq.integrations.families import pods
from admitq.integrations.ownership import get_queue_name
from admitq.integrations.workload_names import create_workload_name
from admitq.metrics.custom_labels import MetadataKey
from admitq.workloads.pod_charges import find_role_mismatch
from admitq.workloads.template_injection import has_same_charges, sanitise_template
from admitq.workloads.topology_annotations import (
    TopologyRules,
    create_topology_request,
    find_group_errors,
    find_template_errors,
    is_elastic,
    list_template_annotations,
)
from admitq_api.field_errors import join_errors
from admitq_api.json_objects import JsonObject, create_merge_patch, object_at, value_at
from admitq_api.labels import Names
from admitq_api.syntax import check_label_value

PRIORITY_GROUP: Final = "scheduling.k8s.io"
WORKLOAD: Final = "Workload"

FIELDS_FROM_JOB: Final = (
    "podSets",
    "queueName",
    "priority",
    "priorityClassRef",
    "maximumExecutionTimeSeconds",
)
"""Fields of a Workload's spec that follow from its job; other fields belong to the Workload."""

_LONGEST_EXECUTION: Final = 2**31 - 1


class PriorityClasses(Protocol):
    """Looks up the priority classes that jobs name."""

    @property
    def workload_priority_class(self) -> Callable[[str], JsonObject | None]:
        """Return a WorkloadPriorityClass by name; None if it does not exist."""
        ...

    @property
    def priority_class(self) -> Callable[[str], JsonObject | None]:
        """Return a PriorityClass by name; None if it does not exist."""
        ...

    @property
    def priority_classes(self) -> Callable[[], Iterable[JsonObject]]:
        """Return all PriorityClasses."""
        ...


class WorkloadOptions(Protocol):
    """Options of the configuration for the Workloads of jobs."""

    @property
    def partial_admission(self) -> bool:
        """Whether a job that allows it may run with fewer pods."""
        ...

    @property
    def topology_rules(self) -> TopologyRules | None:
        """The rules of topology annotations; None if podsets request no topology."""
        ...

    @property
    def longest_workload_name(self) -> int:
        """The maximum length of the name of a Workload."""
        ...

    @property
    def label_keys_to_copy(self) -> tuple[str, ...]:
        """Keys of labels that are copied from the job to its Workload."""
        ...

    @property
    def metric_values_to_copy(self) -> tuple[MetadataKey, ...]:
        """Labels and annotations to copy from the job, or from its pods, for custom labels of metrics."""
        ...


class JobSource(Protocol):
    """A job, and all other inputs of its Workload."""

    @property
    def integration(self) -> Integration:
        """The kind of the job."""
        ...

    @property
    def names(self) -> Names:
        """The names of the API group."""
        ...

    @property
    def job(self) -> JsonObject | None:
        """The job; None if it does not exist."""
        ...

    @property
    def conventions(self) -> WorkloadOptions:
        """The options of the configuration."""
        ...

    @property
    def lookups(self) -> PriorityClasses:
        """The lookups of priority classes."""
        ...


class PriorityClassMissing(LookupError):
    """The class that decides the job's priority does not exist."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{kind} "{name}" not found')
        self.reason = f"{kind}NotFound"


class WorkloadNotPossible(Exception):
    """The job, or its group of pods, cannot have a Workload in its current state."""

    reason = "ErrWorkloadCompose"


class RoleMismatch(WorkloadNotPossible):
    """Pods of a group have the same role and different requests."""

    reason = "RoleMismatch"


class InvalidJob(WorkloadNotPossible):
    """The job cannot have a Workload until its author changes it."""


class InvalidTopologyRequest(InvalidJob):
    """Annotations of the job's pod templates request no valid topology."""


class NoPodSets(InvalidJob):
    """The job describes no podsets, and a Workload needs at least one."""

    def __init__(self, field: str) -> None:
        super().__init__(f"{field}: Required value: describes no pods; a Workload needs at least one podset")


class JobPriority(NamedTuple):
    """A priority, and a reference to its class."""

    value: int
    reference: Mapping[str, str] | None


def job_priority(case: JobSource) -> JobPriority:
    """Return the job's priority.

    It comes from the first of these: the class in the label of the job, the job's own class, the class of its
    pods, the default class.

    Raises:
        PriorityClassMissing: the class does not exist.
    """
    if label := _label(case, case.names.priority_class):
        stored = case.lookups.workload_priority_class(label)
        if stored is None:
            raise PriorityClassMissing("WorkloadPriorityClass", label)
        return _priority(case.names.group, "WorkloadPriorityClass", stored)
    job: JsonObject = case.job or {}
    if own := case.integration.templates.find_priority_class(job) or _priority_class_of_pods(case, job):
        stored = case.lookups.priority_class(own)
        if stored is None:
            raise PriorityClassMissing("PriorityClass", own)
        return _priority(PRIORITY_GROUP, "PriorityClass", stored)
    defaults = [
        priority_class
        for priority_class in case.lookups.priority_classes()
        if priority_class.get("globalDefault") is True
    ]
    if defaults:
        lowest = min(
            defaults,
            key=lambda priority_class: (priority_class.get("value") or 0, priority_class["metadata"]["name"]),
        )
        return _priority(PRIORITY_GROUP, "PriorityClass", lowest)
    return JobPriority(0, None)


def _label(case: JobSource, key: str) -> str | None:
    return value_at(case.job, ("metadata", "labels", key))


def _priority(group: str, kind: str, priority_class: JsonObject) -> JobPriority:
    reference = {"group": group, "kind": kind, "name": priority_class["metadata"]["name"]}
    return JobPriority(priority_class.get("value") or 0, reference)


def _priority_class_of_pods(case: JobSource, job: JsonObject) -> str | None:
    for pod_set in case.integration.list_pod_sets(job, case.names)[:1]:
        return value_at(pod_set.get_template(job), ("spec", "priorityClassName"))
    return None


def workload_pod_sets(case: JobSource) -> list[dict[str, Any]]:
    """Return the job's podsets as its Workload lists them."""
    job: JsonObject = case.job or {}
    listed: list[dict[str, Any]] = []
    for pod_set in case.integration.list_pod_sets(job, case.names):
        template = sanitise_template(pod_set.get_template(job), case.integration.templates.platform_labels)
        described: dict[str, Any] = {"name": pod_set.name, "count": pod_set.count, "template": template}
        if pod_set.min_count is not None and case.conventions.partial_admission:
            described["minCount"] = pod_set.min_count
        if topology := _topology_request(case, pod_set):
            described["topologyRequest"] = topology
        listed.append(described)
    return listed


def _topology_request(case: JobSource, pod_set: PodSetTemplate) -> dict[str, Any]:
    """Return where the pods must be placed together, and the labels that number them."""
    rules = case.conventions.topology_rules
    if rules is None:
        return {}
    annotations = object_at(pod_set.get_template(case.job or {}), ("metadata", "annotations"))
    request = create_topology_request(annotations, case.names, rules)
    indexes = pod_set.index_labels
    if indexes is not None:
        request |= {
            "podIndexLabel": indexes.pod_label,
            "subGroupIndexLabel": indexes.group_label,
            "subGroupCount": indexes.group_count,
        }
    return {field: value for field, value in request.items() if value is not None}


def _check_topology_annotations(case: JobSource) -> None:
    """Check the topology annotations of a job, which may have been stored without a webhook.

    Raises:
        InvalidTopologyRequest: they break a rule.
    """
    job, kind, names, rules = case.job or {}, case.integration, case.names, case.conventions.topology_rules
    if rules is None:
        return
    elastic, is_started = is_elastic(job, kind, names, rules), not kind.is_suspended(job, names)
    pod_sets = kind.list_pod_sets(job, names)
    templates = list_template_annotations(job, pod_sets, is_started=is_started, elastic=elastic)
    errors = [
        *find_template_errors(templates, names, rules, elastic=elastic),
        *find_group_errors(templates, names),
    ]
    if errors:
        raise InvalidTopologyRequest(join_errors(errors))


def has_same_pods(case: JobSource, current: JsonObject, listed: JsonObject, *, tolerations: bool) -> bool:
    """Whether the pods of a podset in the Workload are charged like those of the job's current podset."""
    template = sanitise_template(listed.get("template") or {}, case.integration.templates.platform_labels)
    return has_same_charges(current["template"], template, tolerations=tolerations)


def maximum_execution_seconds(case: JobSource) -> int | None:
    """Return the seconds that the job may run; None if it has no valid limit."""
    text = _label(case, case.names.max_exec_time)
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    limit = int(text)
    return limit if 0 < limit <= _LONGEST_EXECUTION else None


def _active_members_by_role(job: JsonObject, composition: Composition) -> dict[str, list[JsonObject]]:
    """Return the active members of a group by the podset that they name, oldest first."""
    counts: dict[str, list[JsonObject]] = {}
    for member in list_members(job) if get_group_name(job) else ():
        if not pods.is_inactive(member):
            counts.setdefault(composition.get_pod_set(job, member), []).append(member)
    return counts


def _workload_spec(case: JobSource) -> dict[str, Any]:
    composition = case.integration.composition
    if composition is not None:
        problem = composition.find_problem(case.job or {}, case.names, case.conventions.label_keys_to_copy)
        if problem is not None:
            raise WorkloadNotPossible(problem)
        if (
            differing := find_role_mismatch(_active_members_by_role(case.job or {}, composition))
        ) is not None:
            raise RoleMismatch(differing)
    pod_sets = workload_pod_sets(case)
    if not pod_sets:
        raise NoPodSets(case.integration.templates.pod_sets_field)
    _check_topology_annotations(case)
    priority = job_priority(case)
    spec = {
        "podSets": pod_sets,
        "queueName": get_queue_name(case.job or {}, case.names),
        "priority": priority.value,
        "priorityClassRef": priority.reference,
        "maximumExecutionTimeSeconds": maximum_execution_seconds(case),
    }
    return {field: value for field, value in spec.items() if value not in (None, "")}


def new_workload(case: JobSource) -> dict[str, Any]:
    """Return the Workload to create for the job.

    Raises:
        PriorityClassMissing: the class that decides the priority does not exist.
        WorkloadNotPossible: the job is an incomplete or contradictory group, has no podsets, or requests no
            valid topology.
    """
    job, names = case.job or {}, case.names
    metadata = job["metadata"]
    annotations = {
        key: value
        for key, value in value_at(metadata, ("annotations",), {}).items()
        if key.startswith(names.provisioning_annotation_prefix) or key == names.admission_gated_by
    }
    if get_group_name(job):
        annotations[names.is_group_workload] = "true"
    labels = _copied_labels(case)
    for place, values in (("labels", labels), ("annotations", annotations)):
        for key, value in _metric_values(case, place).items():
            values.setdefault(key, value)
    workload_metadata: dict[str, Any] = {
        "name": get_group_name(job) or _workload_name(case),
        "namespace": metadata["namespace"],
        "labels": labels | job_uid_label(case),
        "finalizers": [names.finalizer],
        "ownerReferences": owner_references(case),
    }
    if annotations:
        workload_metadata["annotations"] = annotations
    return {
        "apiVersion": names.api_version,
        "kind": WORKLOAD,
        "metadata": workload_metadata,
        "spec": _workload_spec(case),
    }


def _copied_labels(case: JobSource) -> dict[str, str]:
    """Return the labels to copy. For a group, the first member with a label decides."""
    job: JsonObject = case.job or {}
    return {
        key: value
        for member in list_members(job) or (job,)
        for key, value in value_at(member, ("metadata", "labels"), {}).items()
        if key in case.conventions.label_keys_to_copy
    }


def _metric_values(case: JobSource, place: str) -> dict[str, str]:
    """Return the values that metrics take from the Workload, by key.

    For a group, a value is copied if all pods that have the key agree on it.
    """
    job = case.job or {}
    values: dict[str, str] = {}
    for location in case.conventions.metric_values_to_copy:
        if location.place != place:
            continue
        members = list_members(job) or (job,)
        present = {value_at(member, ("metadata", place, location.key)) for member in members} - {None}
        if len(present) == 1:
            values[location.key] = present.pop()
    return values


def _workload_name(case: JobSource) -> str:
    metadata = (case.job or {})["metadata"]
    return create_workload_name(
        case.integration.kind,
        case.integration.group,
        metadata["name"],
        metadata["uid"],
        longest=case.conventions.longest_workload_name,
    )


def job_uid_label(case: JobSource) -> dict[str, str]:
    """Return the label with the job's UID; nothing if the UID is not a valid value of a label."""
    uid = value_at(case.job, ("metadata", "uid"), "")
    return {case.names.job_uid: uid} if uid and check_label_value(uid) is None else {}


def owner_references(case: JobSource) -> list[dict[str, Any]]:
    """Return the owner references: the job as controller, or each member of a group as owner.

    They do not block the deletion of owners, which would need a permission on every kind of job.
    """
    job: JsonObject = case.job or {}
    if get_group_name(job):
        return [_reference(case, member) for member in list_members(job)]
    return [{**_reference(case, job), "controller": True}]


def _reference(case: JobSource, owner: JsonObject) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {
        "apiVersion": case.integration.api_version,
        "kind": case.integration.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def spec_patch(case: JobSource, workload: JsonObject) -> dict[str, Any]:
    """Return the merge patch that updates the Workload's spec to the current job; empty if nothing differs.

    Raises:
        PriorityClassMissing: the class that decides the priority does not exist.
        WorkloadNotPossible: the job is an incomplete or contradictory group, has no podsets, or requests no
            valid topology.
    """
    present = value_at(workload, ("spec",), {})
    changed = create_merge_patch(
        {field: present.get(field) for field in FIELDS_FROM_JOB}, _workload_spec(case)
    )
    return {"spec": changed} if changed else {}


def priority_patch(case: JobSource, workload: JsonObject, *, reserved: bool) -> dict[str, Any]:
    """Return the merge patch of the priority after a change of the class in the job's label; may be empty.

    A priority from a PriorityClass does not change. Neither does the priority of a Workload without any class
    while quota is ``reserved`` for it.

    Raises:
        PriorityClassMissing: the class does not exist.
    """
    label = _label(case, case.names.priority_class)
    reference = value_at(workload, ("spec", "priorityClassRef"))
    if not label or (reference is None and reserved):
        return {}
    if reference is not None and (
        reference.get("kind") != "WorkloadPriorityClass" or reference.get("name") == label
    ):
        return {}
    priority = job_priority(case)
    return {"spec": {"priority": priority.value, "priorityClassRef": dict(priority.reference or {})}}


def admission_gates_patch(workload: JsonObject, jobs: Iterable[JsonObject], names: Names) -> dict[str, Any]:
    """Return the merge patch that removes admission gates that none of the jobs has; empty if there are none.

    It adds no gates: a user with the right to update Workloads may remove a gate from the Workload alone.
    """
    remaining = {gate for job in jobs for gate in list_gates(job, names)}
    gates = list_gates(workload, names)
    reported = [gate for gate in gates if gate in remaining]
    if reported == gates:
        return {}
    return {"metadata": {"annotations": {names.admission_gated_by: ",".join(reported) or None}}}

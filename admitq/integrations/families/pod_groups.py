"""Jobs that are composed of pods: a single pod, or all pods of a group.

All functions are pure and take the job that ``compose`` returns. ``compose`` stores in the job everything
that depends on the time or on names, so that most other functions need neither (semantics, Pods and pod
groups).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import (
    MAX_POD_SETS,
    CompositionOptions,
    JobOutcome,
    PodCountsByPodSet,
    PodIndexLabels,
    PodSetTemplate,
    get_group_name,
    list_members,
)
from admitq.integrations.families import pods
from admitq.integrations.ownership import get_queue_name
from admitq.integrations.pod_shape import compute_role_hash
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.labels import Names

MAIN: Final = "main"

_GATES: Final = ("spec", "schedulingGates")


def compose(members: Sequence[JsonObject], names: Names, moment: CompositionOptions) -> JsonObject:
    """Return the job of these pods. Settings of the group are taken from its oldest pod.

    Besides the members, the job has these keys:
        roles: the podset of each pod.
        running: the names of the pods that may hold resources.
        changes: when the first of these releases its resources by itself; None if none does.
        size: the number of pods of the group.
        fast: whether the group can be queued before it is complete.
        serving: whether the group never finishes.
        served: whether an object that serves creates the pods.
        final: whether failed pods are not replaced.
    """
    listed = sorted(members, key=pods.get_age_key)
    first = listed[0]
    group = pods.get_pod_group(first, names)
    running = [pod for pod in listed if pods.may_hold_resources(pod, names, moment)]
    ends = [end for pod in running if (end := pods.get_grace_period_end(pod)) is not None]
    served = bool(group) and pods.is_in_served_group(first, names)
    job: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _compose_metadata(group, listed),
        "members": listed,
        "group": group,
        "roles": {_get_name(pod): _get_role(pod, names) if group else MAIN for pod in listed},
        "running": [_get_name(pod) for pod in running],
        "changes": min(ends, default=None),
        "size": (pods.get_total_count(first, names) or 0) if group else 1,
        "fast": bool(group) and pods.get_annotation(first, names.pod_group_fast_admission) == "true",
        "serving": bool(group) and pods.get_annotation(first, names.pod_group_serving) == "true",
        "served": served,
        "final": any(pods.get_annotation(pod, names.retriable_in_group) == "false" for pod in listed),
    }
    # The controller of a served group replaces deleted pods. A single pod keeps its quota while it runs.
    deleted = not served and all(
        pods.is_being_deleted(pod) and not (pods.is_marked_for_termination(pod) if group else running)
        for pod in listed
    )
    if deleted and find_outcome(job) is None:
        job["metadata"]["deletionTimestamp"] = value_at(first, ("metadata", "deletionTimestamp"))
    return job


def _get_role(pod: JsonObject, names: Names) -> str:
    """Return the role of a pod in its group, which is the name of its podset.

    A pod that the webhook did not hold has no role hash. A started pod names its podset in a label. Otherwise
    the role is the hash of its shape.
    """
    named = pods.get_annotation(pod, names.role_hash) or pods.get_label(pod, names.podset)
    return named or compute_role_hash(pods.get_mapping(pod, "spec"))


def _compose_metadata(group: str, listed: Sequence[JsonObject]) -> dict[str, Any]:
    metadata: dict[str, Any] = dict(value_at(listed[0], ("metadata",), {}))
    metadata.pop("deletionTimestamp", None)
    if not group:
        return metadata
    metadata_kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if key in metadata}
    return {**metadata_kept, "name": group, "creationTimestamp": pods.get_age_key(listed[-1])[0]}


def _get_name(pod: JsonObject) -> str:
    return pods.get_text(pod, "metadata", "name")


def _get_size(job: JsonObject) -> int:
    size = job.get("size")
    return size if isinstance(size, int) else 0


def _get_running_names(job: JsonObject) -> set[str]:
    return set(job.get("running") or ())


def get_pod_set(job: JsonObject, pod: JsonObject) -> str:
    """Return the name of the podset of a pod: its role in the group, or the only podset of a single pod."""
    return value_at(job, ("roles", _get_name(pod)), MAIN)


def _list_active(job: JsonObject) -> list[JsonObject]:
    return [pod for pod in list_members(job) if not pods.is_inactive(pod)]


def _group_by_role(job: JsonObject, members: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    pods_by_role: dict[str, list[JsonObject]] = {}
    for pod in members:
        pods_by_role.setdefault(get_pod_set(job, pod), []).append(pod)
    return pods_by_role


# --- podsets ----------------------------------------------------------------------------------------


def list_pod_sets(job: JsonObject, names: Names) -> list[PodSetTemplate]:
    """Return a podset for each role. With fast admission, the group has one podset.

    Webhooks pass a pod instead of a composed job. Then the podset is as large as the pod's group.
    """
    members = list_members(job)
    if not members:
        count = (pods.get_total_count(job, names) or 1) if pods.get_pod_group(job, names) else 1
        return [PodSetTemplate(MAIN, count, (), template=_without_own_gates(job, names))]
    if not get_group_name(job):
        return [PodSetTemplate(MAIN, 1, (), template=_without_own_gates(members[0], names))]
    roles = sorted(_group_by_role(job, _list_active(job)).items())
    return [
        PodSetTemplate(
            role,
            _get_size(job) if job.get("fast") is True else len(role_members),
            (),
            template=_without_own_gates(role_members[0], names),
            index_labels=PodIndexLabels(names.pod_group_pod_index),
        )
        for role, role_members in roles
    ]


def _without_own_gates(pod: JsonObject, names: Names) -> JsonObject:
    """Return the pod without admitq's gates, which are no part of its requests."""
    gates = value_at(pod, _GATES, [])
    own_gates = {names.admission_gate, names.topology_gate}
    if not isinstance(gates, list) or not gates:
        return pod
    other_gates = [gate for gate in gates if value_at(gate, ("name",)) not in own_gates]
    spec = {key: value for key, value in pods.get_mapping(pod, "spec").items() if key != _GATES[1]}
    return {**pod, "spec": {**spec, _GATES[1]: other_gates} if other_gates else spec}


def find_problem(job: JsonObject, names: Names, label_keys: Sequence[str]) -> str | None:
    """Return why the pods of a group cannot have a Workload; None if they can, and for a single pod."""
    group, members = get_group_name(job), list_members(job)
    if not group:
        return None
    queues = sorted({get_queue_name(pod, names) for pod in members})
    if len(queues) > 1:
        return f"pods of group '{group}' name different queues: {', '.join(map(repr, queues))}"
    if len({pods.get_total_count(pod, names) for pod in members}) > 1:
        return f"pods of group '{group}' have different total counts"
    if not _get_size(job):
        return f"pods of group '{group}' do not state how many they are: set {names.pod_group_total_count}"
    if (key := _find_conflicting_key(members, names, label_keys)) is not None:
        return f"pods of group '{group}' have different values of {key}"
    active = _list_active(job)
    roles = _group_by_role(job, active)
    if len(roles) > MAX_POD_SETS:
        return f"group '{group}' has {len(roles)} roles, more than {MAX_POD_SETS}"
    if job.get("fast") is True and len(roles) > 1:
        return f"group '{group}' is admitted fast, so that its pods must have the same shape"
    if len(active) < (1 if job.get("fast") is True else _get_size(job)):
        return f"'{group}' group has fewer runnable pods than expected"
    return None


def _find_conflicting_key(
    members: Sequence[JsonObject], names: Names, label_keys: Sequence[str]
) -> str | None:
    """Return the key of a label or annotation that would be copied to the Workload and differs between pods.

    Pods may lack a label that others have. Annotations delay the admission of a Workload or describe its
    requests, so all pods must have the same.
    """
    labels = [pods.get_mapping(pod, "metadata", "labels") for pod in members]
    annotations = [pods.get_mapping(pod, "metadata", "annotations") for pod in members]
    prefix = names.provisioning_annotation_prefix
    copied = {key for mapping in annotations for key in mapping if key.startswith(prefix)}
    values = {key: {mapping[key] for mapping in labels if key in mapping} for key in label_keys}
    values |= {
        key: {mapping.get(key) for mapping in annotations} for key in {names.admission_gated_by} | copied
    }
    return next((key for key, distinct in sorted(values.items()) if len(distinct) > 1), None)


def is_equivalent(job: JsonObject, listed: Sequence[JsonObject]) -> bool | None:
    """Whether podsets of a Workload match the pods.

    The podsets of a group must have room for the pods of each role. A single pod that runs keeps its quota,
    even if it was resized in place. A single pod that waits is compared like other jobs, which None means.
    """
    if not get_group_name(job):
        return True if job.get("running") else None
    counts = {value_at(pod_set, ("name",), MAIN): value_at(pod_set, ("count",), 1) for pod_set in listed}
    return all(
        len(members) <= counts.get(role, 0)
        for role, members in _group_by_role(job, _list_active(job)).items()
    )


# --- state ------------------------------------------------------------------------------------------


def find_outcome(job: JsonObject) -> JobOutcome | None:
    """Return the outcome of an ended pod or group; None if it has not ended.

    A group has ended when all of its pods have succeeded, or when failed pods are not replaced and none runs.
    """
    members = list_members(job) or (job,)
    if not get_group_name(job):
        if not pods.has_ended(members[0]):
            return None
        return JobOutcome(
            pods.get_phase(members[0]) == "Succeeded", pods.get_text(members[0], "status", "message")
        )
    size, succeeded = _get_size(job), sum(pods.get_phase(pod) == "Succeeded" for pod in members)
    lives = any(not pods.has_ended(pod) and not pods.is_being_deleted(pod) for pod in members)
    is_over = 0 < size <= succeeded or (
        job.get("final") is True and not lives and not _get_running_names(job)
    )
    if job.get("serving") is True or not is_over:
        return None
    return JobOutcome(succeeded >= size, f"Pods succeeded: {succeeded}/{size}.")


def is_active(job: JsonObject) -> bool:
    """Whether pods may run on nodes."""
    running = _get_running_names(job)
    return any(
        _get_name(pod) in running and pods.get_text(pod, "spec", "nodeName") for pod in list_members(job)
    )


def is_suspended(job: JsonObject, names: Names) -> bool:
    """Whether no pod runs: each pod is held or has ended."""
    if not list_members(job):
        return pods.has_gate(job, names.admission_gate) or pods.has_ended(job)
    return not job.get("running")


def are_pods_ready(job: JsonObject) -> bool:
    """Whether all pods of the job are ready or have succeeded."""
    members = list_members(job) or (job,)
    return sum(map(pods.is_ready, members)) >= (_get_size(job) or 1)


def count_reclaimable_pods(job: JsonObject) -> Mapping[str, int] | None:
    """Return the numbers of succeeded pods of a group, by podset; None for a group that serves."""
    if not get_group_name(job) or job.get("serving") is True:
        return None
    return Counter(get_pod_set(job, pod) for pod in list_members(job) if pods.get_phase(pod) == "Succeeded")


# --- members ----------------------------------------------------------------------------------------


def list_startable(job: JsonObject, counts: PodCountsByPodSet | None, names: Names) -> list[JsonObject]:
    """Return the pods that wait at their gate, oldest first, limited by the counts of an admission, if given.

    A deleted pod occupies quota until it no longer runs, so that its replacement does not run at the same
    time.
    """
    waiting = [
        pod
        for pod in list_members(job)
        if pods.has_gate(pod, names.admission_gate)
        and not pods.is_being_deleted(pod)
        and not pods.has_ended(pod)
    ]
    if counts is None:
        return waiting
    running, room = _get_running_names(job), Counter(counts)
    for pod in list_members(job):
        if _get_name(pod) in running or pods.get_phase(pod) == "Succeeded":
            room[get_pod_set(job, pod)] -= 1
    startable: list[JsonObject] = []
    for pod in waiting:
        role = get_pod_set(job, pod)
        if room[role] > 0:
            room[role] -= 1
            startable.append(pod)
    return startable


def without_gates(pod: JsonObject, has_topology: bool, names: Names) -> JsonObject:
    """Return the pod without its admission gate, and, without a topology, without its topology gate."""
    lifted = {names.admission_gate} if has_topology else {names.admission_gate, names.topology_gate}
    gates = value_at(pod, _GATES, [])
    return with_value(pod, _GATES, [gate for gate in gates if value_at(gate, ("name",)) not in lifted])


def list_stoppable(job: JsonObject, everyone: bool, _names: Names) -> list[JsonObject]:
    """Return the pods that a stop ends: those that run, or all pods with ``everyone``."""
    running = _get_running_names(job)
    return [
        pod
        for pod in list_members(job)
        if not pods.is_being_deleted(pod) and (everyone or _get_name(pod) in running)
    ]


def list_excess(job: JsonObject, counts: PodCountsByPodSet | None, names: Names) -> list[JsonObject]:
    """Return the active pods of a group in excess of an admission's counts, or, without counts, of its size.

    Pods without admitq's finalizer come first, then held pods, then the others; each newest first.
    """
    if not get_group_name(job):
        return []

    def worth(pod: JsonObject) -> tuple[Any, ...]:
        finalizers = value_at(pod, ("metadata", "finalizers"), [])
        return (
            names.managed_finalizer not in finalizers,
            pods.has_gate(pod, names.admission_gate),
            *pods.get_age_key(pod),
        )

    active = sorted(_list_active(job), key=worth)
    if counts is None:
        beyond = active[_get_size(job) :] if _get_size(job) else []
    else:
        beyond = [
            pod
            for role, members in _group_by_role(job, active).items()
            for pod in members[max(0, counts.get(role, 0)) :]
        ]
    return sorted(beyond, key=worth, reverse=True)


def list_replaced(job: JsonObject, counts: PodCountsByPodSet, names: Names) -> list[JsonObject]:
    """Return the inactive pods with a finalizer that have been replaced, those longest inactive first."""
    replaced: list[JsonObject] = []
    active = Counter(get_pod_set(job, pod) for pod in _list_active(job))
    inactive = [
        pod
        for pod in list_members(job)
        if pods.is_inactive(pod) and names.managed_finalizer in value_at(pod, ("metadata", "finalizers"), [])
    ]
    for role, inactive_pods in _group_by_role(job, inactive).items():
        surplus = active[role] + len(inactive_pods) - counts.get(role, 0)
        replaced += sorted(inactive_pods, key=pods.get_last_activity)[: max(0, surplus)]
    return replaced


def needs_more_members(job: JsonObject, counts: PodCountsByPodSet) -> bool:
    """Whether a group lacks pods that its admission counts."""
    if not get_group_name(job):
        return False
    active = Counter(get_pod_set(job, pod) for pod in _list_active(job))
    if job.get("served") is True:
        # Its controller may create further pods only when the existing ones are ready.
        return not active
    return any(
        active[role] < (min(1, count) if job.get("fast") is True else count) for role, count in counts.items()
    )

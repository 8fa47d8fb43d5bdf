"""A job put together from pods: one that is alone, or all of a group.

Pure functions on the job that ``compose`` makes. What depends on the instant, or on names, is told there
once, so that the rest can be asked without (semantics, Pods and pod groups).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import (
    MOST_POD_SETS,
    Counts,
    Finished,
    Moment,
    PodSetTemplate,
    group_name,
    members_of,
)
from admitq.integrations.families import pods
from admitq.integrations.ownership import queue_name
from admitq.integrations.pod_shape import role_hash
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.labels import Names

MAIN: Final = "main"

_GATES: Final = ("spec", "schedulingGates")


def compose(members: Sequence[JsonObject], names: Names, moment: Moment) -> JsonObject:
    """The job that these pods are. What all have to say of it is taken from the oldest.

    Beside the members it tells the podset of each (``roles``), who may hold resources (``running``) and when
    that ends by itself (``changes``), how many pods make a group (``size``), whether it need not be complete
    to be queued (``fast``), ends (``serving``), may be repeated (``final``), or is made by an object that
    serves (``served``).
    """
    listed = sorted(members, key=pods.age)
    first = listed[0]
    group = pods.group_of(first, names)
    running = [one for one in listed if pods.runs(one, names, moment)]
    ends = [end for one in running if (end := pods.grace_ends(one)) is not None]
    served = bool(group) and pods.is_in_served_group(first, names)
    job: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(group, listed),
        "members": listed,
        "group": group,
        "roles": {_name(one): _role(one, names) if group else MAIN for one in listed},
        "running": [_name(one) for one in running],
        "changes": min(ends, default=None),
        "size": (pods.total_count(first, names) or 0) if group else 1,
        "fast": bool(group) and pods.annotation(first, names.pod_group_fast_admission) == "true",
        "serving": bool(group) and pods.annotation(first, names.pod_group_serving) == "true",
        "served": served,
        "final": any(pods.annotation(one, names.retriable_in_group) == "false" for one in listed),
    }
    # The controller of a served group creates other pods in place of deleted ones. A single pod keeps its
    # quota while it runs.
    deleted = not served and all(
        pods.is_deleting(one) and not (pods.is_condemned(one) if group else running) for one in listed
    )
    if deleted and finished(job) is None:
        job["metadata"]["deletionTimestamp"] = value_at(first, ("metadata", "deletionTimestamp"))
    return job


def _role(pod: JsonObject, names: Names) -> str:
    """The role of a pod in its group, which is the name of its podset.

    A pod that the webhook did not hold has no role hash. Once started it names its podset; until then the
    role is that of its shape.
    """
    named = pods.annotation(pod, names.role_hash) or pods.label(pod, names.podset)
    return named or role_hash(pods.mapping_at(pod, "spec"))


def _metadata(group: str, listed: Sequence[JsonObject]) -> dict[str, Any]:
    metadata: dict[str, Any] = dict(value_at(listed[0], ("metadata",), {}))
    metadata.pop("deletionTimestamp", None)
    if not group:
        return metadata
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if key in metadata}
    return {**kept, "name": group, "creationTimestamp": pods.age(listed[-1])[0]}


def _name(pod: JsonObject) -> str:
    return pods.text_at(pod, "metadata", "name")


def _size(job: JsonObject) -> int:
    size = job.get("size")
    return size if isinstance(size, int) else 0


def _running(job: JsonObject) -> set[str]:
    return set(job.get("running") or ())


def pod_set_of(job: JsonObject, pod: JsonObject) -> str:
    """Name of the podset that a pod of the job belongs to: its role, or the one of a pod alone."""
    return value_at(job, ("roles", _name(pod)), MAIN)


def _active(job: JsonObject) -> list[JsonObject]:
    return [one for one in members_of(job) if not pods.is_inactive(one)]


def _by_role(job: JsonObject, members: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    found: dict[str, list[JsonObject]] = {}
    for one in members:
        found.setdefault(pod_set_of(job, one), []).append(one)
    return found


# --- what it asks for -------------------------------------------------------------------------------


def pod_sets(job: JsonObject, names: Names) -> list[PodSetTemplate]:
    """A podset for each role; one for all of a group that need not be complete.

    Of a pod by itself, as webhooks see it, the podset is as large as its group.
    """
    members = members_of(job)
    if not members:
        count = (pods.total_count(job, names) or 1) if pods.group_of(job, names) else 1
        return [PodSetTemplate(MAIN, count, (), template=_ungated(job, names))]
    if not group_name(job):
        return [PodSetTemplate(MAIN, 1, (), template=_ungated(members[0], names))]
    roles = sorted(_by_role(job, _active(job)).items())
    return [
        PodSetTemplate(
            role,
            _size(job) if job.get("fast") is True else len(found),
            (),
            template=_ungated(found[0], names),
        )
        for role, found in roles
    ]


def _ungated(pod: JsonObject, names: Names) -> JsonObject:
    """The pod as it will run: our gates say nothing of what it asks for."""
    gates = value_at(pod, _GATES, [])
    ours = {names.admission_gate, names.topology_gate}
    if not isinstance(gates, list) or not gates:
        return pod
    left = [one for one in gates if value_at(one, ("name",)) not in ours]
    spec = {key: value for key, value in pods.mapping_at(pod, "spec").items() if key != _GATES[1]}
    return {**pod, "spec": {**spec, _GATES[1]: left} if left else spec}


def problem(job: JsonObject, names: Names, label_keys: Sequence[str]) -> str | None:
    """Why a group can have no Workload as its pods are; None if it can, and for a pod alone."""
    group, members = group_name(job), members_of(job)
    if not group:
        return None
    queues = sorted({queue_name(one, names) for one in members})
    if len(queues) > 1:
        return f"pods of group '{group}' name different queues: {', '.join(map(repr, queues))}"
    if len({pods.total_count(one, names) for one in members}) > 1:
        return f"pods of group '{group}' have different total counts"
    if not _size(job):
        return f"pods of group '{group}' do not tell how many they are: set {names.pod_group_total_count}"
    if (key := _disputed(members, names, label_keys)) is not None:
        return f"pods of group '{group}' have different values of {key}"
    active = _active(job)
    roles = _by_role(job, active)
    if len(roles) > MOST_POD_SETS:
        return f"group '{group}' has {len(roles)} roles, more than {MOST_POD_SETS}"
    if job.get("fast") is True and len(roles) > 1:
        return f"group '{group}' is admitted fast, so that its pods must have the same shape"
    if len(active) < (1 if job.get("fast") is True else _size(job)):
        return f"'{group}' group has fewer runnable pods than expected"
    return None


def _disputed(members: Sequence[JsonObject], names: Names, label_keys: Sequence[str]) -> str | None:
    """A label or annotation that is copied to the Workload, and that differs between pods of the group.

    A pod without the label leaves it to the others; of annotations, which hold a Workload back or describe
    its requests, all pods must have the same.
    """
    labels = [pods.mapping_at(one, "metadata", "labels") for one in members]
    annotations = [pods.mapping_at(one, "metadata", "annotations") for one in members]
    prefix = names.provisioning_annotation_prefix
    copied = {key for found in annotations for key in found if key.startswith(prefix)}
    values = {key: {found[key] for found in labels if key in found} for key in label_keys}
    values |= {key: {found.get(key) for found in annotations} for key in {names.admission_gated_by} | copied}
    return next((key for key, found in sorted(values.items()) if len(found) > 1), None)


def is_equivalent(job: JsonObject, listed: Sequence[JsonObject]) -> bool | None:
    """Whether podsets of a Workload stand for the pods.

    Those of a group need room for each role that there is. A pod that was let go has its quota, and is not
    ended for being resized in place; one that waits is compared as jobs are, which is what None says.
    """
    if not group_name(job):
        return True if job.get("running") else None
    counts = {value_at(one, ("name",), MAIN): value_at(one, ("count",), 1) for one in listed}
    return all(len(found) <= counts.get(role, 0) for role, found in _by_role(job, _active(job)).items())


# --- how it stands ----------------------------------------------------------------------------------


def finished(job: JsonObject) -> Finished | None:
    """A pod when it has ended; a group when all have succeeded, or one not to be repeated is over."""
    members = members_of(job) or (job,)
    if not group_name(job):
        if not pods.has_ended(members[0]):
            return None
        return Finished(pods.phase(members[0]) == "Succeeded", pods.text_at(members[0], "status", "message"))
    size, succeeded = _size(job), sum(pods.phase(one) == "Succeeded" for one in members)
    lives = any(not pods.has_ended(one) and not pods.is_deleting(one) for one in members)
    is_over = 0 < size <= succeeded or (job.get("final") is True and not lives and not _running(job))
    if job.get("serving") is True or not is_over:
        return None
    return Finished(succeeded >= size, f"Pods succeeded: {succeeded}/{size}.")


def is_active(job: JsonObject) -> bool:
    """While pods may be on nodes."""
    running = _running(job)
    return any(_name(one) in running and pods.text_at(one, "spec", "nodeName") for one in members_of(job))


def is_suspended(job: JsonObject, names: Names) -> bool:
    """Whether no pod runs: each is held, or has ended."""
    if not members_of(job):
        return pods.has_gate(job, names.admission_gate) or pods.has_ended(job)
    return not job.get("running")


def pods_ready(job: JsonObject) -> bool:
    """When as many pods are ready, or done, as the job has."""
    members = members_of(job) or (job,)
    return sum(map(pods.is_ready, members)) >= (_size(job) or 1)


def reclaimable(job: JsonObject) -> Mapping[str, int] | None:
    """Pods of a group that have succeeded; one that serves gives nothing back."""
    if not group_name(job) or job.get("serving") is True:
        return None
    return Counter(pod_set_of(job, one) for one in members_of(job) if pods.phase(one) == "Succeeded")


# --- its members ------------------------------------------------------------------------------------


def held(job: JsonObject, counts: Counts | None, names: Names) -> list[JsonObject]:
    """Pods at their gate, oldest first; only as many as an admission has room for, if one is told.

    A pod that was deleted takes up room until it no longer runs, so that what is started in its place does
    not run beside it.
    """
    waiting = [
        one
        for one in members_of(job)
        if pods.has_gate(one, names.admission_gate) and not pods.is_deleting(one) and not pods.has_ended(one)
    ]
    if counts is None:
        return waiting
    running, room = _running(job), Counter(counts)
    for one in members_of(job):
        if _name(one) in running or pods.phase(one) == "Succeeded":
            room[pod_set_of(job, one)] -= 1
    startable: list[JsonObject] = []
    for one in waiting:
        role = pod_set_of(job, one)
        if room[role] > 0:
            room[role] -= 1
            startable.append(one)
    return startable


def released(pod: JsonObject, has_topology: bool, names: Names) -> JsonObject:
    """The pod without its gate; without that for topology, too, if it needs no place of its own."""
    lifted = {names.admission_gate} if has_topology else {names.admission_gate, names.topology_gate}
    gates = value_at(pod, _GATES, [])
    return with_value(pod, _GATES, [one for one in gates if value_at(one, ("name",)) not in lifted])


def stoppable(job: JsonObject, everyone: bool, _names: Names) -> list[JsonObject]:
    """Pods that a stop ends: those that run; even those that wait or have ended, if everyone is meant."""
    running = _running(job)
    return [
        one for one in members_of(job) if not pods.is_deleting(one) and (everyone or _name(one) in running)
    ]


def excess(job: JsonObject, counts: Counts | None, names: Names) -> list[JsonObject]:
    """Active pods of a group beyond those of an admission, or, without one, beyond the group's size.

    Pods without our finalizer come first, then pods that are held, then the others; each newest first.
    """
    if not group_name(job):
        return []

    def worth(pod: JsonObject) -> tuple[Any, ...]:
        finalizers = value_at(pod, ("metadata", "finalizers"), [])
        return (
            names.managed_finalizer not in finalizers,
            pods.has_gate(pod, names.admission_gate),
            *pods.age(pod),
        )

    active = sorted(_active(job), key=worth)
    if counts is None:
        beyond = active[_size(job) :] if _size(job) else []
    else:
        beyond = [
            one
            for role, found in _by_role(job, active).items()
            for one in found[max(0, counts.get(role, 0)) :]
        ]
    return sorted(beyond, key=worth, reverse=True)


def replaced(job: JsonObject, counts: Counts, names: Names) -> list[JsonObject]:
    """Inactive pods that are still held and in whose place others stand, those longest inactive first."""
    done: list[JsonObject] = []
    active = Counter(pod_set_of(job, one) for one in _active(job))
    inactive = [
        one
        for one in members_of(job)
        if pods.is_inactive(one) and names.managed_finalizer in value_at(one, ("metadata", "finalizers"), [])
    ]
    for role, found in _by_role(job, inactive).items():
        surplus = active[role] + len(found) - counts.get(role, 0)
        done += sorted(found, key=pods.last_active)[: max(0, surplus)]
    return done


def lacks(job: JsonObject, counts: Counts) -> bool:
    """Whether pods of a group must come before an admission of it makes sense."""
    if not group_name(job):
        return False
    active = Counter(pod_set_of(job, one) for one in _active(job))
    if job.get("served") is True:
        # Others may only be made once these are ready.
        return not active
    return any(
        active[role] < (min(1, count) if job.get("fast") is True else count) for role, count in counts.items()
    )

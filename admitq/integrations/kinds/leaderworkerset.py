"""LeaderWorkerSet: each of its groups, a leader and its workers, is queued by itself.

Groups come and go as it is scaled and rolled out, each with a Workload of its own (semantics, StatefulSet and
LeaderWorkerSet).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import (
    Difference,
    Elastic,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    PodIndexes,
    PodPlace,
    PodSetTemplate,
    Rules,
    ServedGroup,
    Serving,
)
from admitq.integrations.children import Pods, differing_pods, name_of
from admitq.integrations.families.pods import LEADER_WORKER_SET as HELD_BY
from admitq.integrations.families.pods import annotation, is_deleting, label, mapping_at, text_at
from admitq.integrations.families.serving import (
    IMMUTABLE,
    are_all_ready,
    has_no_ready_replicas,
    has_replicas,
    queue_marks,
    queue_removed,
    replicas_of,
    shape_changed,
    with_marks,
)
from admitq_api.conditions import find
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, value_at, with_value, without_value
from admitq_api.labels import Names

_GROUP: Final = ("spec", "leaderWorkerTemplate")
_LEADER: Final = (*_GROUP, "leaderTemplate")
_WORKER: Final = (*_GROUP, "workerTemplate")
_SIZE: Final = (*_GROUP, "size")
_MOST_REPLICAS: Final = 1_000_000

_PREFIX: Final = "leaderworkerset.sigs.k8s.io/"
_NAME: Final = f"{_PREFIX}name"
_GROUP_INDEX: Final = f"{_PREFIX}group-index"
_WORKER_INDEX: Final = f"{_PREFIX}worker-index"


def _has_leader(lws: JsonObject) -> bool:
    return bool(mapping_at(lws, *_LEADER))


def pod_sets(lws: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """The podsets of one group: its leader and the workers, or all alike."""
    size = max(1, replicas_of(lws, *_SIZE))
    if not _has_leader(lws):
        return [_pod_set(lws, "main", size, _WORKER)]
    leader = _pod_set(lws, "leader", 1, _LEADER)
    return [leader, _pod_set(lws, "worker", size - 1, _WORKER)] if size > 1 else [leader]


def _pod_set(lws: JsonObject, name: str, count: int, path: tuple[str, ...]) -> PodSetTemplate:
    """What the controller of LeaderWorkerSets writes into templates tells of nothing that is asked for."""
    template: JsonObject = mapping_at(lws, *path)
    for key in mapping_at(template, "metadata", "labels"):
        if str(key).startswith(_PREFIX) and key != _NAME:
            template = without_value(template, ("metadata", "labels", key))
    return PodSetTemplate(name, count, path, template=template, indexes=PodIndexes(_WORKER_INDEX))


def _place_of(pod: JsonObject) -> PodPlace | None:
    name, index = label(pod, _NAME), label(pod, _GROUP_INDEX)
    return PodPlace(name, index) if name and _number(index) is not None else None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _role_of(lws: JsonObject, pod: JsonObject) -> str:
    if not _has_leader(lws):
        return "main"
    return "leader" if label(pod, _WORKER_INDEX) == "0" else "worker"


def groups(lws: JsonObject, pods: Sequence[JsonObject]) -> list[ServedGroup]:
    """A group for each replica, and those that a rollout adds for a while."""
    name, replicas = text_at(lws, "metadata", "name"), replicas_of(lws)
    indexes = set(range(min(replicas, _MOST_REPLICAS)))
    if _is_rolled_out(lws):
        most = replicas + _surge(lws, replicas)
        found = (_number(label(pod, _GROUP_INDEX)) for pod in pods if not is_deleting(pod))
        indexes |= {index for index in found if index is not None and replicas <= index < most}
    return [ServedGroup(f"{name}-{index}", str(index)) for index in sorted(indexes)]


def _is_rolled_out(lws: JsonObject) -> bool:
    listed = value_at(lws, ("status", "conditions"), [])
    found: Mapping[str, Any] = find(listed, "UpdateInProgress") or {}
    return found.get("status") == "True"


def _surge(lws: JsonObject, replicas: int) -> int:
    path = ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
    text = text_at(lws, *path)
    percent = _number(text.removesuffix("%")) if text.endswith("%") else None
    return replicas_of(lws, *path, default=0) if percent is None else -(-replicas * percent // 100)


def differs(lws: JsonObject, child: JsonObject, _is_elastic: Elastic) -> Difference | None:
    """In what a StatefulSet differs from the one that the controller creates for leaders.

    It has the name of the LeaderWorkerSet, and a replica for each group. The StatefulSets of workers are
    controlled by the pods of their leaders. Nothing follows through these: a StatefulSet whose template lacks
    the marks of a LeaderWorkerSet is queued for itself. Pods with these marks join a group, whose number of
    pods is fixed, as is what each may request.
    """
    if child.get("kind") != "StatefulSet":
        return None
    if name_of(child) != name_of(lws):
        return Difference.IDENTITY
    groups = replicas_of(lws) + _surge(lws, replicas_of(lws))
    template = mapping_at(lws, *(_LEADER if _has_leader(lws) else _WORKER))
    leaders = Pods(mapping_at(child, "spec", "template"), replicas_of(child))
    return differing_pods(leaders, Pods(template, groups))


def mutate(lws: JsonObject, rules: Rules) -> JsonObject:
    """The LeaderWorkerSet with templates whose pods are held, in its queue."""
    names = rules.names
    notes = {names.pod_suspending_parent: HELD_BY, names.pod_group_serving: "true"}
    labels = queue_marks(lws, names)
    result = with_marks(lws, _WORKER, labels, notes)
    if not _has_leader(lws):
        return result
    result = with_marks(result, _LEADER, labels, notes)
    grouped = annotation(mapping_at(lws, *_WORKER), names.podset_group_name)
    if rules.gates.enabled(Gate.TOPOLOGY_AWARE_SCHEDULING) and not grouped:
        # Workers are counted from one; the leader is number zero.
        path = (*_WORKER, "metadata", "annotations", names.pod_index_offset)
        result = with_value(result, path, "1")
    return result


def validate_create(lws: JsonObject, _rules: Rules) -> list[FieldError]:
    """Check the number of groups."""
    found = value_at(lws, ("spec", "replicas"))
    if found is None or 0 <= replicas_of(lws, default=-1) <= _MOST_REPLICAS:
        return []
    return [FieldError.invalid("spec.replicas", found, f"must be between 0 and {_MOST_REPLICAS}")]


def validate_update(old: JsonObject, new: JsonObject, rules: Rules) -> list[FieldError]:
    """Check that the pods of a group stay what quota was reserved for."""
    errors = [*validate_create(new, rules), *queue_removed(old, new, rules)]
    return [*errors, *_changed(old, new, rules)] if rules.is_managed else errors


def _changed(old: JsonObject, new: JsonObject, rules: Rules) -> Iterator[FieldError]:
    for template in (_LEADER, _WORKER):
        yield from shape_changed(old, new, template)
    size = replicas_of(new, *_SIZE)
    if rules.gates.enabled(Gate.LWS_IMMUTABLE_GROUP_SIZE) and replicas_of(old, *_SIZE) != size:
        yield FieldError.invalid(".".join(_SIZE), size, IMMUTABLE, "create the object anew")


LEADER_WORKER_SET = Integration(
    framework="leaderworkerset.x-k8s.io/leaderworkerset",
    group="leaderworkerset.x-k8s.io",
    version="v1",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
    pod_sets=pod_sets,
    finished=lambda _job: None,
    is_active=has_replicas,
    pods_ready=are_all_ready,
    lifecycle=JobLifecycle(suspended=has_no_ready_replicas),
    ownership=KindOwnership(
        creates=frozenset({("", "Service"), ("apps", "StatefulSet"), ("apps", "ControllerRevision")}),
        differs=differs,
        implies=("pod",),
    ),
    webhook=KindWebhook(
        mutate=mutate,
        mutates_updates=True,
        validate_create=validate_create,
        validate_update=validate_update,
    ),
    serving=Serving(
        parent=HELD_BY,
        groups=groups,
        templates=lambda job: (mapping_at(job, *_WORKER),),
        place_of=_place_of,
        role_of=_role_of,
        index_label=_WORKER_INDEX,
    ),
)

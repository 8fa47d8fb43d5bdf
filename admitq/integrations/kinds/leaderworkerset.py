"""LeaderWorkerSet: each of its groups, a leader and its workers, is queued separately.

Scaling and rollouts create and delete groups. Each group has its own Workload (semantics, StatefulSet and
LeaderWorkerSet).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import (
    ChildDifference,
    ElasticityCheck,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    PodIndexLabels,
    PodLocation,
    PodSetTemplate,
    RuleContext,
    ServedGroup,
    Serving,
)
from admitq.integrations.children import PodsOfTemplate, compare_pods, get_name
from admitq.integrations.families.pods import LEADER_WORKER_SET as HELD_BY
from admitq.integrations.families.pods import (
    get_annotation,
    get_label,
    get_mapping,
    get_text,
    is_being_deleted,
)
from admitq.integrations.families.serving import (
    IMMUTABLE,
    are_all_replicas_ready,
    find_queue_removal,
    find_shape_changes,
    get_queue_labels,
    get_replicas,
    has_no_ready_replicas,
    has_replicas,
    with_template_metadata,
)
from admitq_api.conditions import find_condition
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, value_at, with_value, without_value
from admitq_api.labels import Names

_GROUP_TEMPLATE: Final = ("spec", "leaderWorkerTemplate")
_LEADER_TEMPLATE: Final = (*_GROUP_TEMPLATE, "leaderTemplate")
_WORKER_TEMPLATE: Final = (*_GROUP_TEMPLATE, "workerTemplate")
_GROUP_SIZE: Final = (*_GROUP_TEMPLATE, "size")
_MAX_REPLICAS: Final = 1_000_000

_LABEL_PREFIX: Final = "leaderworkerset.sigs.k8s.io/"
_NAME_LABEL: Final = f"{_LABEL_PREFIX}name"
_GROUP_INDEX_LABEL: Final = f"{_LABEL_PREFIX}group-index"
_WORKER_INDEX_LABEL: Final = f"{_LABEL_PREFIX}worker-index"


def _has_leader(lws: JsonObject) -> bool:
    return bool(get_mapping(lws, *_LEADER_TEMPLATE))


def list_pod_sets(lws: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return the podsets of one group: leader and workers, or one podset for all pods."""
    size = max(1, get_replicas(lws, *_GROUP_SIZE))
    if not _has_leader(lws):
        return [_create_pod_set(lws, "main", size, _WORKER_TEMPLATE)]
    leader = _create_pod_set(lws, "leader", 1, _LEADER_TEMPLATE)
    return [leader, _create_pod_set(lws, "worker", size - 1, _WORKER_TEMPLATE)] if size > 1 else [leader]


def _create_pod_set(lws: JsonObject, name: str, count: int, path: tuple[str, ...]) -> PodSetTemplate:
    """Return a podset without the labels that the LeaderWorkerSet controller adds to its template."""
    template: JsonObject = get_mapping(lws, *path)
    for key in get_mapping(template, "metadata", "labels"):
        if str(key).startswith(_LABEL_PREFIX) and key != _NAME_LABEL:
            template = without_value(template, ("metadata", "labels", key))
    return PodSetTemplate(
        name, count, path, template=template, index_labels=PodIndexLabels(_WORKER_INDEX_LABEL)
    )


def _locate_pod(pod: JsonObject) -> PodLocation | None:
    name, index = get_label(pod, _NAME_LABEL), get_label(pod, _GROUP_INDEX_LABEL)
    return PodLocation(name, index) if name and _parse_number(index) is not None else None


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _get_role(lws: JsonObject, pod: JsonObject) -> str:
    if not _has_leader(lws):
        return "main"
    return "leader" if get_label(pod, _WORKER_INDEX_LABEL) == "0" else "worker"


def list_groups(lws: JsonObject, pods: Sequence[JsonObject]) -> list[ServedGroup]:
    """Return a group for each replica, and the groups that a rollout adds temporarily."""
    name, replicas = get_text(lws, "metadata", "name"), get_replicas(lws)
    indexes = set(range(min(replicas, _MAX_REPLICAS)))
    if _is_rollout_in_progress(lws):
        most = replicas + _get_max_surge(lws, replicas)
        numbers = (
            _parse_number(get_label(pod, _GROUP_INDEX_LABEL)) for pod in pods if not is_being_deleted(pod)
        )
        indexes |= {index for index in numbers if index is not None and replicas <= index < most}
    return [ServedGroup(f"{name}-{index}", str(index)) for index in sorted(indexes)]


def _is_rollout_in_progress(lws: JsonObject) -> bool:
    listed = value_at(lws, ("status", "conditions"), [])
    condition: Mapping[str, Any] = find_condition(listed, "UpdateInProgress") or {}
    return condition.get("status") == "True"


def _get_max_surge(lws: JsonObject, replicas: int) -> int:
    path = ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
    text = get_text(lws, *path)
    percent = _parse_number(text.removesuffix("%")) if text.endswith("%") else None
    return get_replicas(lws, *path, default=0) if percent is None else -(-replicas * percent // 100)


def compare_child(lws: JsonObject, child: JsonObject, _is_elastic: ElasticityCheck) -> ChildDifference | None:
    """Return how a StatefulSet differs from the one that the controller creates for the leaders.

    That StatefulSet has the name of the LeaderWorkerSet and a replica for each group. The StatefulSets of
    workers are controlled by the leaders' pods, through which the search for ancestors does not pass. A
    StatefulSet without the marks of a LeaderWorkerSet in its template is queued separately. Pods with these
    marks join a group, which limits their number and their requests.
    """
    if child.get("kind") != "StatefulSet":
        return None
    if get_name(child) != get_name(lws):
        return ChildDifference.IDENTITY
    groups = get_replicas(lws) + _get_max_surge(lws, get_replicas(lws))
    template = get_mapping(lws, *(_LEADER_TEMPLATE if _has_leader(lws) else _WORKER_TEMPLATE))
    leaders = PodsOfTemplate(get_mapping(child, "spec", "template"), get_replicas(child))
    return compare_pods(leaders, PodsOfTemplate(template, groups))


def mutate(lws: JsonObject, context: RuleContext) -> JsonObject:
    """Return the LeaderWorkerSet with templates for held pods of its queue."""
    names = context.names
    notes = {names.pod_suspending_parent: HELD_BY, names.pod_group_serving: "true"}
    labels = get_queue_labels(lws, names)
    result = with_template_metadata(lws, _WORKER_TEMPLATE, labels, notes)
    if not _has_leader(lws):
        return result
    result = with_template_metadata(result, _LEADER_TEMPLATE, labels, notes)
    grouped = get_annotation(get_mapping(lws, *_WORKER_TEMPLATE), names.podset_group_name)
    if context.gates.is_enabled(Gate.TOPOLOGY_AWARE_SCHEDULING) and not grouped:
        # The leader has index 0, and the workers begin with 1.
        path = (*_WORKER_TEMPLATE, "metadata", "annotations", names.pod_index_offset)
        result = with_value(result, path, "1")
    return result


def validate_create(lws: JsonObject, _context: RuleContext) -> list[FieldError]:
    """Return the errors of the number of groups."""
    replicas = value_at(lws, ("spec", "replicas"))
    if replicas is None or 0 <= get_replicas(lws, default=-1) <= _MAX_REPLICAS:
        return []
    return [FieldError.invalid("spec.replicas", replicas, f"must be between 0 and {_MAX_REPLICAS}")]


def validate_update(old: JsonObject, new: JsonObject, context: RuleContext) -> list[FieldError]:
    """Return an error for each change of the pods that quota was reserved for."""
    errors = [*validate_create(new, context), *find_queue_removal(old, new, context)]
    return [*errors, *_find_group_changes(old, new, context)] if context.is_managed else errors


def _find_group_changes(old: JsonObject, new: JsonObject, context: RuleContext) -> Iterator[FieldError]:
    for template in (_LEADER_TEMPLATE, _WORKER_TEMPLATE):
        yield from find_shape_changes(old, new, template)
    size = get_replicas(new, *_GROUP_SIZE)
    if context.gates.is_enabled(Gate.LWS_IMMUTABLE_GROUP_SIZE) and get_replicas(old, *_GROUP_SIZE) != size:
        yield FieldError.invalid(".".join(_GROUP_SIZE), size, IMMUTABLE, "create another object")


LEADER_WORKER_SET = Integration(
    framework="leaderworkerset.x-k8s.io/leaderworkerset",
    group="leaderworkerset.x-k8s.io",
    version="v1",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
    list_pod_sets=list_pod_sets,
    find_outcome=lambda _job: None,
    is_active=has_replicas,
    are_pods_ready=are_all_replicas_ready,
    lifecycle=JobLifecycle(is_suspended=has_no_ready_replicas),
    ownership=KindOwnership(
        created_kinds=frozenset({("", "Service"), ("apps", "StatefulSet"), ("apps", "ControllerRevision")}),
        compare_child=compare_child,
        implied_frameworks=("pod",),
    ),
    webhook=KindWebhook(
        mutate=mutate,
        mutates_updates=True,
        validate_create=validate_create,
        validate_update=validate_update,
    ),
    serving=Serving(
        suspending_parent=HELD_BY,
        list_groups=list_groups,
        list_templates=lambda job: (get_mapping(job, *_WORKER_TEMPLATE),),
        locate_pod=_locate_pod,
        get_role=_get_role,
        index_label=_WORKER_INDEX_LABEL,
    ),
)

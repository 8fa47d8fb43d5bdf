"""StatefulSet: all of its pods are queued together.

Its Workload requests quota for all replicas. admitq then starts the pods one by one, as the StatefulSet
controller creates them. A StatefulSet can only be scaled to zero and back, because quota is reserved for all
replicas (semantics, StatefulSet and LeaderWorkerSet).
"""

from collections.abc import Iterator, Sequence
from typing import Final

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
from admitq.integrations.children import get_name, has_ordinal, is_pod_within, is_selected
from admitq.integrations.families.pods import STATEFUL_SET as HELD_BY
from admitq.integrations.families.pods import get_annotation, get_label, get_mapping, get_text
from admitq.integrations.families.serving import (
    IMMUTABLE,
    are_all_replicas_ready,
    find_queue_removal,
    find_shape_changes,
    get_replicas,
    has_no_ready_replicas,
    has_replicas,
    is_suspended_by,
    with_template_metadata,
)
from admitq.integrations.ownership import get_controller
from admitq.integrations.workload_names import MAX_LABEL_LENGTH, MAX_NAME_LENGTH, create_workload_name
from admitq_api.conditions import ConditionType, Reason, find_condition
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

_TEMPLATE: Final = ("spec", "template")
_REPLICAS: Final = "spec.replicas"
_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_REVISION_LABEL: Final = "controller-revision-hash"


def list_pod_sets(stateful_set: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return one podset of all replicas."""
    indexes = PodIndexLabels(_INDEX_LABEL)
    return [PodSetTemplate("main", get_replicas(stateful_set), _TEMPLATE, index_labels=indexes)]


def _locate_pod(pod: JsonObject) -> PodLocation | None:
    reference = get_controller(pod) or {}
    of_kind = reference.get("apiVersion") == "apps/v1" and reference.get("kind") == "StatefulSet"
    return PodLocation(str(reference.get("name", ""))) if of_kind else None


def _list_groups(stateful_set: JsonObject, _pods: Sequence[JsonObject]) -> tuple[ServedGroup, ...]:
    return (ServedGroup(get_text(stateful_set, "metadata", "name")),)


def is_outdated(stateful_set: JsonObject, pod: JsonObject) -> bool:
    """Whether the pod has an old revision and a rollout will replace it.

    The status must be up to date: an outdated status does not name the newer revision.
    """
    revision, target = get_label(pod, _REVISION_LABEL), get_text(stateful_set, "status", "updateRevision")
    observed = value_at(stateful_set, ("status", "observedGeneration"))
    is_rolled_out = observed == value_at(stateful_set, ("metadata", "generation")) and target != get_text(
        stateful_set, "status", "currentRevision"
    )
    if not is_rolled_out or not revision or not target or revision == target:
        return False
    ordinal = get_label(pod, _INDEX_LABEL) or get_text(pod, "metadata", "name").rpartition("-")[2]
    end = get_replicas(stateful_set, "spec", "ordinals", "start", default=0) + get_replicas(
        stateful_set, "spec", "updateStrategy", "rollingUpdate", "partition", default=0
    )
    rolls = value_at(stateful_set, ("spec", "updateStrategy", "type"), "RollingUpdate") == "RollingUpdate"
    return rolls and ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= 10 and int(ordinal) >= end


def compare_child(
    stateful_set: JsonObject, pod: JsonObject, _is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how a pod differs from those that the StatefulSet controller creates: one for each ordinal."""
    if pod.get("kind") != "Pod":
        return None
    start = get_replicas(stateful_set, "spec", "ordinals", "start", default=0)
    is_named = has_ordinal(get_name(pod), get_name(stateful_set), get_replicas(stateful_set), start)
    if not is_named or not is_selected(stateful_set, pod):
        return ChildDifference.IDENTITY
    return None if is_pod_within(pod, get_mapping(stateful_set, *_TEMPLATE)) else ChildDifference.REQUESTS


def mutate(stateful_set: JsonObject, context: RuleContext) -> JsonObject:
    """Return the StatefulSet with a template for held pods, unless its owner already holds them."""
    names = context.names
    if get_annotation(get_mapping(stateful_set, *_TEMPLATE), names.pod_suspending_parent):
        return stateful_set
    return with_template_metadata(stateful_set, _TEMPLATE, {}, {names.pod_suspending_parent: HELD_BY})


def list_deciding_workloads(old: JsonObject, new: JsonObject, context: RuleContext) -> tuple[str, ...]:
    """Return the names of the Workload that must have released its quota before the StatefulSet scales up."""
    metadata = get_mapping(old, "metadata")
    if not context.is_managed or not _scales_up_from_zero(old, new):
        return ()
    longest = MAX_LABEL_LENGTH if context.gates.is_enabled(Gate.SHORT_WORKLOAD_NAMES) else MAX_NAME_LENGTH
    name, uid = str(metadata.get("name", "")), str(metadata.get("uid", ""))
    return tuple(
        create_workload_name("StatefulSet", "apps", name, owner_uid, longest=longest)
        for owner_uid in (uid, "")
    )


def _scales_up_from_zero(old: JsonObject, new: JsonObject) -> bool:
    return get_replicas(old) == 0 < get_replicas(new)


def validate_update(old: JsonObject, new: JsonObject, context: RuleContext) -> list[FieldError]:
    """Return an error for each change of the pods that quota was reserved for, and for invalid scaling."""
    errors = [*find_queue_removal(old, new, context)]
    was_held = is_suspended_by(get_mapping(new, *_TEMPLATE), HELD_BY, context.names)
    if context.is_managed and was_held:
        errors += [*find_shape_changes(old, new, _TEMPLATE), *_find_scaling_errors(old, new, context)]
    return errors


def _find_scaling_errors(old: JsonObject, new: JsonObject, context: RuleContext) -> Iterator[FieldError]:
    before, after = get_replicas(old), get_replicas(new)
    if before and after and before != after:
        yield FieldError.invalid(_REPLICAS, after, IMMUTABLE, "scale to zero first")
    if not _scales_up_from_zero(old, new):
        return
    if has_replicas(old):
        yield FieldError.forbidden(
            _REPLICAS, "scaling down is still in progress", "wait until all pods are gone"
        )
    elif context.deciding_workload is not None and not _has_released_quota(context.deciding_workload):
        yield FieldError.forbidden(
            _REPLICAS, "workload from previous scale-down is still being deleted", "wait a moment"
        )


def _has_released_quota(workload: JsonObject) -> bool:
    """Whether the Workload is on hold or deactivated, so that it has no quota."""
    quota = (
        find_condition(value_at(workload, ("status", "conditions"), []), ConditionType.QUOTA_RESERVED) or {}
    )
    return quota.get("status") == "False" and quota.get("reason") in {Reason.ON_HOLD, Reason.DEACTIVATED}


STATEFUL_SET = Integration(
    framework="statefulset",
    group="apps",
    version="v1",
    kind="StatefulSet",
    plural="statefulsets",
    list_pod_sets=list_pod_sets,
    find_outcome=lambda _job: None,
    is_active=has_replicas,
    are_pods_ready=are_all_replicas_ready,
    lifecycle=JobLifecycle(
        is_suspended=has_no_ready_replicas,
        is_on_hold=lambda job: get_replicas(job) == 0,
    ),
    ownership=KindOwnership(
        created_kinds=frozenset({("", "Pod"), ("", "PersistentVolumeClaim"), ("apps", "ControllerRevision")}),
        compare_child=compare_child,
        implied_frameworks=("pod",),
    ),
    webhook=KindWebhook(
        mutate=mutate,
        mutates_updates=True,
        checks_templates_only_if_managed=True,
        list_deciding_workloads=list_deciding_workloads,
        scale_field=("spec", "replicas"),
        validate_update=validate_update,
    ),
    serving=Serving(
        suspending_parent=HELD_BY,
        list_groups=_list_groups,
        list_templates=lambda job: (get_mapping(job, *_TEMPLATE),),
        locate_pod=_locate_pod,
        index_label=_INDEX_LABEL,
        is_outdated=is_outdated,
        on_hold_message="StatefulSet scaled to zero; workload on hold",
        may_have_name_without_uid=True,
    ),
)

"""StatefulSet: all of its pods are queued together.

Its Workload asks for all replicas at once; the pods are then started one by one, as the StatefulSet makes
them. It can be scaled to zero and back only, for quota was reserved for all of them (semantics, StatefulSet
and LeaderWorkerSet).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from admitq.integrations.base import (
    Difference,
    Elastic,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    PodPlace,
    PodSetTemplate,
    Rules,
    ServedGroup,
    Serving,
)
from admitq.integrations.children import has_ordinal, is_pod_within, is_selected, name_of
from admitq.integrations.families.pods import STATEFUL_SET as HELD_BY
from admitq.integrations.families.pods import annotation, label, mapping_at, text_at
from admitq.integrations.families.serving import (
    IMMUTABLE,
    are_all_ready,
    has_no_ready_replicas,
    has_replicas,
    is_held_for,
    queue_removed,
    replicas_of,
    shape_changed,
    with_marks,
)
from admitq.integrations.ownership import controller_of
from admitq.integrations.workload_names import LONGEST, LONGEST_LABEL, workload_name
from admitq_api.conditions import ConditionType, Reason, find
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

_TEMPLATE: Final = ("spec", "template")
_REPLICAS: Final = "spec.replicas"
_INDEX: Final = "apps.kubernetes.io/pod-index"
_REVISION: Final = "controller-revision-hash"


def pod_sets(stateful_set: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """One podset of all replicas."""
    return [PodSetTemplate("main", replicas_of(stateful_set), _TEMPLATE)]


def _place_of(pod: JsonObject) -> PodPlace | None:
    reference = controller_of(pod) or {}
    of_kind = reference.get("apiVersion") == "apps/v1" and reference.get("kind") == "StatefulSet"
    return PodPlace(str(reference.get("name", ""))) if of_kind else None


def _groups(stateful_set: JsonObject, _pods: Sequence[JsonObject]) -> tuple[ServedGroup, ...]:
    return (ServedGroup(text_at(stateful_set, "metadata", "name")),)


def is_outdated(stateful_set: JsonObject, pod: JsonObject) -> bool:
    """Whether the pod is of an old revision and its replica is to be of the new one.

    Only while a rollout is known to be under way: a status that is behind knows no newer revision.
    """
    revision, wanted = label(pod, _REVISION), text_at(stateful_set, "status", "updateRevision")
    observed = value_at(stateful_set, ("status", "observedGeneration"))
    is_rolled_out = observed == value_at(stateful_set, ("metadata", "generation")) and wanted != text_at(
        stateful_set, "status", "currentRevision"
    )
    if not is_rolled_out or not revision or not wanted or revision == wanted:
        return False
    ordinal = label(pod, _INDEX) or text_at(pod, "metadata", "name").rpartition("-")[2]
    kept = replicas_of(stateful_set, "spec", "ordinals", "start", default=0) + replicas_of(
        stateful_set, "spec", "updateStrategy", "rollingUpdate", "partition", default=0
    )
    rolls = value_at(stateful_set, ("spec", "updateStrategy", "type"), "RollingUpdate") == "RollingUpdate"
    return rolls and ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= 10 and int(ordinal) >= kept


def differs(stateful_set: JsonObject, pod: JsonObject, _is_elastic: Elastic) -> Difference | None:
    """In what a pod differs from those that the StatefulSet controller creates: one for each ordinal."""
    if pod.get("kind") != "Pod":
        return None
    start = replicas_of(stateful_set, "spec", "ordinals", "start", default=0)
    is_named = has_ordinal(name_of(pod), name_of(stateful_set), replicas_of(stateful_set), start)
    if not is_named or not is_selected(stateful_set, pod):
        return Difference.IDENTITY
    return None if is_pod_within(pod, mapping_at(stateful_set, *_TEMPLATE)) else Difference.REQUESTS


def mutate(stateful_set: JsonObject, rules: Rules) -> JsonObject:
    """The StatefulSet with a template whose pods are held; one that a larger whole has held stays so."""
    names = rules.names
    if annotation(mapping_at(stateful_set, *_TEMPLATE), names.pod_suspending_parent):
        return stateful_set
    return with_marks(stateful_set, _TEMPLATE, {}, {names.pod_suspending_parent: HELD_BY})


def workload_asked(old: JsonObject, new: JsonObject, rules: Rules) -> tuple[str, ...]:
    """Names of the Workload that has to have let go of its quota before pods come back."""
    metadata = mapping_at(old, "metadata")
    if not rules.is_managed or not _comes_back(old, new):
        return ()
    longest = LONGEST_LABEL if rules.gates.enabled(Gate.SHORT_WORKLOAD_NAMES) else LONGEST
    name, uid = str(metadata.get("name", "")), str(metadata.get("uid", ""))
    return tuple(workload_name("StatefulSet", "apps", name, one, longest=longest) for one in (uid, ""))


def _comes_back(old: JsonObject, new: JsonObject) -> bool:
    return replicas_of(old) == 0 < replicas_of(new)


def validate_update(old: JsonObject, new: JsonObject, rules: Rules) -> list[FieldError]:
    """Check that the pods stay what quota was reserved for, and that they go before they come back."""
    errors = [*queue_removed(old, new, rules)]
    held = is_held_for(mapping_at(new, *_TEMPLATE), HELD_BY, rules.names)
    if rules.is_managed and held:
        errors += [*shape_changed(old, new, _TEMPLATE), *_scaled(old, new, rules)]
    return errors


def _scaled(old: JsonObject, new: JsonObject, rules: Rules) -> Iterator[FieldError]:
    before, after = replicas_of(old), replicas_of(new)
    if before and after and before != after:
        yield FieldError.invalid(_REPLICAS, after, IMMUTABLE, "scale to zero first")
    if not _comes_back(old, new):
        return
    if has_replicas(old):
        yield FieldError.forbidden(
            _REPLICAS, "scaling down is still in progress", "wait until all pods are gone"
        )
    elif rules.workload is not None and not _has_let_go(rules.workload):
        yield FieldError.forbidden(
            _REPLICAS, "workload from previous scale-down is still being deleted", "wait a moment"
        )


def _has_let_go(workload: JsonObject) -> bool:
    """Whether the Workload is on hold; of one that is deactivated, only that is told."""
    quota = find(value_at(workload, ("status", "conditions"), []), ConditionType.QUOTA_RESERVED) or {}
    return quota.get("status") == "False" and quota.get("reason") in {Reason.ON_HOLD, Reason.DEACTIVATED}


STATEFUL_SET = Integration(
    framework="statefulset",
    group="apps",
    version="v1",
    kind="StatefulSet",
    plural="statefulsets",
    pod_sets=pod_sets,
    finished=lambda _job: None,
    is_active=has_replicas,
    pods_ready=are_all_ready,
    lifecycle=JobLifecycle(
        suspended=has_no_ready_replicas,
        is_on_hold=lambda job: replicas_of(job) == 0,
    ),
    ownership=KindOwnership(
        creates=frozenset({("", "Pod"), ("", "PersistentVolumeClaim"), ("apps", "ControllerRevision")}),
        differs=differs,
        implies=("pod",),
    ),
    webhook=KindWebhook(
        mutate=mutate,
        mutates_updates=True,
        workload_asked=workload_asked,
        scaled_at=("spec", "replicas"),
        validate_update=validate_update,
    ),
    serving=Serving(
        parent=HELD_BY,
        groups=_groups,
        templates=lambda job: (mapping_at(job, *_TEMPLATE),),
        place_of=_place_of,
        index_label=_INDEX,
        is_outdated=is_outdated,
        on_hold="StatefulSet scaled to zero; workload on hold",
        is_found_without_uid=True,
    ),
)

"""Plain pods and groups of pods, which a scheduling gate holds and which a stop deletes.

A pod without a group is a job. Pods that name the same group are one job. It waits until all pods of the
group exist, is started pod by pod, and failed pods can be replaced. A finalizer keeps each pod until admitq
has recorded its end (semantics, Per kind: Pod; Pods and pod groups).
"""

from typing import Any, Final

from admitq.integrations.base import (
    ChildDifference,
    Composition,
    Delegation,
    ElasticityCheck,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWatch,
    KindWebhook,
    RuleContext,
    Scaling,
)
from admitq.integrations.families import pod_groups, pods
from admitq.integrations.families.pod_cache import trim_pod
from admitq.integrations.ownership import list_prebuilt_names
from admitq.integrations.pod_shape import compute_role_hash
from admitq.integrations.references import OwnerKind
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import ErrorPath, FieldError, select_new_errors
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.labels import Names
from admitq_api.syntax import check_dns_subdomain

_GATES: Final = ("spec", "schedulingGates")
_FINALIZERS: Final = ("metadata", "finalizers")
_LABELS: Final = ("metadata", "labels")
_ANNOTATIONS: Final = ("metadata", "annotations")
_SPARK_ROLE_LABEL: Final = "spark-role"
_SPARK_APP_LABEL: Final = "spark-app-selector"


def is_member(pod: JsonObject, names: Names) -> bool:
    """Whether the pod is queued. Only its managed label decides.

    A pod with a parent that queues its pods in groups is a member as soon as it names its group.
    """
    return pods.is_managed(pod, names) and not pods.awaits_group(pod, names)


def is_reviewed_by_webhook(pod: JsonObject, names: Names) -> bool:
    """Whether the webhook held the pod, which then has a role hash, or its parent has it queued."""
    return pods.get_annotation(pod, names.role_hash) != "" or pods.is_suspended_by_parent(pod, names)


def compare_child(
    driver: JsonObject, pod: JsonObject, _is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how a pod differs from those that a pod creates: a Spark driver creates its executors."""
    app = pods.get_label(driver, _SPARK_APP_LABEL)
    roles = pods.get_label(driver, _SPARK_ROLE_LABEL), pods.get_label(pod, _SPARK_ROLE_LABEL)
    is_executor = (
        app != "" and app == pods.get_label(pod, _SPARK_APP_LABEL) and roles == ("driver", "executor")
    )
    return None if is_executor else ChildDifference.IDENTITY


# --- admission --------------------------------------------------------------------------------------


def mutate(pod: JsonObject, context: RuleContext) -> JsonObject:
    """Return the pod with the managed label, its gates, a finalizer and its role.

    A role that the pod already has is kept: it names the podset of a prebuilt Workload.
    """
    names = context.names
    result = with_value(pod, (*_LABELS, names.managed), "true")
    if not pods.is_suspended_by_parent(pod, names):
        result = _with_item(result, _FINALIZERS, names.managed_finalizer)
    result = _with_item(result, _GATES, {"name": names.admission_gate})
    if context.gates.is_enabled(Gate.TOPOLOGY_AWARE_SCHEDULING):
        result = _with_item(result, _GATES, {"name": names.topology_gate})
        index_label = pods.get_annotation(pod, names.pod_group_pod_index_label)
        if index := pods.get_label(pod, index_label):
            result = with_value(result, (*_LABELS, names.pod_group_pod_index), index)
    role = pods.get_annotation(pod, names.role_hash) or compute_role_hash(pods.get_mapping(pod, "spec"))
    return with_value(result, (*_ANNOTATIONS, names.role_hash), role)


def _with_item(pod: JsonObject, path: tuple[str, ...], item: Any) -> JsonObject:
    value = value_at(pod, path, [])
    items: list[Any] = value if isinstance(value, list) else []
    return pod if item in items else with_value(pod, path, [*items, item])


def validate_create(pod: JsonObject, context: RuleContext) -> list[FieldError]:
    """Return the errors of the managed label and of the labels and annotations of the group."""
    names = context.names
    value = value_at(pod, (*_LABELS, names.managed))
    if value is None:
        return []
    if value != "true":
        return [FieldError.invalid(_label_path(names.managed), value, 'can only be "true"')]
    return [*_find_group_errors(pod, names), *_find_prebuilt_errors(pod, context)]


def _label_path(key: str) -> ErrorPath:
    return ErrorPath("metadata.labels").key(key)


def _annotation_path(key: str) -> ErrorPath:
    return ErrorPath("metadata.annotations").key(key)


def _group_path(pod: JsonObject, names: Names) -> ErrorPath:
    key = names.pod_group_name
    return _annotation_path(key) if pods.get_annotation(pod, key) else _label_path(key)


def _find_group_errors(pod: JsonObject, names: Names) -> list[FieldError]:
    group, total = pods.get_pod_group(pod, names), value_at(pod, (*_ANNOTATIONS, names.pod_group_total_count))
    where, name_key = _annotation_path(names.pod_group_total_count), names.pod_group_name
    place = "annotation" if pods.get_annotation(pod, name_key) else "label"
    both = f"both the '{names.pod_group_total_count}' annotation and the '{name_key}' {place} should be set"
    errors: list[FieldError] = []
    if group and (problem := check_dns_subdomain(group)):
        errors.append(FieldError.invalid(_group_path(pod, names), group, problem))
    if group and total is None:
        errors.append(FieldError.required(where, both))
    if total is not None and not group:
        errors.append(FieldError.required(_label_path(name_key), both))
    if total is not None and pods.parse_positive_int(total) is None:
        errors.append(FieldError.invalid(where, total, "must be a whole number, at least 1"))
    return errors


def _find_prebuilt_errors(pod: JsonObject, context: RuleContext) -> list[FieldError]:
    group, key = pods.get_pod_group(pod, context.names), context.names.prebuilt_workload_name
    by_annotation = context.gates.is_enabled(Gate.WORKLOAD_IDENTIFIER_ANNOTATIONS)
    places = list_prebuilt_names(pod, context.names, by_annotation=by_annotation)
    place, prebuilt = next((item for item in places if item[1]), ("", ""))
    if not group or not prebuilt or prebuilt == group:
        return []
    where = _annotation_path(key) if place == "annotations" else _label_path(key)
    return [FieldError.invalid(where, prebuilt, "prebuilt workload and pod group should be equal")]


def validate_update(old: JsonObject, new: JsonObject, context: RuleContext) -> list[FieldError]:
    """Return the errors that an update adds. The group is immutable, and an unretriable pod must stay so.

    The webhook protects admitq's marks, such as the role, for all kinds alike. Invalid pods that were stored
    while the webhook was not installed can still be released from their gates.
    """
    names = context.names
    errors = select_new_errors(validate_create(new, context), validate_create(old, context))
    before, after = pods.get_pod_group(old, names), pods.get_pod_group(new, names)
    if before and before != after:
        errors.append(FieldError.invalid(_group_path(old, names), after, "field is immutable"))
    key = names.retriable_in_group
    if pods.get_annotation(old, key) == "false" and pods.get_annotation(new, key) != "false":
        errors.append(
            FieldError.forbidden(
                _annotation_path(key),
                "unretriable pod group can't be converted to retriable",
                'leave it "false"',
            )
        )
    return errors


POD = Integration(
    framework="pod",
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    list_pod_sets=pod_groups.list_pod_sets,
    find_outcome=pod_groups.find_outcome,
    is_active=pod_groups.is_active,
    are_pods_ready=pod_groups.are_pods_ready,
    lifecycle=JobLifecycle(
        is_suspended=pod_groups.is_suspended,
        patches_status=True,
    ),
    scaling=Scaling(count_reclaimable_pods=pod_groups.count_reclaimable_pods),
    ownership=KindOwnership(
        is_held_by_parent=pods.is_suspended_by_parent,
        intermediate_owners=(OwnerKind("apps", "v1", "ReplicaSet"),),
        created_kinds=frozenset({("", "Pod")}),
        compare_child=compare_child,
        # The Workload of a Spark driver that is queued as a pod has quota for the driver only.
        covers_children=False,
    ),
    delegation=Delegation(adopts_prebuilt_workload=True),
    webhook=KindWebhook(
        mutate=mutate,
        validate_create=validate_create,
        validate_update=validate_update,
    ),
    watch=KindWatch(
        get_label_selector=lambda names: f"{names.managed}=true",
        trim_for_cache=trim_pod,
    ),
    composition=Composition(
        is_member=is_member,
        is_reviewed_by_webhook=is_reviewed_by_webhook,
        get_group=pods.get_pod_group,
        compose=pod_groups.compose,
        find_problem=pod_groups.find_problem,
        is_equivalent=pod_groups.is_equivalent,
        get_pod_set=pod_groups.get_pod_set,
        list_startable=pod_groups.list_startable,
        without_gates=pod_groups.without_gates,
        list_stoppable=pod_groups.list_stoppable,
        mark_for_termination=pods.mark_for_termination,
        list_excess=pod_groups.list_excess,
        list_replaced=pod_groups.list_replaced,
        needs_more_members=pod_groups.needs_more_members,
        get_finalizer=lambda names: names.managed_finalizer,
    ),
)

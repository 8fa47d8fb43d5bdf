"""Deployment: each of its pods is queued separately.

Scaling only creates and deletes pods. So admitq only manages the pods (semantics, Per kind: Deployment).
"""

from typing import Final

from admitq.integrations.admission_gates import list_gates
from admitq.integrations.base import (
    ChildDifference,
    ElasticityCheck,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    PodSetTemplate,
    RuleContext,
    Serving,
)
from admitq.integrations.children import get_name, is_selected
from admitq.integrations.families.pods import DEPLOYMENT as HELD_BY
from admitq.integrations.families.pods import get_label, get_mapping
from admitq.integrations.families.serving import (
    find_queue_removal,
    get_queue_labels,
    has_no_ready_replicas,
    has_replicas,
    with_template_metadata,
)
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, with_value, without_value

_TEMPLATE: Final = ("spec", "template")
_HASH_LABEL: Final = "pod-template-hash"


def mutate(deployment: JsonObject, context: RuleContext) -> JsonObject:
    """Return the Deployment with a template for held pods of the Deployment's queue."""
    names = context.names
    labels = {names.managed: "true", **get_queue_labels(deployment, names)}
    suspended = with_template_metadata(deployment, _TEMPLATE, labels, {names.pod_suspending_parent: HELD_BY})
    return (
        _with_admission_gates(suspended, context)
        if context.gates.is_enabled(Gate.ADMISSION_GATED_BY)
        else suspended
    )


def _with_admission_gates(deployment: JsonObject, context: RuleContext) -> JsonObject:
    """Return the Deployment with its admission gates on its pod template, without gates that were removed."""
    names = context.names
    own, had = list_gates(deployment, names), list_gates(context.stored_object or {}, names)
    of_pods = list_gates(get_mapping(deployment, *_TEMPLATE), names)
    remaining = [gate for gate in of_pods if gate in own or gate not in had]
    gates = [*remaining, *(gate for gate in own if gate not in remaining)]
    path = (*_TEMPLATE, "metadata", "annotations", names.admission_gated_by)
    if gates == of_pods:
        return deployment
    return with_value(deployment, path, ",".join(gates)) if gates else without_value(deployment, path)


def compare_child(
    deployment: JsonObject, replica_set: JsonObject, _is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how a ReplicaSet differs in name and labels from those that the Deployment controller creates.

    Its pods are not compared, because each pod is queued with its own requests.
    """
    suffix = get_label(replica_set, _HASH_LABEL)
    is_named = bool(suffix) and get_name(replica_set) == f"{get_name(deployment)}-{suffix}"
    return None if is_named and is_selected(deployment, replica_set) else ChildDifference.IDENTITY


DEPLOYMENT = Integration(
    framework="deployment",
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    list_pod_sets=lambda _job, _names: (),
    find_outcome=lambda _job: None,
    is_active=has_replicas,
    are_pods_ready=lambda _job: False,
    lifecycle=JobLifecycle(is_suspended=has_no_ready_replicas),
    ownership=KindOwnership(
        created_kinds=frozenset({("apps", "ReplicaSet")}),
        compare_child=compare_child,
        implied_frameworks=("pod",),
    ),
    webhook=KindWebhook(
        mutate=mutate,
        mutates_updates=True,
        list_checked_templates=lambda _job, _names: (PodSetTemplate("main", 1, _TEMPLATE),),
        checks_templates_only_if_managed=True,
        validate_update=lambda old, new, context: [*find_queue_removal(old, new, context)],
    ),
    serving=Serving(suspending_parent=HELD_BY),
)

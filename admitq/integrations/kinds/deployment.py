"""Deployment: each of its pods is queued by itself.

Scaling only changes which pods there are, so that nothing but the pods is ever looked at (semantics, Per
kind: Deployment).
"""

from typing import Final

from admitq.integrations.admission_gates import gates_of
from admitq.integrations.base import (
    Difference,
    Elastic,
    Integration,
    JobLifecycle,
    KindOwnership,
    KindWebhook,
    Rules,
    Serving,
)
from admitq.integrations.children import is_selected, name_of
from admitq.integrations.families.pods import DEPLOYMENT as HELD_BY
from admitq.integrations.families.pods import label, mapping_at
from admitq.integrations.families.serving import (
    has_no_ready_replicas,
    has_replicas,
    queue_marks,
    queue_removed,
    with_marks,
)
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, with_value, without_value

_TEMPLATE: Final = ("spec", "template")
_HASH: Final = "pod-template-hash"


def mutate(deployment: JsonObject, rules: Rules) -> JsonObject:
    """The Deployment with a template whose pods are held, each in the Deployment's queue."""
    names = rules.names
    labels = {names.managed: "true", **queue_marks(deployment, names)}
    held = with_marks(deployment, _TEMPLATE, labels, {names.pod_suspending_parent: HELD_BY})
    return _with_gates(held, rules) if rules.gates.enabled(Gate.ADMISSION_GATED_BY) else held


def _with_gates(deployment: JsonObject, rules: Rules) -> JsonObject:
    """The Deployment with its admission gates on its pods, and without those that were taken off it."""
    names = rules.names
    own, had = gates_of(deployment, names), gates_of(rules.before or {}, names)
    of_pods = gates_of(mapping_at(deployment, *_TEMPLATE), names)
    left = [gate for gate in of_pods if gate in own or gate not in had]
    wanted = [*left, *(gate for gate in own if gate not in left)]
    path = (*_TEMPLATE, "metadata", "annotations", names.admission_gated_by)
    if wanted == of_pods:
        return deployment
    return with_value(deployment, path, ",".join(wanted)) if wanted else without_value(deployment, path)


def differs(deployment: JsonObject, replica_set: JsonObject, _is_elastic: Elastic) -> Difference | None:
    """In what a ReplicaSet differs from those that the Deployment controller creates: names and labels.

    Its pods are not compared, for each of them is queued by what it requests itself.
    """
    suffix = label(replica_set, _HASH)
    is_named = bool(suffix) and name_of(replica_set) == f"{name_of(deployment)}-{suffix}"
    return None if is_named and is_selected(deployment, replica_set) else Difference.IDENTITY


DEPLOYMENT = Integration(
    framework="deployment",
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    pod_sets=lambda _job, _names: (),
    finished=lambda _job: None,
    is_active=has_replicas,
    pods_ready=lambda _job: False,
    lifecycle=JobLifecycle(suspended=has_no_ready_replicas),
    ownership=KindOwnership(
        creates=frozenset({("apps", "ReplicaSet")}),
        differs=differs,
        implies=("pod",),
    ),
    webhook=KindWebhook(
        mutate=mutate,
        mutates_updates=True,
        validate_update=lambda old, new, rules: [*queue_removed(old, new, rules)],
    ),
    serving=Serving(parent=HELD_BY),
)

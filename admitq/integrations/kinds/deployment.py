"""Deployment: each of its pods is queued by itself.

Scaling only changes which pods there are, so that nothing but the pods is ever looked at (semantics, Per
kind: Deployment).
"""

from typing import Final

from admitq.integrations.base import Integration, Rules, Serving
from admitq.integrations.paths import Object, value_at
from admitq.integrations.pods import DEPLOYMENT as HELD_BY
from admitq.integrations.serving import has_no_ready_replicas, queue_marks, queue_removed, with_marks

_TEMPLATE: Final = ("spec", "template")


def mutate(deployment: Object, rules: Rules) -> Object:
    """The Deployment with a template whose pods are held, each in the Deployment's queue."""
    names = rules.names
    labels = {names.managed: "true", **queue_marks(deployment, names)}
    return with_marks(deployment, _TEMPLATE, labels, {names.pod_suspending_parent: HELD_BY})


DEPLOYMENT = Integration(
    framework="deployment",
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    pod_sets=lambda _job, _names: (),
    finished=lambda _job: None,
    is_active=lambda job: bool(value_at(job, ("status", "replicas"))),
    pods_ready=lambda _job: False,
    suspended=has_no_ready_replicas,
    serving=Serving(parent=HELD_BY),
    creates=frozenset({("apps", "ReplicaSet")}),
    implies=("pod",),
    mutate=mutate,
    mutates_updates=True,
    validate_update=lambda old, new, rules: [*queue_removed(old, new, rules)],
)

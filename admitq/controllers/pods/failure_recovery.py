"""Pods that hang on nodes nobody can reach: those that opted in are made Failed and deleted by force.

A pod that was deleted goes when the kubelet of its node says that it has ended. Where the node cannot be
reached nobody says so: the pod goes on terminating, holds its quota, and what should replace it waits. Only
whoever made the pod can know that it may as well still run there without doing harm, and says so by an
annotation (semantics, Misc).

Pods without the annotation are watched too, since it cannot be selected by; nothing is kept of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec, FollowedResource, Watch, WhenServed
from admitq.controllers.plan import (
    NO_ACTIONS,
    ActionPlan,
    Delete,
    Patch,
    RecordEvent,
    RecordMetric,
    execute_plan,
    plan_of,
)
from admitq.controllers.settings import Nanoseconds
from admitq.core.model import SECOND, Instant
from admitq.integrations.base import PatchStep
from admitq.integrations.families import pods
from admitq.runtime.resources import NODES, PODS, Resource
from admitq.runtime.store import Change, Key
from admitq_api.conditions import with_condition
from admitq_api.json_objects import JsonObject, create_merge_patch, select_fields, value_at
from admitq_api.labels import Names

FAILURE_RECOVERY: Final = "failurerecovery"
"""Name of the controller."""

PLACED_PODS: Final = Resource(
    PODS.group, PODS.version, PODS.plural, PODS.kind, PODS.namespaced, view="on a node"
)
"""All pods that have a node: whoever else watches pods watches others."""

CONCERN: Final = "failure-recovery"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"

BY_NODE: Final = "node"

WORKERS: Final = 4


@dataclass(frozen=True, slots=True)
class HangingPodCase:
    """A pod, the node that it is on (None if that is gone), and how long it may hang there."""

    pod: JsonObject
    node: JsonObject | None
    names: Names
    delay: Nanoseconds
    now: Instant


def delete_hanging_pod(case: HangingPodCase) -> ActionPlan:
    """Delete a pod that opted in, should have ended long ago, and whose node cannot be reached.

    It is made Failed first: whoever waits for its end may go by that, where a finalizer holds the pod. A pod
    whose node is gone altogether is Kubernetes' own business, which deletes it.
    """
    pod = case.pod
    grace_ends = pods.get_grace_period_end(pod)
    if not _has_opted_in(pod, case.names) or grace_ends is None or not is_unreachable(case.node):
        return NO_ACTIONS
    if (left := grace_ends + case.delay - case.now) >= 0:
        # Not before that has passed, so that the next look comes after it.
        return ActionPlan(requeue_after=(left + 1) / SECOND)
    has_ended, is_forced = pods.has_ended(pod), _was_deleted_by_force(pod)
    if has_ended and is_forced:
        return NO_ACTIONS
    seconds = (case.now - grace_ends) // SECOND
    node = value_at(case.node, ("metadata", "name"), "")
    note = f"Pod was still terminating {seconds}s after its grace period, and node {node} is unreachable"
    failed = PatchStep(create_merge_patch(pod, _failed_pod(pod, note, case)), "status")
    return plan_of(
        None if has_ended else Patch(PLACED_PODS, pod, (failed,), CONCERN),
        None if is_forced else Delete(PLACED_PODS, pod, by_force=True),
        RecordEvent(pod, "Warning", f"{case.names.product_in_reasons}ForcefulTermination", note),
        RecordMetric(lambda metrics, _: metrics.pod_forcefully_deleted()),
    )


def _has_opted_in(pod: JsonObject, names: Names) -> bool:
    return pods.get_annotation(pod, names.safe_to_forcefully_delete) == "true"


def is_unreachable(node: JsonObject | None) -> bool:
    """Whether the node is marked as one that its kubelet does not report from."""
    taints = value_at(node, ("spec", "taints"), [])
    return isinstance(taints, list) and any(value_at(one, ("key",)) == UNREACHABLE for one in taints)


def _was_deleted_by_force(pod: JsonObject) -> bool:
    """Whether nobody asks the node any more, so that only finalizers hold the pod."""
    return value_at(pod, ("metadata", "deletionGracePeriodSeconds")) == 0


def _failed_pod(pod: JsonObject, message: str, case: HangingPodCase) -> JsonObject:
    told = with_condition(
        [one for one in pods.list_conditions(pod) if isinstance(one, Mapping)],
        type=f"{case.names.product_in_reasons}FailureRecovery",
        status=True,
        reason=f"{case.names.product_in_reasons}ForcefullyDeleted",
        message=message,
        now=case.now,
    )
    return {**pod, "status": {**pods.get_mapping(pod, "status"), "phase": "Failed", "conditions": told}}


# --- watching -------------------------------------------------------------------------------------


def slim_pod(pod: JsonObject, names: Names) -> dict[str, Any]:
    """What is asked of a pod that opted in; of others no more than a store must have."""
    identity = ("name", "namespace", "uid", "resourceVersion")
    metadata = pods.get_mapping(pod, "metadata")
    if not _has_opted_in(pod, names):
        return {"metadata": select_fields(metadata, identity)}
    kept = (*identity, "annotations", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds")
    status = pods.get_mapping(pod, "status")
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": select_fields(metadata, kept),
        "spec": {"nodeName": pods.get_text(pod, "spec", "nodeName")},
        "status": select_fields(status, ("phase", "conditions")),
    }


def slim_node(node: JsonObject) -> dict[str, Any]:
    """What is asked of a node: its name and its taints."""
    identity = ("name", "uid", "resourceVersion")
    metadata = pods.get_mapping(node, "metadata")
    return {
        "metadata": select_fields(metadata, identity),
        "spec": {"taints": value_at(node, ("spec", "taints"), [])},
    }


def _node_of_terminating(pod: JsonObject) -> Iterator[str]:
    if pods.is_being_deleted(pod) and (node := pods.get_text(pod, "spec", "nodeName")):
        yield node


class FailureRecoveryController:
    """Works on one pod at a time."""

    def __init__(self, ctx: Context, delay: Nanoseconds) -> None:
        self._ctx = ctx
        self._delay = delay

    async def reconcile(self, key: Key) -> float | None:
        """Delete a pod if it is to be; returns in how many seconds to look again.

        Raises:
            ApiError: a write failed.
        """
        ctx = self._ctx
        placed, nodes = ctx.stores.find(PLACED_PODS), ctx.stores.find(NODES)
        pod = None if placed is None else placed.get(*key)
        if pod is None or nodes is None:
            return None
        node = nodes.get("", pods.get_text(pod, "spec", "nodeName"))
        return await execute_plan(
            ctx, delete_hanging_pod(HangingPodCase(pod, node, ctx.names, self._delay, ctx.clock()))
        )

    def when_served(self) -> WhenServed:
        """The controller as whoever runs it takes it."""
        names = self._ctx.names
        spec = ControllerSpec(
            name=FAILURE_RECOVERY,
            reconcile=self.reconcile,
            watches=(Watch(PLACED_PODS, _key_if_terminating), Watch(NODES, self._on_node)),
            workers=WORKERS,
        )
        return WhenServed(
            PLACED_PODS,
            {BY_NODE: _node_of_terminating},
            spec,
            follows=(FollowedResource(NODES, slim_node),),
            field_selector="spec.nodeName!=",
            transform=lambda pod: slim_pod(pod, names),
        )

    def _on_node(self, change: Change) -> Iterable[Key]:
        """Pods that hang on a node which came to be unreachable."""
        placed = self._ctx.stores.find(PLACED_PODS)
        if placed is None or not is_unreachable(change.new) or is_unreachable(change.old):
            return ()
        return placed.keys_by_index(BY_NODE, change.key.name)


def _key_if_terminating(change: Change) -> tuple[Key, ...]:
    return (change.key,) if change.new is not None and pods.is_being_deleted(change.new) else ()

"""The controller of failure recovery: fails and force-deletes pods that hang on unreachable nodes.

The API server removes a deleted pod when the kubelet reports that the pod has ended. The kubelet of an
unreachable node reports nothing. The pod stays in Terminating, holds its quota, and blocks its replacement.
Only the author of a pod knows whether two instances of it may run at the same time. So the author must opt in
with an annotation (semantics, Misc).

A watch cannot select annotations. So pods without the annotation are watched too, but the store keeps only
their metadata.
"""

from collections.abc import Iterable, Iterator
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
from admitq.runtime.store import Key, ObjectChange
from admitq_api.json_objects import JsonObject, create_merge_patch, select_fields, value_at
from admitq_api.labels import Names

FAILURE_RECOVERY: Final = "failurerecovery"
"""Name of the controller."""

PLACED_PODS: Final = Resource(
    PODS.group, PODS.version, PODS.plural, PODS.kind, PODS.namespaced, view="on a node"
)
"""All pods that are assigned to a node. Other controllers watch other selections of pods."""

CONCERN: Final = "failure-recovery"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"

BY_NODE: Final = "node"

WORKERS: Final = 4


@dataclass(frozen=True, slots=True)
class HangingPodCase:
    """A pod, its node (None if the node does not exist), and how long the pod may hang."""

    pod: JsonObject
    node: JsonObject | None
    names: Names
    delay: Nanoseconds
    now: Instant


def delete_hanging_pod(case: HangingPodCase) -> ActionPlan:
    """Return the plan that force-deletes a pod that opted in and hangs on an unreachable node.

    The pod gets phase Failed first, so that programs which wait for its end see it even if a finalizer
    holds the pod. If the node object no longer exists, Kubernetes itself deletes the pod.
    """
    pod = case.pod
    grace_ends = pods.get_grace_period_end(pod)
    if not _has_opted_in(pod, case.names) or grace_ends is None or not is_unreachable(case.node):
        return NO_ACTIONS
    if (remaining := grace_ends + case.delay - case.now) >= 0:
        # The delay must have passed, so the next reconciliation comes just after its end.
        return ActionPlan(requeue_after=(remaining + 1) / SECOND)
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
    """Whether the node has the taint for a kubelet that does not report."""
    taints = value_at(node, ("spec", "taints"), [])
    return isinstance(taints, list) and any(value_at(taint, ("key",)) == UNREACHABLE for taint in taints)


def _was_deleted_by_force(pod: JsonObject) -> bool:
    """Whether only finalizers hold the pod, because the API server no longer waits for the kubelet."""
    return value_at(pod, ("metadata", "deletionGracePeriodSeconds")) == 0


def _failed_pod(pod: JsonObject, message: str, case: HangingPodCase) -> JsonObject:
    product = case.names.product_in_reasons
    return pods.fail_pod(pod, f"{product}FailureRecovery", f"{product}ForcefullyDeleted", message, case.now)


# --- watching -------------------------------------------------------------------------------------


def trim_recovered_pod(pod: JsonObject, names: Names) -> dict[str, Any]:
    """Return the fields that this controller reads; only metadata for a pod that did not opt in."""
    identity = ("name", "namespace", "uid", "resourceVersion")
    metadata = pods.get_mapping(pod, "metadata")
    if not _has_opted_in(pod, names):
        return {"metadata": select_fields(metadata, identity)}
    fields_kept = (*identity, "annotations", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds")
    status = pods.get_mapping(pod, "status")
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": select_fields(metadata, fields_kept),
        "spec": {"nodeName": pods.get_text(pod, "spec", "nodeName")},
        "status": select_fields(status, ("phase", "conditions")),
    }


def trim_node(node: JsonObject) -> dict[str, Any]:
    """Return the fields of a node that this controller reads: its name and its taints."""
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
    """Reconciles pods, one at a time."""

    def __init__(self, ctx: Context, delay: Nanoseconds) -> None:
        self._ctx = ctx
        self._delay = delay

    async def reconcile(self, key: Key) -> float | None:
        """Force-delete a pod that hangs; returns after how many seconds to reconcile it again.

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
        """Return the record that describes this controller."""
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
            follows=(FollowedResource(NODES, trim_node),),
            field_selector="spec.nodeName!=",
            transform=lambda pod: trim_recovered_pod(pod, names),
        )

    def _on_node(self, change: ObjectChange) -> Iterable[Key]:
        """Return the terminating pods on a node that has become unreachable."""
        placed = self._ctx.stores.find(PLACED_PODS)
        if placed is None or not is_unreachable(change.new) or is_unreachable(change.old):
            return ()
        return placed.keys_by_index(BY_NODE, change.key.name)


def _key_if_terminating(change: ObjectChange) -> tuple[Key, ...]:
    return (change.key,) if change.new is not None and pods.is_being_deleted(change.new) else ()

"""Why a head is refused before flavors are looked for, whatever quota there is."""

from collections.abc import Callable
from typing import Final

from admitq.core.model import (
    Workload,
)
from admitq.core.refusals import (
    AdmissionChecksFailed,
    ClusterQueueInactive,
    ClusterQueueNotFound,
    InvalidResources,
    NamespaceMismatch,
    Refusal,
)
from admitq.core.selectors import selects_namespace
from admitq.core.world import ClusterQueueEntry, World

_FAILED_CHECKS: Final = ("Retry", "Rejected")


def _checks_failed(_world: World, _queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    checks = workload.admission_checks
    failed = bool(checks) and any(state in _FAILED_CHECKS for _, state in checks)
    return AdmissionChecksFailed() if failed else None


def _inactive(_world: World, queue: ClusterQueueEntry, _workload: Workload) -> Refusal | None:
    return None if queue.is_active else ClusterQueueInactive(queue.spec.name)


def _in_cyclic_tree(_world: World, queue: ClusterQueueEntry, _workload: Workload) -> Refusal | None:
    return ClusterQueueNotFound(queue.spec.name) if queue.node.is_cyclic else None


def _namespace_not_selected(world: World, queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    labels = world.namespaces.get(workload.key.namespace)
    return None if selects_namespace(queue.spec.namespace_selector, labels) else NamespaceMismatch()


def _resources_invalid(world: World, _queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    problems = workload.resource_problems or world.resolved(workload).problems
    return InvalidResources(problems) if problems else None


_CHECKS: Final[tuple[Callable[[World, ClusterQueueEntry, Workload], Refusal | None], ...]] = (
    _checks_failed,
    _inactive,
    _in_cyclic_tree,
    _namespace_not_selected,
    _resources_invalid,
)
"""What is checked of a head before flavors are looked for; the first that refuses is told."""


def inadmissibility(world: World, queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    """Why the workload would be refused whatever quota there is."""
    for check in _CHECKS:
        refusal = check(world, queue, workload)
        if refusal is not None:
            return refusal
    return None

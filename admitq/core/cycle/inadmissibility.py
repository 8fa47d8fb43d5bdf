"""The reasons that refuse a head whatever quota there is, before the search for flavors."""

from typing import Final

from admitq.core.activity import flavor_names
from admitq.core.applicable_checks import too_many_checks
from admitq.core.entries import ClusterQueueEntry
from admitq.core.model import CheckState, Workload
from admitq.core.refusals import (
    AdmissionChecksFailed,
    ClusterQueueInactive,
    ClusterQueueNotFound,
    InvalidResources,
    NamespaceMismatch,
    Refusal,
)
from admitq.core.selectors import selects_namespace
from admitq.core.world import World

_FAILED_CHECKS: Final = (CheckState.RETRY, CheckState.REJECTED)


def inadmissibility(world: World, queue: ClusterQueueEntry, workload: Workload) -> Refusal | None:
    """Return the first reason that refuses the workload whatever quota there is; None without one."""
    checks = workload.admission_checks
    if checks and any(state in _FAILED_CHECKS for _, state in checks):
        return AdmissionChecksFailed()
    if not queue.is_active:
        return ClusterQueueInactive(queue.spec.name)
    if queue.node.is_cyclic:
        return ClusterQueueNotFound(queue.spec.name)
    labels = world.catalog.namespaces.get(workload.key.namespace)
    if not selects_namespace(queue.spec.namespace_selector, labels):
        return NamespaceMismatch()
    spec = queue.spec
    if spec.admission_checks:
        too_many = too_many_checks(spec.name, spec.admission_checks, flavor_names(spec))
        if too_many is not None:
            return too_many
    problems = workload.resource_problems or world.request_rules.resolve(workload).problems
    return InvalidResources(problems) if problems else None

"""What controllers of jobs, and of what serves, ask the stores and Workloads in the same words."""

from admitq.controllers.context import Context
from admitq.controllers.job.case import Lookups
from admitq.controllers.plan import has_finalizer
from admitq.integrations.paths import Object
from admitq.runtime.resources import PRIORITY_CLASSES
from admitq.transitions import holds
from admitq_api.conditions import ConditionType
from admitq_api.labels import Names


def lookups_in(ctx: Context, namespace: str) -> Lookups:
    """Where decisions about an object of a namespace may look things up."""
    stores, kinds = ctx.stores, ctx.kinds
    return Lookups(
        flavor=lambda name: stores.of(kinds.resource_flavors).get("", name),
        workload_priority_class=lambda name: stores.of(kinds.workload_priority_classes).get("", name),
        priority_class=lambda name: stores.of(PRIORITY_CLASSES).get("", name),
        priority_classes=lambda: stores.of(PRIORITY_CLASSES).list(),
        workload=lambda name: stores.of(kinds.workloads).get(namespace, name),
    )


def is_unsettled(workload: Object, names: Names) -> bool:
    """Whether something is left to do with a Workload whose job is not there."""
    return not holds(workload, ConditionType.FINISHED) or has_finalizer(workload, names.finalizer)

"""WorkloadPriorityClasses: a new value reaches the Workloads that name the class."""

from admitq.controllers.context import Context
from admitq.controllers.indexes import BY_PRIORITY_CLASS
from admitq.controllers.plan import Patch, Plan, act, plan
from admitq.integrations.base import Step
from admitq.integrations.paths import Object, value_at
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import Kinds
from admitq.runtime.store import Change, Key
from admitq.transitions import holds
from admitq_api.conditions import ConditionType

CONCERN = "workloadpriorityclass-controller"


def value_changed(change: Change) -> bool:
    """Whether Workloads are to follow: the class is new, or has another value.

    A priority that somebody gave a single Workload by hand stays until then.
    """
    if change.new is None:
        return False
    return change.old is None or change.old.get("value") != change.new.get("value")


def decide(kinds: Kinds, priority_class: Object, workload: Object) -> Plan | None:
    """Give an unfinished Workload its class's value; None if it has it."""
    value = priority_class.get("value") or 0
    if holds(workload, ConditionType.FINISHED) or value_at(workload, ("spec", "priority")) == value:
        return None
    return plan(Patch(kinds.workloads, workload, (Step({"spec": {"priority": value}}),), CONCERN))


class PriorityClassController:
    """Works on one WorkloadPriorityClass at a time."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def reconcile(self, key: Key) -> None:
        """Take a class's value to all its Workloads.

        Raises:
            ApiError: one of the writes failed.
        """
        kinds, stores = self._ctx.kinds, self._ctx.stores
        priority_class = stores.of(kinds.workload_priority_classes).get("", key.name)
        if priority_class is None:
            return
        failure: ApiError | None = None
        for workload in stores.of(kinds.workloads).by_index(BY_PRIORITY_CLASS, key.name):
            decided = decide(kinds, priority_class, workload)
            if decided is None:
                continue
            try:
                await act(self._ctx, decided)
            except ApiError as error:
                failure = error  # one Workload that cannot be written keeps back no other
        if failure is not None:
            raise failure

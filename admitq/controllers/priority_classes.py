"""WorkloadPriorityClasses: a new value reaches the Workloads that name the class."""

from collections.abc import Iterator

from admitq.controllers.context import Context
from admitq.controllers.indexes import BY_PRIORITY_CLASS, workload_priority_class
from admitq.controllers.plan import ActionPlan, Patch, execute_plan, plan_of
from admitq.integrations.base import PatchStep
from admitq.integrations.families.pods import get_label
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import Kinds
from admitq.runtime.store import Change, Key
from admitq.workloads.transitions import is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, value_at

CONCERN = "workloadpriorityclass-controller"


def has_new_value(change: Change) -> bool:
    """Whether Workloads are to follow: the class is new, or has another value.

    A priority that somebody gave a single Workload by hand stays until then, or until its class is another.
    """
    if change.new is None:
        return False
    return change.old is None or change.old.get("value") != change.new.get("value")


def update_priority(kinds: Kinds, priority_class: JsonObject, workload: JsonObject) -> ActionPlan | None:
    """Give an unfinished Workload its class's value; None if it has that."""
    value = priority_class.get("value") or 0
    if (
        is_condition_true(workload, ConditionType.FINISHED)
        or value_at(workload, ("spec", "priority")) == value
    ):
        return None
    return plan_of(Patch(kinds.workloads, workload, (PatchStep({"spec": {"priority": value}}),), CONCERN))


class PriorityClassController:
    """Works on one WorkloadPriorityClass at a time, or on one Workload that came to name one."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def workload_with_new_class(self, change: Change) -> Iterator[Key]:
        """The Workload, if it came to name a class and has another value.

        Who made it may have read the class just before that changed. A copy that another cluster sent has
        the value that the class has there.
        """
        workload = change.new
        if workload is None or self._decided(workload) is None:
            return
        before = [] if change.old is None else [*workload_priority_class(change.old)]
        is_copy = get_label(workload, self._ctx.names.multikueue_origin)
        if before != [*workload_priority_class(workload)] and not is_copy:
            yield change.key

    async def reconcile(self, key: Key) -> None:
        """Take a class's value to all its Workloads, or to the one whose key it is.

        Raises:
            ApiError: one of the writes failed.
        """
        workloads = self._ctx.stores.of(self._ctx.kinds.workloads)
        failure: ApiError | None = None
        one = workloads.get(*key) if key.namespace else None
        concerned = workloads.by_index(BY_PRIORITY_CLASS, key.name) if not key.namespace else (one,)
        for workload in concerned:
            decided = None if workload is None else self._decided(workload)
            if decided is None:
                continue
            try:
                await execute_plan(self._ctx, decided)
            except ApiError as error:
                failure = error  # one Workload that cannot be written keeps back no other
        if failure is not None:
            raise failure

    def _decided(self, workload: JsonObject) -> ActionPlan | None:
        kinds, stores = self._ctx.kinds, self._ctx.stores
        for name in workload_priority_class(workload):
            priority_class = stores.of(kinds.workload_priority_classes).get("", name)
            return None if priority_class is None else update_priority(kinds, priority_class, workload)
        return None

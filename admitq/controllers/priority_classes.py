"""The controller of WorkloadPriorityClasses: writes a new value to the Workloads that name the class."""

from collections.abc import Iterator

from admitq.controllers.context import Context
from admitq.controllers.controller_names import PRIORITY_CLASS
from admitq.controllers.controller_specs import ControllerSpec, Watch
from admitq.controllers.indexes import BY_PRIORITY_CLASS, workload_priority_class
from admitq.controllers.plan import ActionPlan, Patch, execute_plan, plan_of
from admitq.integrations.base import PatchStep
from admitq.integrations.families.pods import get_label
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import Kinds
from admitq.runtime.store import Key, ObjectChange
from admitq.workloads.transitions import is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, value_at

CONCERN = "workloadpriorityclass-controller"


def has_new_value(change: ObjectChange) -> bool:
    """Whether a change creates a class or changes its value, so that its Workloads must be updated.

    A priority that a user wrote into a single Workload stays until the class changes its value, or until the
    Workload names another class.
    """
    if change.new is None:
        return False
    return change.old is None or change.old.get("value") != change.new.get("value")


def update_priority(kinds: Kinds, priority_class: JsonObject, workload: JsonObject) -> ActionPlan | None:
    """Return the plan that writes the value of the class to a Workload; None if there is nothing to write."""
    value = priority_class.get("value") or 0
    if (
        is_condition_true(workload, ConditionType.FINISHED)
        or value_at(workload, ("spec", "priority")) == value
    ):
        return None
    return plan_of(Patch(kinds.workloads, workload, (PatchStep({"spec": {"priority": value}}),), CONCERN))


class PriorityClassController:
    """Reconciles WorkloadPriorityClasses, and Workloads that name another class than before."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def workload_with_new_class(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the key of a Workload that names another class than before and lacks its value.

        The program that created the Workload may have read the class before its value changed. A copy
        from another cluster keeps the value that the class has in that cluster.
        """
        workload = change.new
        if workload is None or self._decided(workload) is None:
            return
        before = [] if change.old is None else [*workload_priority_class(change.old)]
        is_copy = get_label(workload, self._ctx.names.multikueue_origin)
        if before != [*workload_priority_class(workload)] and not is_copy:
            yield change.key

    async def reconcile(self, key: Key) -> None:
        """Write the value of a class to all its Workloads.

        A key with a namespace is that of a single Workload.

        Raises:
            ApiError: a write failed. All other Workloads were still tried.
        """
        workloads = self._ctx.stores.of(self._ctx.kinds.workloads)
        failure: ApiError | None = None
        stored = workloads.get(*key) if key.namespace else None
        concerned = workloads.by_index(BY_PRIORITY_CLASS, key.name) if not key.namespace else (stored,)
        for workload in concerned:
            decided = None if workload is None else self._decided(workload)
            if decided is None:
                continue
            try:
                await execute_plan(self._ctx, decided)
            except ApiError as error:
                failure = error  # a failed write of one Workload must not prevent the others
        if failure is not None:
            raise failure

    def _decided(self, workload: JsonObject) -> ActionPlan | None:
        kinds, stores = self._ctx.kinds, self._ctx.stores
        for name in workload_priority_class(workload):
            priority_class = stores.of(kinds.workload_priority_classes).get("", name)
            return None if priority_class is None else update_priority(kinds, priority_class, workload)
        return None


def priority_class_controller(ctx: Context) -> ControllerSpec:
    """Return the controller of WorkloadPriorityClasses."""
    controller = PriorityClassController(ctx)
    return ControllerSpec(
        name=PRIORITY_CLASS,
        reconcile=controller.reconcile,
        watches=(
            Watch(
                ctx.kinds.workload_priority_classes,
                lambda change: (change.key,) if has_new_value(change) else (),
            ),
            Watch(ctx.kinds.workloads, controller.workload_with_new_class),
        ),
    )

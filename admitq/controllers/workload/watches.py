"""The watches of the Workload controller, and which keys each change reconciles."""

from collections.abc import Iterable, Iterator
from typing import Final

from admitq.controllers.context import Context, CoreView
from admitq.controllers.controller_names import WORKLOAD
from admitq.controllers.controller_specs import ControllerSpec, Watch
from admitq.controllers.indexes import BY_CLUSTER_QUEUE, BY_NAMESPACE, BY_QUEUE, namespaced_index_value
from admitq.controllers.key_maps import DELETION, LABELS, SPEC, differs
from admitq.controllers.workload.controller import WorkloadController
from admitq.controllers.workload.finishing import is_final
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES
from admitq.runtime.store import Key, ObjectChange
from admitq_api.conditions import ConditionType, find_condition
from admitq_api.json_objects import JsonObject, value_at

WORKERS: Final = 8


class _WorkloadKeys:
    """Maps changes of other objects to keys of Workloads."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._kinds = ctx.kinds

    def itself(self, change: ObjectChange) -> tuple[Key, ...]:
        """Return the key of a Workload, unless it was first observed in its final state.

        A start observes many of these. No step has anything to do for them.
        """
        is_skipped = (
            change.old_bytes is None
            and change.new is not None
            and is_final(change.new, self._ctx.names, self._ctx.settings)
        )
        return () if is_skipped else (change.key,)

    def in_local_queue(self, change: ObjectChange) -> Iterable[Key]:
        """Return the Workloads of a LocalQueue that was created, deleted, or changed its state."""
        has_changed = differs(change, SPEC, DELETION) or _activity(change.old) != _activity(change.new)
        return self._queued_in(change.key) if has_changed else ()

    def in_cluster_queue(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the Workloads of a ClusterQueue after a change of its spec, deletion or activity.

        Changes of its numbers are ignored.
        """
        if not differs(change, SPEC, DELETION) and _activity(change.old) == _activity(change.new):
            return
        stores, name = self._ctx.stores, change.key.name
        yield from stores.of(self._kinds.workloads).keys_by_index(BY_CLUSTER_QUEUE, name)
        for queue in stores.of(self._kinds.local_queues).keys_by_index(BY_CLUSTER_QUEUE, name):
            yield from self._queued_in(queue)

    def in_namespace(self, change: ObjectChange) -> Iterable[Key]:
        """Return the Workloads of a namespace that is new or has changed labels.

        The watch of Workloads may be ahead of the watch of namespaces.
        """
        if change.new is None or not differs(change, LABELS):
            return ()
        return self._queued_in_namespace(change.key.name)

    def limited(self, change: ObjectChange) -> Iterable[Key]:
        """Return the Workloads of a namespace with changed limits."""
        return self._queued_in_namespace(change.key.namespace) if differs(change, SPEC) else ()

    def _queued_in_namespace(self, namespace: str) -> Iterator[Key]:
        for queue in self._ctx.stores.of(self._kinds.local_queues).keys_by_index(BY_NAMESPACE, namespace):
            yield from self._queued_in(queue)

    def _queued_in(self, queue: Key) -> tuple[Key, ...]:
        workloads = self._ctx.stores.of(self._kinds.workloads)
        return workloads.keys_by_index(BY_QUEUE, namespaced_index_value(queue.namespace, queue.name))


def _activity(queue: JsonObject | None) -> str | None:
    """Return the status of the condition Active of a queue."""
    active = find_condition(value_at(queue, ("status", "conditions"), []), ConditionType.ACTIVE)
    return None if active is None else active.get("status")


def workload_controller(ctx: Context, core: CoreView) -> ControllerSpec:
    """Return the controller of Workloads."""
    kinds, keys = ctx.kinds, _WorkloadKeys(ctx)
    return ControllerSpec(
        name=WORKLOAD,
        reconcile=WorkloadController(ctx, core).reconcile,
        watches=(
            Watch(kinds.workloads, keys.itself),
            Watch(kinds.local_queues, keys.in_local_queue),
            Watch(kinds.cluster_queues, keys.in_cluster_queue),
            Watch(NAMESPACES, keys.in_namespace),
            Watch(LIMIT_RANGES, keys.limited),
        ),
        workers=ctx.settings.workers("Workload", kinds.workloads.group, WORKERS),
    )

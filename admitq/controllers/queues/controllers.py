"""The controllers of ClusterQueues, LocalQueues and cohorts, which write their statuses.

The core computes all numbers and conditions. They change with every admission. So each status is computed
and written at most once a second, and is not computed before a slot for its write is free.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from admitq.controllers.context import Clock, Context, CoreView
from admitq.controllers.in_use_protection import sync_in_use_finalizer
from admitq.controllers.plan import execute_plan, plan_of, status_patch
from admitq.controllers.queues.refused_jobs import RefusedJob, RefusedJobs
from admitq.core.activity import ActiveReason
from admitq.core.fair_sharing import Share
from admitq.core.model import SECOND, ConsumedResources, Instant, ObjectKey
from admitq.core.statuses import ClusterQueueStatus, CohortStatus, FlavorTotals, LocalQueueStatus
from admitq.runtime.rate_limit import CallPriority
from admitq.runtime.resources import Resource
from admitq.runtime.store import Key, Store
from admitq.translate.amounts import format_quantities
from admitq.translate.messages import ActiveCondition, cluster_queue_active, local_queue_active
from admitq_api.conditions import ConditionType, Reason, find_condition, format_time, with_condition
from admitq_api.json_objects import JsonObject, create_merge_patch, value_at
from admitq_api.quantity import format_quantity

WRITE_INTERVAL: Final = SECOND
"""Minimum time between two writes of one object's status; nanoseconds."""


REFUSED_JOBS_GRACE: Final = 2 * SECOND
"""How long a LocalQueue still reports refused jobs after the last refused job no longer exists;
nanoseconds."""


class WritePace:
    """Limits how often the status of each object is written."""

    def __init__(self, clock: Clock, interval: Instant = WRITE_INTERVAL) -> None:
        self._clock = clock
        self._interval = interval
        self._written: dict[Key, Instant] = {}

    def seconds_until_allowed(self, key: Key) -> float:
        """Return the seconds until the object may be written.

        The result is bounded even if the clock was set back.
        """
        now = self._clock()
        written = self._written.get(key, now - self._interval)
        return min(max(0, written + self._interval - now), self._interval) / SECOND

    def record_write(self, key: Key) -> None:
        """Record that the object was written now."""
        self._written[key] = self._clock()

    def forget(self, key: Key) -> None:
        """Forget an object that does not exist any more."""
        self._written.pop(key, None)


# --- contents of statuses -------------------------------------------------------------------------


def _conditions(obj: JsonObject, active: ActiveCondition, now: Instant) -> list[dict[str, Any]]:
    return with_condition(
        value_at(obj, ("status", "conditions"), []),
        type=ConditionType.ACTIVE,
        status=active.status,
        reason=active.reason,
        message=active.message,
        now=now,
        observed_generation=value_at(obj, ("metadata", "generation")),
    )


MAX_FLAVORS: Final = 64
"""Maximum number of flavors in a list of a status. A ClusterQueue may have more."""

MAX_RESOURCES: Final = 64
"""Maximum number of resources of a flavor in such a list. More exist only if several groups have the flavor.
"""

HELD_RETRY_SECONDS: Final = 10.0
"""When to reconcile a deleted ClusterQueue again that cannot be parsed. No refresh reports its last release.
"""


def _totals(flavors: Sequence[FlavorTotals], *, borrowed: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": flavor.flavor,
            "resources": [
                {
                    "name": of.resource,
                    "total": format_quantity(of.resource, of.total),
                    **({"borrowed": format_quantity(of.resource, of.borrowed)} if borrowed else {}),
                }
                for of in flavor.resources[:MAX_RESOURCES]
            ],
        }
        for flavor in flavors[:MAX_FLAVORS]
    ]


def _local_totals(flavors: Sequence[FlavorTotals] | None) -> list[dict[str, Any]] | None:
    return None if flavors is None else _totals(flavors, borrowed=False)


def cluster_queue_patch(
    obj: JsonObject, status: ClusterQueueStatus, now: Instant
) -> Mapping[str, Any] | None:
    """Return the patch that updates a ClusterQueue's status; None if it is up to date."""
    return _patch(
        obj,
        {
            "conditions": _conditions(obj, cluster_queue_active(status), now),
            "flavorsReservation": _totals(status.flavors_reservation, borrowed=True),
            "flavorsUsage": _totals(status.flavors_usage, borrowed=True),
            "pendingWorkloads": status.pending,
            "reservingWorkloads": status.reserving,
            "admittedWorkloads": status.admitted,
            "fairSharing": _share(status.share),
        },
    )


def local_queue_patch(
    obj: JsonObject, status: LocalQueueStatus, now: Instant, refused: Sequence[RefusedJob] | None = ()
) -> Mapping[str, Any] | None:
    """Return the patch that updates a LocalQueue's status; None if it is up to date.

    If ``refused`` is None, the condition about refused jobs stays as it is.
    """
    conditions = _conditions(obj, local_queue_active(status), now)
    return _patch(
        obj,
        {
            "conditions": conditions if refused is None else _with_refused(conditions, refused, now),
            "flavorsReservation": _local_totals(status.flavors_reservation),
            "flavorsUsage": _local_totals(status.flavors_usage),
            "pendingWorkloads": status.pending,
            "reservingWorkloads": status.reserving,
            "admittedWorkloads": status.admitted,
            "fairSharing": _past_usage(status.consumed),
        },
    )


def _with_refused(
    conditions: Sequence[Mapping[str, Any]], refused: Sequence[RefusedJob], now: Instant
) -> list[dict[str, Any]]:
    """Return the conditions with JobsRefused, or without it if no job is refused."""
    if not refused:
        return [
            dict(condition) for condition in conditions if condition.get("type") != ConditionType.JOBS_REFUSED
        ]
    first, count = refused[0], len(refused)
    jobs = "1 job is" if count == 1 else f"{count} jobs are"
    return with_condition(
        conditions,
        type=ConditionType.JOBS_REFUSED,
        status=True,
        reason=Reason.QUARANTINED,
        message=f"{jobs} left alone until changed. {first.kind} {first.name}: {first.problem}",
        now=now,
    )


def cohort_patch(obj: JsonObject, status: CohortStatus) -> Mapping[str, Any] | None:
    """Return the patch that updates a cohort's status; None if it is up to date."""
    return _patch(obj, {"fairSharing": _share(status.share)})


def _share(share: Share | None) -> Mapping[str, Any] | None:
    return None if share is None else {"weightedShare": share.weighted_share}


def _past_usage(consumed: ConsumedResources | None) -> Mapping[str, Any] | None:
    """Return the past usage of a LocalQueue. Its weighted share is 0, because it has no quota to borrow."""
    if consumed is None:
        return None
    past_usage = {
        "consumedResources": format_quantities(consumed.consumed),
        "lastUpdate": format_time(consumed.at),
    }
    return {"weightedShare": 0, "admissionFairSharingStatus": past_usage}


def _patch(obj: JsonObject, fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the patch of fields that differ. A field that is None is removed."""
    before = value_at(obj, ("status",), {})
    changed = create_merge_patch(before, {**before, **fields})
    return {"status": changed} if changed else None


# --- controllers ----------------------------------------------------------------------------------


class _StatusWriter:
    """Writes the statuses of one resource at a limited rate."""

    def __init__(self, ctx: Context, resource: Resource, concern: str) -> None:
        self._ctx = ctx
        self._resource = resource
        self._concern = concern
        self._pace = WritePace(ctx.clock)

    async def write(
        self, key: Key, obj: JsonObject, compute_patch: Callable[[], Mapping[str, Any] | None]
    ) -> float | None:
        """Compute and write a patch if the rate allows it; returns after how many seconds to try again.

        Raises:
            NoFreeSlotError: the API server has no time for reports now. No patch was computed.
            ApiError: the write failed.
        """
        if (wait := self._pace.seconds_until_allowed(key)) > 0:
            return wait
        with self._ctx.client.scheduler.free_slot(CallPriority.QUEUE_STATUS):
            patch = compute_patch()
            if patch is None:
                return None
            plan = plan_of(status_patch(self._resource, obj, patch, self._concern))
            requeue_after = await execute_plan(self._ctx, plan)
            self._pace.record_write(key)
            return requeue_after

    def forget(self, key: Key) -> None:
        """Forget an object that does not exist any more."""
        self._pace.forget(key)


class ClusterQueueController:
    """Writes the statuses of ClusterQueues, and keeps a deleted queue until nothing holds its quota."""

    def __init__(self, ctx: Context, core: CoreView) -> None:
        self._ctx = ctx
        self._core = core
        self._resource = ctx.kinds.cluster_queues
        self._writer = _StatusWriter(ctx, self._resource, "clusterqueue-controller")

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one ClusterQueue; returns after how many seconds to reconcile it again."""
        obj = self._ctx.stores.of(self._resource).get("", key.name)
        if obj is None:
            self._writer.forget(key)
            return None
        in_use = self._core.cluster_queue_has_reservations(key.name)
        finalizer_plan = sync_in_use_finalizer(self._resource, obj, self._ctx.names.finalizer, in_use=in_use)
        if finalizer_plan is not None:
            return await execute_plan(self._ctx, finalizer_plan)
        if self._core.is_cluster_queue_active(key.name) is None:
            waits = in_use and "deletionTimestamp" in obj["metadata"]
            return HELD_RETRY_SECONDS if waits else None

        def compute_patch() -> Mapping[str, Any] | None:
            status = self._core.cluster_queue_status(key.name)
            if status is None or status.reason is ActiveReason.UNKNOWN:
                # The problem is in the status already, because the quarantine has written it.
                return None
            return cluster_queue_patch(obj, status, self._ctx.clock())

        return await self._writer.write(key, obj, compute_patch)


class LocalQueueController:
    """Writes the statuses of LocalQueues."""

    def __init__(self, ctx: Context, core: CoreView, refused: RefusedJobs) -> None:
        self._ctx = ctx
        self._core = core
        self._refused = refused
        self._cleared_at: dict[Key, Instant] = {}
        self._resource = ctx.kinds.local_queues
        self._writer = _StatusWriter(ctx, self._resource, "localqueue-controller")

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one LocalQueue; returns after how many seconds to reconcile it again."""
        obj = self._ctx.stores.of(self._resource).get(key.namespace, key.name)
        if obj is None:
            self._writer.forget(key)
            self._cleared_at.pop(key, None)
            return None
        queue = ObjectKey(key.namespace, key.name)
        if not self._core.has_local_queue(queue):
            return None
        now, refused = self._ctx.clock(), self._refused.list_in_queue(key)
        grace_left = self._grace_left(key, obj, refused, now)

        def compute_patch() -> Mapping[str, Any] | None:
            status = self._core.local_queue_status(queue)
            reported = None if grace_left else refused
            return None if status is None else local_queue_patch(obj, status, now, reported)

        requeue_after = await self._writer.write(key, obj, compute_patch)
        return min(filter(None, (grace_left, requeue_after)), default=None)

    def _grace_left(self, key: Key, obj: JsonObject, refused: Sequence[RefusedJob], now: Instant) -> float:
        """Return the seconds for which the queue still reports refused jobs although none is known.

        After a change of such a job, or after a start of the process, jobs are tried again first.
        """
        reported = find_condition(value_at(obj, ("status", "conditions"), []), ConditionType.JOBS_REFUSED)
        if refused or reported is None:
            self._cleared_at.pop(key, None)
            return 0.0
        return max(0, self._cleared_at.setdefault(key, now) + REFUSED_JOBS_GRACE - now) / SECOND


class CohortController:
    """Writes the statuses of cohorts, which have weighted shares."""

    def __init__(self, ctx: Context, core: CoreView) -> None:
        self._ctx = ctx
        self._core = core
        self._resource = ctx.kinds.cohorts
        self._writer = _StatusWriter(ctx, self._resource, "cohort-controller")

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one cohort. Other objects may name a cohort that has no object."""
        obj = self._ctx.stores.of(self._resource).get("", key.name)
        if obj is None:
            self._writer.forget(key)
            return None

        def compute_patch() -> Mapping[str, Any] | None:
            status = self._core.cohort_status(key.name)
            return None if status is None else cohort_patch(obj, status)

        return await self._writer.write(key, obj, compute_patch)


def cohort_path(cohorts: Store, name: str) -> list[str]:
    """Return a cohort and the cohorts above it in the store. A cycle of parents ends the path."""
    path = [name]
    while True:
        parent = value_at(cohorts.get("", path[-1]), ("spec", "parentName"), "")
        if not parent or parent in path:
            return path
        path.append(parent)

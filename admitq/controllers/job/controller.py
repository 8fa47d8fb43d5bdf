"""The job controller of one kind: reconciles jobs and their Workloads."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.indexes import group_key_name, group_of_key_name, resource_of
from admitq.controllers.job import members
from admitq.controllers.job.admitted_generations import AdmittedGenerations
from admitq.controllers.job.ancestors import Ancestors
from admitq.controllers.job.case import Ancestor, JobCase
from admitq.controllers.job.kept_children import find_running_children
from admitq.controllers.job.newer_workloads import observe_newer_workloads_of_job
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.controllers.job.plan_execution import ORPHAN_RETRY_SECONDS, execute_job_plan
from admitq.controllers.job.requeue_delays import next_reconcile_seconds
from admitq.controllers.job.steps import decide_job, refuse_foreign_members
from admitq.controllers.job.stored_jobs import JobPresence, StoredJobs
from admitq.controllers.lookups import lookups_for_namespace, needs_cleanup
from admitq.controllers.plan import ActionPlan
from admitq.controllers.pods.remaining_pods_finder import RemainingPodsFinder
from admitq.controllers.stale_stores import STALE_STORE_RETRY_SECONDS
from admitq.core.selectors import selects_namespace
from admitq.integrations.base import Integration
from admitq.integrations.ownership import (
    NestedTooDeep,
    OwnerMissing,
    get_controller,
    is_group_workload,
    is_served_workload,
)
from admitq.integrations.references import OwnerKind
from admitq.runtime.errors import ApiError, PermanentRejection
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.runtime.resources import NAMESPACES
from admitq.runtime.store import Key
from admitq_api.json_objects import JsonObject, value_at

STOP_ATTEMPTS: Final = 4
"""How often the controller tries to stop a job that runs more than was admitted before it waits for the
watch."""


class JobController:
    """Reconciles the jobs of one kind.

    The work queue calls ``reconcile``. ``start`` does the same right after the write of an admission,
    without the work queue. The two never reconcile one job at the same time.
    """

    def __init__(self, ctx: Context, integration: Integration, owners: OwnerLookup) -> None:
        self.integration = integration
        self.resource = resource_of(integration)
        self._ctx = ctx
        self._stored = StoredJobs(ctx, integration)
        self._ancestors = Ancestors(ctx, integration, owners)
        self._remaining_pods = RemainingPodsFinder(ctx)
        self._busy: set[Key] = set()
        self._admitted_generations = AdmittedGenerations()

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one job; returns after how many seconds to reconcile it again.

        Raises:
            ApiError: a write failed.
            PermanentRejection: no Workload can be created for the job until the job changes.
        """
        if key in self._busy:
            # ``start`` reconciles the job now, and its writes queue the key again. It may also write nothing.
            return STALE_STORE_RETRY_SECONDS
        return await self._reconcile_exclusively(key)

    async def start(self, workload: JsonObject) -> None:
        """Reconcile, and thereby start, the job of a Workload that was just admitted.

        Raises:
            ApiError: a write failed; the work queue will retry.
        """
        key = self.key_of(workload)
        if key is not None and key not in self._busy:
            # The work queue handles the refusal when it reconciles the job.
            with suppress(PermanentRejection), call_priority(CallPriority.RESERVATION):
                await self._reconcile_exclusively(key)

    def key_of(self, workload: JsonObject) -> Key | None:
        """Return the key of the job that a Workload belongs to; None if the job is of another kind."""
        metadata = workload["metadata"]
        reference = get_controller(workload)
        if reference is None:
            of_group = self.integration.composition is not None and is_group_workload(
                workload, self._ctx.names
            )
            return Key(metadata["namespace"], group_key_name(metadata["name"])) if of_group else None
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        if (group, version, reference.get("kind")) != self.integration.gvk:
            return None
        return Key(metadata["namespace"], str(reference.get("name", "")))

    async def _reconcile_exclusively(self, key: Key) -> float | None:
        self._busy.add(key)
        try:
            return await self._reconcile_job(key)
        finally:
            self._busy.discard(key)

    async def _reconcile_job(self, key: Key, attempts: int = STOP_ATTEMPTS) -> float | None:
        store = self._ctx.stores.find(self.resource)
        if store is None:
            # The API server no longer serves the kind; its Workloads stay as they are until it does.
            return None
        foreign = self._stored.find_foreign_members(key, store)
        job = self._stored.find_job(key, store, foreign)
        workloads = self._stored.find_workloads(key, job)
        if foreign:
            await self._refuse(key, foreign)
        if job is None:
            self._admitted_generations.forget(key)
            workloads = tuple(workload for workload in workloads if not self._is_kept_for_pods(workload))
            if not any(needs_cleanup(workload, self._ctx.names) for workload in workloads):
                return None
            match await self._stored.check_presence(key, workloads):
                case JobPresence.PRESENT:
                    return STALE_STORE_RETRY_SECONDS
                case JobPresence.UNMANAGED:
                    return None
                case JobPresence.ABSENT:
                    pass
        ancestor: Ancestor | None = None
        namespace = self._ctx.stores.of(NAMESPACES).get("", key.namespace)
        if job is not None:
            if namespace is None:
                return STALE_STORE_RETRY_SECONDS
            try:
                if not workloads and await self._ancestors.have_members_ancestor(job):
                    return None
                ancestor = await self._ancestors.find(job)
            except OwnerMissing:
                return ORPHAN_RETRY_SECONDS
            except NestedTooDeep as error:
                self._ctx.recorder.event(dict(job), "Warning", "JobNestingTooDeep", str(error))
                return None
        case = JobCase(
            integration=self.integration,
            names=self._ctx.names,
            kinds=self._ctx.kinds,
            settings=self._ctx.settings,
            now=self._ctx.clock(),
            job=job,
            workloads=workloads,
            lookups=lookups_for_namespace(self._ctx, key.namespace),
            namespace_matches=self._is_selected(namespace),
            is_namespace_terminating=value_at(namespace, ("metadata", "deletionTimestamp")) is not None,
            ancestor=ancestor,
        )
        case = await self._with_remaining_pods(self._stored.resolve(case))
        case, decided = await self._decide(case)
        if decided.stops_unadmitted and decided.actions:
            requeue_after = await self._stop(key, case, decided, attempts)
        else:
            self._admitted_generations.remember(key, case)
            requeue_after = await execute_job_plan(self._ctx, case, decided)
        return next_reconcile_seconds(case, requeue_after)

    async def _stop(self, key: Key, case: JobCase, decided: ActionPlan, attempts: int) -> float | None:
        """Stop a job that runs more than was admitted, with priority over less urgent writes.

        The job's own controller writes the job often while pods start. After a conflict the job is read
        again, because the watch may be late.
        """
        with call_priority(CallPriority.AHEAD):
            if not self._admitted_generations.has_changed_once_since(
                key, case
            ) and await observe_newer_workloads_of_job(self._ctx, case):
                return STALE_STORE_RETRY_SECONDS
            try:
                return await execute_job_plan(self._ctx, case, decided)
            except ApiError as error:
                if not error.is_conflict or self.integration.composition is not None or attempts <= 1:
                    raise
            fresh = await self._ctx.client.get(self.resource, key.name, namespace=key.namespace)
            self._ctx.observe_write(self.resource, fresh)
            return await self._reconcile_job(key, attempts - 1)

    async def _refuse(self, key: Key, foreign: Sequence[JsonObject]) -> None:
        """Stop members that name the Workload of another object as their group."""
        composition, ctx = self.integration.composition, self._ctx
        job = composition and self._stored.compose(composition, foreign, group_of_key_name(key.name))
        if not job:
            return
        case = JobCase(
            integration=self.integration,
            names=ctx.names,
            kinds=ctx.kinds,
            settings=ctx.settings,
            now=ctx.clock(),
            job=job,
            workloads=(),
            lookups=lookups_for_namespace(ctx, key.namespace),
        )
        await execute_job_plan(self._ctx, case, refuse_foreign_members(case))

    def _is_kept_for_pods(self, workload: JsonObject) -> bool:
        """Whether a Workload was created before its pods, and waits for them without further actions.

        The controller of serving objects handles its Workloads itself.
        """
        names = self._ctx.names
        return is_served_workload(workload, names) or (
            members.awaits_first_pod(workload, names)
            and not members.is_evicted_before_first_pod(workload, names)
        )

    def _is_selected(self, namespace: JsonObject | None) -> bool:
        labels = value_at(namespace, ("metadata", "labels"), {})
        return selects_namespace(self._ctx.settings.namespace_selector, labels)

    async def _decide(self, case: JobCase) -> tuple[JobCase, ActionPlan]:
        """Decide about a job. If the plan releases quota that is still in use, decide again with its users.

        Its users are running children, and pods. Children are searched first, because they create pods.
        """
        decided = decide_job(case)
        if not decided.released_workloads:
            return case, decided
        if children := await find_running_children(self._ctx, self.integration, case.job):
            case = replace(case, running_children=children)
        elif remaining_pods := await self._remaining_pods.find(decided.released_workloads):
            case = replace(case, remaining_pods={**case.remaining_pods, **remaining_pods})
        else:
            return case, decided
        return case, decide_job(case)

    async def _with_remaining_pods(self, case: JobCase) -> JobCase:
        """Return the case with pods that outlive the job; for a group, with pods other than its members."""
        if case.composition is not None and case.job is not None:
            return case
        return replace(
            case,
            remaining_pods=await self._remaining_pods.find_without_job(case.workloads_without_job, case.job),
        )


async def start_admitted(controllers: Mapping[OwnerKind, JobController], workload: JsonObject) -> None:
    """Start the job of a Workload after the write of its admission.

    Raises:
        ApiError: a write failed; the job's controller will retry.
    """
    for controller in controllers.values():
        await controller.start(workload)

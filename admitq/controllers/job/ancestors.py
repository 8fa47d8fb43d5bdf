"""Finds jobs that are queued in place of the jobs inside them."""

from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.indexes import BY_OWNER, owner_index_value
from admitq.controllers.job.case import Ancestor
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.controllers.job.workload_slices import may_children_run
from admitq.integrations.base import ChildDifference, Integration, list_members
from admitq.integrations.ownership import (
    AncestorFinder,
    get_controller,
    get_queue_name,
    is_controlled_by,
)
from admitq.workloads.transitions import is_condition_true, is_reserved
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, value_at

ORPHAN_FINALIZER: Final = "orphan"
"""The garbage collector removes this finalizer from a deleted object when no dependent refers to the
object."""


class Ancestors:
    """Finds the jobs that are queued in place of the jobs of one kind.

    Args:
        ctx: stores, client and settings.
        integration: the kind of the jobs inside.
        owners: finds their owners.
    """

    def __init__(self, ctx: Context, integration: Integration, owners: OwnerLookup) -> None:
        self._ctx = ctx
        self._integration = integration
        self._kinds = {(each.group, each.kind): each for each in ctx.settings.integrations}
        self._ancestry = AncestorFinder(
            owners.find,
            ctx.settings.integrations,
            ctx.names,
            without_queue_name=ctx.settings.without_queue_name,
            external=ctx.settings.external_frameworks,
            elastic_jobs=ctx.settings.elastic_jobs,
            resolve=owners.resolved,
            read_again=owners.read,
        )

    async def find(self, job: JsonObject) -> Ancestor | None:
        """Return the ancestor that is queued in place of this job, or whose admission this job exceeds.

        A job that names such an owner but differs from the owner's jobs is queued on its own. Without a queue
        name it is stopped if it has more pods than its owner was charged for.

        Raises:
            OwnerMissing: an owner is not known yet.
            NestedTooDeep: there are too many owners above the job.
            ApiError: a call to the API server failed.
        """
        # The webhook has looked up the ancestors of a member at its creation.
        if get_controller(job) is None or self._integration.composition is not None:
            return None
        lineage = await self._ancestry.find(job)
        if lineage.ancestor is not None:
            return self._describe(lineage.ancestor)
        is_queued = self._ctx.settings.without_queue_name or bool(get_queue_name(job, self._ctx.names))
        if lineage.claimed_ancestor is None or lineage.difference is not ChildDifference.PODS or is_queued:
            return None
        return Ancestor(lineage.claimed_ancestor, admitted=False, difference=lineage.difference)

    async def have_members_ancestor(self, job: JsonObject) -> bool:
        """Whether a member that no webhook has reviewed belongs to a job that is queued.

        The pod template of a queued job may carry the managed label. Its pods run with that job.

        Raises:
            OwnerMissing: an owner is not known yet.
            NestedTooDeep: there are too many owners above a member.
            ApiError: a call to the API server failed.
        """
        composition, names = self._integration.composition, self._ctx.names
        if composition is None:
            return False
        for member in list_members(job):
            if composition.is_reviewed_by_webhook(member, names) or get_controller(member) is None:
                continue
            if (await self._ancestry.find(member)).ancestor is not None:
                return True
        return False

    def _describe(self, ancestor: JsonObject) -> Ancestor:
        metadata = ancestor["metadata"]
        group, _, _ = str(ancestor.get("apiVersion", "")).rpartition("/")
        owner = owner_index_value(group, ancestor.get("kind", ""), metadata["namespace"], metadata["name"])
        unfinished = [
            workload
            for workload in self._ctx.stores.of(self._ctx.kinds.workloads).by_index(BY_OWNER, owner)
            if is_controlled_by(workload, ancestor)
            and not is_condition_true(workload, ConditionType.FINISHED)
        ]
        annotation = value_at(ancestor, ("metadata", "annotations", self._ctx.names.elastic_job))
        is_elastic = self._ctx.settings.elastic_jobs and annotation == "true"
        kind = self._kinds.get((group, ancestor.get("kind", "")))
        # The garbage collector may orphan the Workload before the children. Its quota stays reserved.
        has_lost_workload = not unfinished and _is_being_orphaned(ancestor)
        return Ancestor(
            ancestor,
            admitted=has_lost_workload or may_children_run(unfinished, elastic=is_elastic),
            holds_quota=any(is_reserved(workload) for workload in unfinished),
            keeps_children=kind is not None and kind.ownership.keeps_children,
            is_suspended=kind is not None and kind.is_suspended(ancestor, self._ctx.names),
        )


def _is_being_orphaned(job: JsonObject) -> bool:
    """Whether a job is deleted and leaves its dependents, as by ``kubectl delete --cascade=orphan``."""
    metadata = job["metadata"]
    return "deletionTimestamp" in metadata and ORPHAN_FINALIZER in metadata.get("finalizers", ())

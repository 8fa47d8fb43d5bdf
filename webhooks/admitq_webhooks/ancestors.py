"""Whether a job has an ancestor that is queued; such a job is not queued itself."""

from collections.abc import Mapping
from typing import Any

from admitq.integrations.base import Integration
from admitq.integrations.ownership import (
    AncestorFinder,
    AncestorSearchResult,
    NestedTooDeep,
    Owner,
    OwnerMissing,
    get_controller,
)
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_webhooks.lookups import ClusterLookups
from admitq_webhooks.policy import Policy
from admitq_webhooks.references import resolve_references


class AncestryUnknown(Exception):
    """The ancestors of a job cannot be determined, so the webhook rejects the job.

    Attributes:
        error: the error for the user.
    """

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


async def has_managed_ancestor(
    job: Mapping[str, Any], namespace: str, policy: Policy, lookups: ClusterLookups
) -> bool:
    """Return whether a job has an ancestor that is queued.

    Raises:
        AncestryUnknown: an owner does not exist, or owners are nested too deep.
        LookupFailed: an owner cannot be read.
    """
    return (await find_lineage(job, namespace, policy, lookups)).ancestor is not None


async def find_lineage(
    job: Mapping[str, Any], namespace: str, policy: Policy, lookups: ClusterLookups
) -> AncestorSearchResult:
    """Return the ancestors to which the controller references of a job lead.

    Raises:
        AncestryUnknown: an owner does not exist, or owners are nested too deep.
        LookupFailed: an owner cannot be read.
    """
    if get_controller(job) is None:
        # Most jobs have no owner. To prepare the search would take a third of their review.
        return AncestorSearchResult()

    async def find(owner: Owner) -> Mapping[str, Any] | None:
        # The namespace comes from the request, because the job's own metadata.namespace may be empty.
        return await lookups.get_object(*owner.kind, namespace, owner.name)

    async def resolve(integration: Integration, owner: Mapping[str, Any]) -> Mapping[str, Any]:
        return await resolve_references(owner, namespace, integration, lookups)

    ancestry = AncestorFinder(
        find,
        policy.integrations,
        policy.names,
        without_queue_name=policy.manage_jobs_without_queue_name,
        external=policy.external_frameworks,
        elastic_jobs=policy.gates.is_enabled(Gate.ELASTIC_JOBS),
        resolve=resolve,
    )
    try:
        return await ancestry.find(job)
    except OwnerMissing as error:
        raise AncestryUnknown(
            FieldError.invalid(
                "metadata.ownerReferences", str(error), "the owner was not found", "create the owner first"
            )
        ) from error
    except NestedTooDeep as error:
        raise AncestryUnknown(
            FieldError.invalid(
                "metadata.ownerReferences",
                str(error),
                "owners are nested too deep, or in a cycle",
                "remove the controller reference",
            )
        ) from error

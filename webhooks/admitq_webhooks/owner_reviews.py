"""Decides which accounts may set a queued owner as controller, or raise the requests of an owned object.

Only the controller of the owner and administrators may do so. A job with a queued owner is not queued itself,
and every tenant can write an owner reference. So the reference alone does not show that the owner created the
job. The reviews here also refuse running children of a suspended owner, if its controller would not stop
them.
"""

from typing import Final

from admitq.integrations.base import Integration
from admitq.integrations.ownership import get_controller, get_queue_name, has_known_controller
from admitq.serving.access_reviews import Access
from admitq.serving.authorization import User
from admitq.workloads.request_increases import find_request_increases
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_webhooks.ancestors import AncestryUnknown, find_lineage
from admitq_webhooks.lookups import ClusterLookups
from admitq_webhooks.policy import Policy
from admitq_webhooks.review import AdmissionRequest
from admitq_webhooks.validate.jobs import job_pod_sets

_REFERENCES: Final = ("metadata", "ownerReferences")


async def may_set_controller(
    user: User, obj: JsonObject, namespace: str, policy: Policy, lookups: ClusterLookups
) -> bool:
    """Return whether an account may write the controller reference of an object.

    Every account may write references to kinds that admitq does not follow. Every account may write
    references to pods, too: the driver of a Spark application creates its executors, and a single pod covers
    no other pod.

    Raises:
        LookupFailed: the permissions of the account are not known.
    """
    reference = get_controller(obj)
    if (
        reference is None
        or not has_known_controller(obj, policy.integrations, policy.external_frameworks)
        or (reference.get("apiVersion"), reference.get("kind")) == ("v1", "Pod")
        or policy.is_own_account(user.name)
    ):
        return True
    group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
    plural = await lookups.plural(group, version, str(reference.get("kind", "")))
    if plural is not None and await lookups.is_allowed(
        user, Access("update", group, plural, "status", namespace)
    ):
        return True
    return await lookups.is_allowed(
        user, Access("update", policy.names.group, "workloads", "status", namespace)
    )


async def review_controller_reference(
    request: AdmissionRequest, integration: Integration, policy: Policy, lookups: ClusterLookups
) -> list[FieldError]:
    """Check a change after which a job or pod has both a queue and a controller reference.

    Raises:
        LookupFailed: the permissions of the account are not known, so the change must be rejected.
    """
    before, after = (value_at(get_controller(obj), ("uid",)) for obj in (request.old, request.obj))
    was_queued, is_queued = (
        policy.manage_jobs_without_queue_name
        or bool(get_queue_name(obj, policy.names))
        or integration.ownership.is_held_by_parent(obj, policy.names)
        for obj in (request.old, request.obj)
    )
    if not is_queued or (was_queued and before == after):
        return []
    if await may_set_controller(request.user, request.obj, request.namespace, policy, lookups):
        return []
    reason = f"only the controller of the owner and administrators may make this {integration.kind} follow it"
    return [FieldError.forbidden(ErrorPath().at(*_REFERENCES), reason, "remove the controller reference")]


async def review_increase(
    request: AdmissionRequest,
    old: JsonObject,
    new: JsonObject,
    integration: Integration,
    policy: Policy,
    lookups: ClusterLookups,
) -> list[FieldError]:
    """Check a change after which a job without a queue requests more than its owner was charged for it.

    A job with its own queue is queued itself in this case. Only the controller of the owner and
    administrators may change a job that is charged to its owner.

    Args:
        request: the change.
        old: the stored job, with its references resolved.
        new: the changed job, with its references resolved.
        integration: the kind of the job.
        policy: what is managed.
        lookups: lookups.

    Raises:
        LookupFailed: an owner or the permissions of the account cannot be read.
    """
    if (
        integration.composition is not None
        or policy.manage_jobs_without_queue_name
        or get_queue_name(new, policy.names)
        or not has_known_controller(new, policy.integrations, policy.external_frameworks)
        or not find_request_increases(*(job_pod_sets(job, integration, policy) for job in (new, old)))
    ):
        return []
    try:
        lineage = await find_lineage(new, request.namespace, policy, lookups)
        if (
            lineage.claimed_ancestor is None
            or (await find_lineage(old, request.namespace, policy, lookups)).ancestor is None
        ):
            return []
    except AncestryUnknown:
        # An owner that does not exist any more has no quota that could be exceeded.
        return []
    if await may_set_controller(request.user, new, request.namespace, policy, lookups):
        return []
    owner = (
        f"{lineage.claimed_ancestor.get('kind')} {value_at(lineage.claimed_ancestor, ('metadata', 'name'))}"
    )
    reason = f"this {integration.kind} follows {owner}, which was not charged for its {lineage.difference}"
    return [FieldError.forbidden(integration.templates.pod_sets_field, reason, f"change {owner}")]


async def review_kept_child(
    request: AdmissionRequest, integration: Integration, policy: Policy, lookups: ClusterLookups
) -> list[FieldError]:
    """Check a new job of a suspended, queued owner with a controller that does not stop its running jobs.

    The controller may not have observed the suspension yet. It retries, and then creates a suspended job.

    Raises:
        LookupFailed: the owner cannot be read.
    """
    reference = get_controller(request.obj)
    if reference is None or integration.is_suspended(request.obj, policy.names):
        return []
    named = (reference.get("apiVersion"), reference.get("kind"))
    kind = next((kind for kind in policy.integrations if (kind.api_version, kind.kind) == named), None)
    if kind is None or not kind.ownership.keeps_children or not kind.may_create_kind_of(request.obj):
        return []
    owner = await lookups.get_object(*kind.gvk, request.namespace, str(reference.get("name", "")))
    if (
        owner is None
        or value_at(owner, ("metadata", "uid")) != reference.get("uid")
        or not (policy.manage_jobs_without_queue_name or get_queue_name(owner, policy.names))
        or not kind.is_suspended(owner, policy.names)
    ):
        return []
    reason = f"must be true while {kind.kind} {owner['metadata']['name']} is suspended"
    where = ErrorPath().at(*integration.lifecycle.suspend_path)
    return [FieldError.invalid(where, False, reason, f"wait until the {kind.kind} is admitted")]


def remove_controller_flag(obj: JsonObject) -> JsonObject:
    """Return the object without the ``controller`` flag in its owner references."""
    references = [
        {field: value for field, value in reference.items() if field != "controller"}
        for reference in value_at(obj, _REFERENCES, [])
    ]
    return with_value(obj, _REFERENCES, references)


def controller_warnings(
    submitted: JsonObject, changed: JsonObject, integration: Integration
) -> tuple[str, ...]:
    """Return the warning for the creator of a job without its ``controller`` flag."""
    if get_controller(submitted) is None or get_controller(changed) is not None:
        return ()
    text = "metadata.ownerReferences: controller was removed, only the controller of the owner may set it"
    return (f"{text}; the {integration.kind} is queued",)

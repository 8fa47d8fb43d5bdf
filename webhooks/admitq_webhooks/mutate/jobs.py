"""Mutation of jobs: default queue and priority class, suspension, ``managedBy``, and changes of the kind.

Every step is idempotent, because the API server may call the webhook again after another webhook.
"""

from admitq.integrations.base import Integration
from admitq.integrations.ownership import get_queue_name, has_known_controller
from admitq.serving.authorization import User
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, object_at, value_at, with_value
from admitq_api.labels import DEFAULT_PRIORITY_CLASS, DEFAULT_QUEUE
from admitq_webhooks import owner_reviews
from admitq_webhooks.ancestors import has_managed_ancestor
from admitq_webhooks.lookups import ClusterLookups
from admitq_webhooks.policy import Policy
from admitq_webhooks.review import NO_USER


async def mutate_job(
    job: JsonObject,
    namespace: str,
    integration: Integration,
    policy: Policy,
    lookups: ClusterLookups,
    before: JsonObject | None = None,
    user: User = NO_USER,
) -> JsonObject:
    """Return the job as it should be stored.

    A job that creates no pods does not change. A job that is not managed gets the changes of its kind for all
    jobs. It also gets the default priority class, for the case that it is queued later. It does not get the
    class if lookups of its owners were necessary, because this would be too expensive for each pod of a
    cluster.

    A job with a queued ancestor gets the changes of its kind for such jobs, and no defaults. A new job only
    counts as such if ``user`` may set its controller reference. Otherwise the ``controller`` flag is removed,
    and the job is queued itself.

    ``before`` is the stored job; None for a new job. A running job gets no default queue or class, because
    validation would reject all its updates. It keeps a default class that the update would remove.

    Raises:
        AncestryUnknown: the ancestors of the job cannot be determined.
        LookupFailed: an object or a permission cannot be read.
    """
    if integration.lifecycle.is_ignored(job):
        return job
    names = policy.names
    job = integration.webhook.mutate_every_object(job, policy.kind_rules(job, before=before))
    if integration.ownership.is_held_by_parent(job, names):
        # The group of such a pod follows from its controller.
        if before is None and not await owner_reviews.may_set_controller(
            user, job, namespace, policy, lookups
        ):
            job = owner_reviews.remove_controller_flag(job)
        return integration.webhook.mutate(job, policy.kind_rules(job, before=before))
    named, is_up = (
        get_queue_name(job, names),
        before is not None and not integration.is_suspended(before, names),
    )
    default_queue = not named and not is_up and lookups.has_local_queue(namespace, DEFAULT_QUEUE)
    if not (named or default_queue or policy.manage_jobs_without_queue_name):
        if has_known_controller(job, policy.integrations, policy.external_frameworks):
            return job
        return _with_default_class(job, before, policy, lookups, is_up=is_up)
    if await has_managed_ancestor(job, namespace, policy, lookups):
        if before is not None or await owner_reviews.may_set_controller(
            user, job, namespace, policy, lookups
        ):
            return integration.webhook.mutate_child(job, policy.kind_rules(job, before=before))
        job = owner_reviews.remove_controller_flag(job)
    changed = job
    if default_queue:
        changed = with_value(changed, ("metadata", "labels", names.queue_name), DEFAULT_QUEUE)
    changed = _with_default_class(changed, before, policy, lookups, is_up=is_up)
    if (
        integration.lifecycle.is_suspended is None
        and value_at(changed, integration.lifecycle.suspend_path) is not True
    ):
        changed = integration.with_suspend(changed, True)
    changed = _delegate_to_dispatcher(changed, namespace, integration, policy, lookups)
    return integration.webhook.mutate(changed, policy.kind_rules(changed, before=before))


def _with_default_class(
    job: JsonObject, before: JsonObject | None, policy: Policy, lookups: ClusterLookups, *, is_up: bool
) -> JsonObject:
    key = policy.names.priority_class
    had = object_at(before or {}, ("metadata", "labels")).get(key) == DEFAULT_PRIORITY_CLASS
    if (
        not policy.gates.is_enabled(Gate.WORKLOAD_PRIORITY_CLASS_DEFAULTING)
        or (is_up and not had)
        or object_at(job, ("metadata", "labels")).get(key)
        or not lookups.has_priority_class(DEFAULT_PRIORITY_CLASS)
    ):
        return job
    return with_value(job, ("metadata", "labels", key), DEFAULT_PRIORITY_CLASS)


def _delegate_to_dispatcher(
    job: JsonObject, namespace: str, integration: Integration, policy: Policy, lookups: ClusterLookups
) -> JsonObject:
    """Set ``managedBy`` of a job for another cluster to the dispatcher, unless the job has a value."""
    names, path = policy.names, integration.delegation.managed_by_path
    if path is None or not policy.gates.is_enabled(Gate.MULTIKUEUE):
        return job
    if value_at(job, path, "") not in ("", integration.delegation.own_controller):
        return job
    if names.multikueue_controller not in lookups.admission_check_controllers(
        namespace, get_queue_name(job, names)
    ):
        return job
    return with_value(job, path, integration.get_dispatcher(names))

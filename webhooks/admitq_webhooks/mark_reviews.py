"""Which accounts may change protected marks: asked of the API server, and only when a mark changes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from admitq.integrations.base import Integration, OwnerKind
from admitq.integrations.ownership import controller_of
from admitq.serving.access_reviews import Access
from admitq_api.field_errors import FieldError
from admitq_webhooks.policy import Policy
from admitq_webhooks.review import AdmissionRequest
from admitq_webhooks.validate import marks
from admitq_webhooks.world import World

Object = Mapping[str, Any]

_BUILT_IN: Final = frozenset(
    {
        ("", "ReplicationController"),
        ("apps", "DaemonSet"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("batch", "CronJob"),
        ("batch", "Job"),
    }
)
"""Kinds of Kubernetes itself that create pods and jobs."""


async def review(
    request: AdmissionRequest,
    old: Object,
    new: Object,
    integration: Integration,
    policy: Policy,
    world: World,
) -> list[FieldError]:
    """Check a change of the protected marks of a pod or a job.

    Raises:
        LookupFailed: it is not known what the account may do; the change must not be stored.
    """
    if integration.composition is not None:
        changed = marks.pod_changes(old, new, policy.names)
    elif integration.serving is None:
        changed = marks.job_changes(old, new, integration, policy.names)
    else:
        # The mutating webhook writes the marks of these templates again with each update.
        changed = []
    if not changed or await _may_change(request, old, integration, policy, world):
        return []
    return marks.refusals(changed, policy.names)


async def _may_change(
    request: AdmissionRequest, old: Object, integration: Integration, policy: Policy, world: World
) -> bool:
    if policy.is_own_account(request.user.name):
        return True
    namespace = request.namespace
    if await world.may(request.user, Access("update", policy.names.group, "workloads", "status", namespace)):
        return True
    for kind in _controllers(old, integration, policy):
        plural = await world.plural(*kind)
        if plural is not None and await world.may(
            request.user, Access("update", kind.group, plural, "status", namespace)
        ):
            return True
    return False


def _controllers(old: Object, integration: Integration, policy: Policy) -> Iterator[OwnerKind]:
    """The kinds of which a controller may change the object: that of its owner, and for jobs their own.

    The stored object says which; what a request adds is not believed. Only kinds that create pods or jobs
    count, for the right to write the status of another kind says nothing.
    """
    reference = controller_of(old)
    if reference is not None:
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        kind = OwnerKind(group, version, str(reference.get("kind", "")))
        if _is_known(kind, policy):
            yield kind
    if integration.composition is None:
        yield OwnerKind(*integration.gvk)


def _is_known(kind: OwnerKind, policy: Policy) -> bool:
    followed = {(one.group, one.kind) for one in policy.integrations}
    followed |= {(one.group, one.kind) for one in policy.external_frameworks}
    # A pod that makes pods is no controller: the status of pods is written by kubelets.
    return (kind.group, kind.kind) in (followed | _BUILT_IN) - {("", "Pod")}

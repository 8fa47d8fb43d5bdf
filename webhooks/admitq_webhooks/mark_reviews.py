"""Decides which accounts may change protected marks. Only changes of marks cost a call to the API server."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from admitq.integrations.base import Integration
from admitq.integrations.ownership import get_controller
from admitq.integrations.references import OwnerKind
from admitq.serving.access_reviews import Access
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import JsonObject, value_at
from admitq_webhooks.lookups import ClusterLookups
from admitq_webhooks.policy import Policy
from admitq_webhooks.review import AdmissionRequest
from admitq_webhooks.validate import marks

_BUILT_IN_CONTROLLERS: Final = frozenset(
    {
        ("", "ReplicationController"),
        ("apps", "DaemonSet"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("batch", "CronJob"),
        ("batch", "Job"),
    }
)
"""Built-in kinds of Kubernetes that create pods and jobs."""


async def review_marks(
    request: AdmissionRequest,
    old: JsonObject,
    new: JsonObject,
    integration: Integration,
    policy: Policy,
    lookups: ClusterLookups,
) -> list[FieldError]:
    """Check a change of the protected marks of a pod or a job.

    Raises:
        LookupFailed: the permissions of the account are not known, so the change must be rejected.
    """
    if integration.composition is not None:
        return await review_pod_marks(request, policy, lookups)
    if integration.serving is not None:
        # The mutating webhook rewrites the marks of these templates with each update.
        return []
    changed = marks.changed_job_marks(old, new, integration, policy.names)
    kinds = [*_controllers(old, policy), OwnerKind(*integration.gvk)]
    return await _reject_unless_allowed(request, changed, kinds, policy, lookups)


async def review_pod_marks(
    request: AdmissionRequest, policy: Policy, lookups: ClusterLookups
) -> list[FieldError]:
    """Check a change of a pod's protected marks, or of the fields by which its controller finds it.

    Raises:
        LookupFailed: the permissions of the account are not known, so the change must be rejected.
    """
    old, new, names = request.old, request.obj, policy.names
    selected: Collection[str] = ()
    if marks.is_charged_to_job(old, names) and any("/" not in key for key in marks.changed_labels(old, new)):
        selected = await _selector_keys(old, request.namespace, lookups)
    changed = [
        *marks.changed_pod_marks(old, new, names),
        *marks.removed_selection_fields(old, new, names, selected),
    ]
    return await _reject_unless_allowed(request, changed, _controllers(old, policy), policy, lookups)


async def _selector_keys(pod: JsonObject, namespace: str, lookups: ClusterLookups) -> set[str]:
    """Return the keys of the labels by which the Job of a pod finds its pods; users can choose them."""
    reference = get_controller(pod) or {}
    if (reference.get("apiVersion"), reference.get("kind")) != ("batch/v1", "Job"):
        return set()
    job = await lookups.get_object("batch", "v1", "Job", namespace, str(reference.get("name", "")))
    stated = value_at(job, ("spec", "selector", "matchExpressions"), [])
    return {
        *value_at(job, ("spec", "selector", "matchLabels"), {}),
        *(str(value_at(requirement, ("key",), "")) for requirement in stated),
    }


async def _reject_unless_allowed(
    request: AdmissionRequest,
    changed: list[ErrorPath],
    kinds: Iterable[OwnerKind],
    policy: Policy,
    lookups: ClusterLookups,
) -> list[FieldError]:
    if not changed or await _may_change(request, kinds, policy, lookups):
        return []
    return marks.mark_errors(changed, policy.names)


async def _may_change(
    request: AdmissionRequest, kinds: Iterable[OwnerKind], policy: Policy, lookups: ClusterLookups
) -> bool:
    if policy.is_own_account(request.user.name):
        return True
    namespace = request.namespace
    if await lookups.is_allowed(
        request.user, Access("update", policy.names.group, "workloads", "status", namespace)
    ):
        return True
    for kind in kinds:
        plural = await lookups.plural(*kind)
        if plural is not None and await lookups.is_allowed(
            request.user, Access("update", kind.group, plural, "status", namespace)
        ):
            return True
    return False


def _controllers(old: JsonObject, policy: Policy) -> Iterator[OwnerKind]:
    """Yield the kind of the owner with a controller that may change the object.

    The stored object decides, not the request. Only kinds that create pods or jobs count: a permission to
    write the status of another kind proves nothing.
    """
    reference = get_controller(old)
    if reference is not None:
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        kind = OwnerKind(group, version, str(reference.get("kind", "")))
        if _is_known(kind, policy):
            yield kind


def _is_known(kind: OwnerKind, policy: Policy) -> bool:
    followed = {(integration.group, integration.kind) for integration in policy.integrations}
    followed |= {(framework.group, framework.kind) for framework in policy.external_frameworks}
    # A pod that creates pods does not count as controller, because kubelets write the status of pods.
    return (kind.group, kind.kind) in (followed | _BUILT_IN_CONTROLLERS) - {("", "Pod")}

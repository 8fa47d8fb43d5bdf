"""In-place resizes of pods: a pod that has quota asks for no more than its Workload was admitted with."""

from collections.abc import Mapping
from typing import Any, Final

from admitq.integrations.paths import value_at
from admitq.pod_charges import NO_CHARGE, charge_of, granted
from admitq.transitions import is_reserved
from admitq_api.field_errors import FieldError, Path
from admitq_api.labels import Names
from admitq_webhooks.policy import Policy
from admitq_webhooks.review import AdmissionRequest
from admitq_webhooks.validate.syntax import mapping
from admitq_webhooks.world import World

Object = Mapping[str, Any]

_REMEDY: Final = "create the pod, or its job, again with these requests"
_MAIN: Final = "main"


async def review(request: AdmissionRequest, policy: Policy, world: World) -> list[FieldError]:
    """Check a resize of a pod.

    A resize may lower requests, and raise them again to those of the podset. Where the Workload is not found
    or has no quota, requests may not be raised at all.

    Raises:
        LookupFailed: the Workload cannot be read; the change must not be stored.
    """
    names = policy.names
    if not _is_charged(request.old, names):
        return []
    after = charge_of(mapping(request.obj, "spec"))
    raised = after.beyond(charge_of(mapping(request.old, "spec")))
    if not raised:
        return []
    workload = await _workload_of(request, names, world)
    pod_set = mapping(request.old, "metadata", "labels").get(names.podset, _MAIN)
    allowed = granted(workload).get(pod_set, NO_CHARGE) if workload and is_reserved(workload) else NO_CHARGE
    beyond = sorted(set(raised).intersection(after.beyond(allowed)))
    if not beyond:
        return []
    reason = f"the pod would ask for more {', '.join(beyond)} than was admitted"
    return [FieldError.forbidden(Path("spec"), reason, _REMEDY)]


def _is_charged(pod: Object, names: Names) -> bool:
    """Whether the pod belongs to a Workload: of its own, of its group, or of its job."""
    labels, annotations = (mapping(pod, "metadata", place) for place in ("labels", "annotations"))
    return (
        labels.get(names.managed) == "true"
        or names.podset in labels
        or names.workload in annotations
        or names.workload_slice_name in annotations
    )


async def _workload_of(request: AdmissionRequest, names: Names, world: World) -> Object | None:
    name = value_at(request.old, ("metadata", "annotations", names.workload))
    if not isinstance(name, str):
        return None
    return await world.owner(names.group, names.version, "Workload", request.namespace, name)

"""What admission checks add to the pods of a Workload, as far as it decides on which nodes these may run."""

from collections.abc import Iterator, Mapping
from typing import Any

from admitq.core.model import PodSetUpdate
from admitq.translate.metadata import read_labels
from admitq.translate.taints import read_tolerations
from admitq_api.stored_fields import require_list, require_object, require_text


def read_pod_set_updates(checks: object) -> tuple[PodSetUpdate, ...]:
    """Read the node selectors and tolerations in ``status.admissionChecks``, in the order of the checks.

    Raises:
        MalformedField: a field has another type.
    """
    return tuple(
        update
        for index, check in enumerate(require_list(checks, "status.admissionChecks"))
        for update in _read_updates(check, f"status.admissionChecks[{index}].podSetUpdates")
    )


def _read_updates(check: Mapping[str, Any], path: str) -> Iterator[PodSetUpdate]:
    for index, raw in enumerate(require_list(check.get("podSetUpdates"), path)):
        field = f"{path}[{index}]"
        update = PodSetUpdate(
            require_text(raw.get("name"), f"{field}.name"),
            read_labels(require_object(raw.get("nodeSelector"), f"{field}.nodeSelector"), field),
            read_tolerations(raw.get("tolerations"), f"{field}.tolerations"),
        )
        if update.node_selector or update.tolerations:
            yield update

"""Rules of ResourceFlavors that their schema cannot express."""

from collections.abc import Mapping
from typing import Any

from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import aligned_objects_at, object_at
from admitq_webhooks.validate.syntax import check_labels, check_taints, check_tolerations


def validate(flavor: Mapping[str, Any]) -> list[FieldError]:
    """Check a ResourceFlavor."""
    spec = object_at(flavor, ("spec",))
    return [
        *check_labels(object_at(spec, ("nodeLabels",)), ErrorPath("spec.nodeLabels")),
        *check_taints(aligned_objects_at(spec, ("nodeTaints",)), ErrorPath("spec.nodeTaints")),
        *check_tolerations(aligned_objects_at(spec, ("tolerations",)), ErrorPath("spec.tolerations")),
    ]

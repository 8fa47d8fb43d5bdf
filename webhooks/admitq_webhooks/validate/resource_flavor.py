"""Rules of ResourceFlavors that their schema cannot say."""

from collections.abc import Mapping
from typing import Any

from admitq_api.field_errors import FieldError, Path
from admitq_webhooks.validate.syntax import labels, mapping, objects, taints, tolerations


def validate(flavor: Mapping[str, Any]) -> list[FieldError]:
    """Check a ResourceFlavor."""
    spec = mapping(flavor, "spec")
    return [
        *labels(mapping(spec, "nodeLabels"), Path("spec.nodeLabels")),
        *taints(objects(spec, "nodeTaints"), Path("spec.nodeTaints")),
        *tolerations(objects(spec, "tolerations"), Path("spec.tolerations")),
    ]

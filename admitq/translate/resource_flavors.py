"""ResourceFlavors."""

from typing import Final

from admitq.core.model import ResourceFlavor
from admitq.translate.metadata import read_labels
from admitq.translate.taints import read_taints, read_tolerations
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import require_object, require_text

TOPOLOGY_OF_FLAVOR: Final = ("spec", "topologyName")
"""The field with the Topology of a flavor."""


def read_resource_flavor(obj: JsonObject) -> ResourceFlavor:
    """Read a ResourceFlavor.

    Raises:
        MalformedField: a field has another type.
    """
    spec = require_object(obj.get("spec"), "spec")
    return ResourceFlavor(
        name=obj["metadata"]["name"],
        node_labels=read_labels(spec.get("nodeLabels"), "spec.nodeLabels"),
        node_taints=read_taints(spec.get("nodeTaints"), "spec.nodeTaints"),
        tolerations=read_tolerations(spec.get("tolerations"), "spec.tolerations"),
        topology_name=require_text(spec.get("topologyName"), "spec.topologyName") or None,
    )

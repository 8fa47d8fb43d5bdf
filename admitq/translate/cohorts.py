"""Cohorts: quotas and weights."""

from admitq.core.model import Cohort
from admitq.translate.quotas import read_fair_sharing_weight, read_resource_groups
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import require_object, require_text


def read_cohort(obj: JsonObject) -> Cohort:
    """Read a Cohort.

    Raises:
        MalformedField: a quantity is not readable.
    """
    spec = require_object(obj.get("spec"), "spec")
    return Cohort(
        name=obj["metadata"]["name"],
        parent=require_text(spec.get("parentName"), "spec.parentName") or None,
        resource_groups=read_resource_groups(spec.get("resourceGroups")),
        fair_weight=read_fair_sharing_weight(spec),
    )

"""AdmissionChecks, and the checks that a ClusterQueue names."""

from admitq.core.model import AdmissionCheck, AdmissionCheckRule
from admitq_api import conditions
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import require_list, require_object, require_text, require_texts


def read_admission_check_rules(cluster_queue: JsonObject) -> tuple[AdmissionCheckRule, ...]:
    """Read the admission checks that a ClusterQueue names, each with the flavors that it applies to.

    Raises:
        MalformedField: a list is not readable.
    """
    path = "spec.admissionChecksStrategy"
    spec = require_object(cluster_queue.get("spec"), "spec")
    checks = require_object(spec.get("admissionChecksStrategy"), path).get("admissionChecks")
    return tuple(
        AdmissionCheckRule(
            require_text(rule["name"], path), require_texts(rule.get("onFlavors"), "onFlavors")
        )
        for rule in require_list(checks, f"{path}.admissionChecks")
    )


def read_admission_check(obj: JsonObject) -> AdmissionCheck:
    """Read an AdmissionCheck."""
    status = require_object(obj.get("status"), "status")
    return AdmissionCheck(
        name=obj["metadata"]["name"],
        controller_name=require_text(
            require_object(obj.get("spec"), "spec").get("controllerName"), "spec.controllerName"
        ),
        active=conditions.is_true(status.get("conditions"), ConditionType.ACTIVE),
    )

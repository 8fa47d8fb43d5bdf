"""AdmissionChecks, and the checks that a ClusterQueue names."""

from admitq.core.model import AdmissionCheck, AdmissionCheckRule
from admitq.integrations.paths import Object
from admitq_api import conditions
from admitq_api.conditions import ConditionType
from admitq_api.stored_fields import items, mapping, text, texts


def read_admission_check_rules(cluster_queue: Object) -> tuple[AdmissionCheckRule, ...]:
    """Read the admission checks that a ClusterQueue names, each with the flavors that it applies to.

    Raises:
        Malformed: a list is not readable.
    """
    path = "spec.admissionChecksStrategy"
    spec = mapping(cluster_queue.get("spec"), "spec")
    checks = mapping(spec.get("admissionChecksStrategy"), path).get("admissionChecks")
    return tuple(
        AdmissionCheckRule(text(rule["name"], path), texts(rule.get("onFlavors"), "onFlavors"))
        for rule in items(checks, f"{path}.admissionChecks")
    )


def read_admission_check(obj: Object) -> AdmissionCheck:
    """Read an AdmissionCheck."""
    status = mapping(obj.get("status"), "status")
    return AdmissionCheck(
        name=obj["metadata"]["name"],
        controller_name=text(mapping(obj.get("spec"), "spec").get("controllerName"), "spec.controllerName"),
        active=conditions.is_true(status.get("conditions"), ConditionType.ACTIVE),
    )

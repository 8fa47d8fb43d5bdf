"""ClusterQueues: quotas, policies and admission checks."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from admitq.core.model import (
    BorrowWithinCohort,
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorFungibilityPreference,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceGroup,
)
from admitq.translate.admission_checks import read_admission_check_rules
from admitq.translate.enum_values import read_value_of
from admitq.translate.metadata import read_time
from admitq.translate.quotas import read_fair_sharing_weight, read_resource_groups, read_stop_policy
from admitq.translate.selectors import read_label_selector
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import MalformedField, optional_int, require_object, require_text


def _read_preemption_policy(spec: Mapping[str, Any]) -> ClusterQueuePreemption:
    path = "spec.preemption"
    preemption = require_object(spec.get("preemption"), path)
    borrow = require_object(preemption.get("borrowWithinCohort"), f"{path}.borrowWithinCohort")

    def policy(of: Mapping[str, Any], name: str, field: str) -> PreemptionPolicy:
        return read_value_of(PreemptionPolicy, of.get(name), field) or PreemptionPolicy.NEVER

    return ClusterQueuePreemption(
        reclaim_within_cohort=policy(preemption, "reclaimWithinCohort", f"{path}.reclaimWithinCohort"),
        within_cluster_queue=policy(preemption, "withinClusterQueue", f"{path}.withinClusterQueue"),
        borrow_within_cohort=BorrowWithinCohort(
            policy(borrow, "policy", f"{path}.borrowWithinCohort.policy"),
            optional_int(
                borrow.get("maxPriorityThreshold"), f"{path}.borrowWithinCohort.maxPriorityThreshold"
            ),
        ),
    )


def _read_flavor_fungibility(spec: Mapping[str, Any]) -> FlavorFungibility:
    path = "spec.flavorFungibility"
    raw = require_object(spec.get("flavorFungibility"), path)
    borrow, preempt = (
        read_value_of(FlavorFungibilityPolicy, raw.get(name), f"{path}.{name}")
        for name in ("whenCanBorrow", "whenCanPreempt")
    )
    return FlavorFungibility(
        borrow or FlavorFungibilityPolicy.MAY_STOP_SEARCH,
        preempt or FlavorFungibilityPolicy.TRY_NEXT_FLAVOR,
        read_value_of(FlavorFungibilityPreference, raw.get("preference"), f"{path}.preference"),
    )


def read_cluster_queue(obj: JsonObject) -> ClusterQueue:
    """Read a ClusterQueue.

    Raises:
        MalformedField: a quantity is not readable, or an operator or an enum value is unknown.
    """
    metadata, spec = obj["metadata"], require_object(obj.get("spec"), "spec")
    return ClusterQueue(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        cohort=require_text(spec.get("cohortName"), "spec.cohortName") or None,
        resource_groups=read_resource_groups(spec.get("resourceGroups")),
        queueing_strategy=read_value_of(
            QueueingStrategy, spec.get("queueingStrategy"), "spec.queueingStrategy"
        )
        or QueueingStrategy.BEST_EFFORT_FIFO,
        namespace_selector=read_label_selector(spec.get("namespaceSelector"), "spec.namespaceSelector"),
        stop_policy=read_stop_policy(spec.get("stopPolicy")),
        admission_checks=read_admission_check_rules(obj),
        flavor_fungibility=_read_flavor_fungibility(spec),
        preemption=_read_preemption_policy(spec),
        fair_weight=read_fair_sharing_weight(spec),
        usage_based_admission=require_object(spec.get("admissionScope"), "spec.admissionScope").get(
            "admissionMode"
        )
        == "UsageBasedAdmissionFairSharing",
        terminating="deletionTimestamp" in metadata,
        created_at=read_time(metadata.get("creationTimestamp")),
    )


def read_quarantined_cluster_queue(obj: JsonObject) -> ClusterQueue:
    """Read only the quota and the cohort of a ClusterQueue of which other fields are not readable.

    Quota that is not readable counts as 0. Then the usage of the ClusterQueue counts against its cohort.

    Raises:
        MalformedField: the name of the cohort is not a string.
    """
    metadata, spec = obj["metadata"], require_object(obj.get("spec"), "spec")
    groups: tuple[ResourceGroup, ...] = ()
    with suppress(MalformedField, KeyError, TypeError, ValueError, AttributeError):
        groups = read_resource_groups(spec.get("resourceGroups"))
    return ClusterQueue(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        cohort=require_text(spec.get("cohortName"), "spec.cohortName") or None,
        resource_groups=groups,
        created_at=read_time(metadata.get("creationTimestamp")),
        quarantined=True,
    )

"""ClusterQueues, Cohorts and LocalQueues: quotas, policies and weights."""

from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from admitq.core.amounts import amounts
from admitq.core.model import (
    ONE,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    ConsumedResources,
    FlavorFungibility,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
)
from admitq.core.preemption.policies import NEVER, POLICIES
from admitq.translate.admission_checks import read_admission_check_rules
from admitq.translate.metadata import key_of, read_time
from admitq.translate.selectors import read_label_selector
from admitq_api import conditions
from admitq_api.json_objects import JsonObject
from admitq_api.quantity import QuantityError, amount
from admitq_api.stored_fields import (
    MalformedField,
    optional_amount,
    optional_int,
    require_amount,
    require_exact_amount,
    require_list,
    require_object,
    require_text,
    require_texts,
)


def _read_stop_policy(raw: Any) -> StopPolicy:
    try:
        return StopPolicy(raw or "None")
    except ValueError as error:
        raise MalformedField("spec.stopPolicy", f"must be one of {', '.join(StopPolicy)}") from error


def _read_preemption_policy(spec: Mapping[str, Any]) -> PreemptionPolicy:
    path = "spec.preemption"
    preemption = require_object(spec.get("preemption"), path)
    borrow = require_object(preemption.get("borrowWithinCohort"), f"{path}.borrowWithinCohort")

    def policy(of: Mapping[str, Any], name: str, field: str) -> str:
        value = of.get(name) or NEVER
        if value not in POLICIES:
            raise MalformedField(field, f"must be one of {', '.join(POLICIES)}")
        return value

    return PreemptionPolicy(
        reclaim_within_cohort=policy(preemption, "reclaimWithinCohort", f"{path}.reclaimWithinCohort"),
        within_cluster_queue=policy(preemption, "withinClusterQueue", f"{path}.withinClusterQueue"),
        borrow_within_cohort=BorrowWithinCohort(
            policy(borrow, "policy", f"{path}.borrowWithinCohort.policy"),
            optional_int(
                borrow.get("maxPriorityThreshold"), f"{path}.borrowWithinCohort.maxPriorityThreshold"
            ),
        ),
    )


def _read_resource_groups(raw: Any) -> tuple[ResourceGroup, ...]:
    groups: list[ResourceGroup] = []
    for group_index, group in enumerate(require_list(raw, "spec.resourceGroups")):
        path = f"spec.resourceGroups[{group_index}]"
        covered = require_texts(group.get("coveredResources"), f"{path}.coveredResources")
        flavors: list[FlavorQuotas] = []
        for flavor_index, flavor in enumerate(require_list(group.get("flavors"), f"{path}.flavors")):
            flavor_path = f"{path}.flavors[{flavor_index}]"
            quotas: list[tuple[str, ResourceQuota]] = []
            for index, quota in enumerate(require_list(flavor.get("resources"), f"{flavor_path}.resources")):
                field = f"{flavor_path}.resources[{index}]"
                resource = require_text(quota["name"], f"{field}.name")
                quotas.append(
                    (
                        resource,
                        ResourceQuota(
                            require_amount(resource, quota.get("nominalQuota", 0), f"{field}.nominalQuota"),
                            optional_amount(resource, quota, "borrowingLimit", field),
                            optional_amount(resource, quota, "lendingLimit", field),
                        ),
                    )
                )
            flavors.append(FlavorQuotas(require_text(flavor["name"], f"{flavor_path}.name"), tuple(quotas)))
        groups.append(ResourceGroup(covered, tuple(flavors)))
    return tuple(groups)


def _read_fair_weight(spec: Mapping[str, Any]) -> Fraction:
    weight = require_object(spec.get("fairSharing"), "spec.fairSharing").get("weight")
    return ONE if weight is None else require_exact_amount(weight, "spec.fairSharing.weight")


def _read_consumed_resources(local_queue: JsonObject) -> ConsumedResources | None:
    """Read the consumed resources in the status of a LocalQueue; None if the status has none.

    Another program may have written an invalid or a negative amount. Such an amount counts as 0 until the
    next status replaces it, so that a status cannot stop its queue.
    """
    path = "status.fairSharing.admissionFairSharingStatus"
    status = require_object(local_queue.get("status"), "status")
    shares = require_object(status.get("fairSharing"), "status.fairSharing")
    consumption = require_object(shares.get("admissionFairSharingStatus"), path)
    try:
        at = conditions.parse_time(consumption.get("lastUpdate") or "")
    except (TypeError, ValueError):
        return None
    consumed: dict[str, int] = {}
    for resource, value in require_object(
        consumption.get("consumedResources"), f"{path}.consumedResources"
    ).items():
        with suppress(QuantityError):
            consumed[resource] = max(0, amount(resource, value))
    return ConsumedResources(amounts(consumed), at)


def read_cluster_queue(obj: JsonObject) -> ClusterQueue:
    """Read a ClusterQueue.

    Raises:
        MalformedField: a quantity is not readable, or an operator or an enum value is unknown.
    """
    metadata, spec = obj["metadata"], require_object(obj.get("spec"), "spec")
    fungibility = require_object(spec.get("flavorFungibility"), "spec.flavorFungibility")
    strategy = spec.get("queueingStrategy") or QueueingStrategy.BEST_EFFORT_FIFO
    try:
        queueing = QueueingStrategy(strategy)
    except ValueError as error:
        raise MalformedField(
            "spec.queueingStrategy", f"must be one of {', '.join(QueueingStrategy)}"
        ) from error
    return ClusterQueue(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        cohort=require_text(spec.get("cohortName"), "spec.cohortName") or None,
        resource_groups=_read_resource_groups(spec.get("resourceGroups")),
        queueing_strategy=queueing,
        namespace_selector=read_label_selector(spec.get("namespaceSelector"), "spec.namespaceSelector"),
        stop_policy=_read_stop_policy(spec.get("stopPolicy")),
        admission_checks=read_admission_check_rules(obj),
        flavor_fungibility=FlavorFungibility(
            when_can_borrow=require_text(fungibility.get("whenCanBorrow"), "spec.flavorFungibility")
            or "MayStopSearch",
            when_can_preempt=require_text(fungibility.get("whenCanPreempt"), "spec.flavorFungibility")
            or "TryNextFlavor",
            preference=require_text(fungibility.get("preference"), "spec.flavorFungibility.preference")
            or None,
        ),
        preemption=_read_preemption_policy(spec),
        fair_weight=_read_fair_weight(spec),
        usage_based_admission=require_object(spec.get("admissionScope"), "spec.admissionScope").get(
            "admissionMode"
        )
        == "UsageBasedAdmissionFairSharing",
        terminating="deletionTimestamp" in metadata,
        created_at=read_time(metadata.get("creationTimestamp")),
    )


def read_quarantined_cluster_queue(obj: JsonObject) -> ClusterQueue:
    """Read the quota and cohort of a ClusterQueue, whatever else of it cannot be read.

    A quota that cannot be read is none: what its workloads hold then counts against its cohort.

    Raises:
        MalformedField: the name of the cohort is not a string.
    """
    metadata, spec = obj["metadata"], require_object(obj.get("spec"), "spec")
    groups: tuple[ResourceGroup, ...] = ()
    with suppress(MalformedField, KeyError, TypeError, ValueError, AttributeError):
        groups = _read_resource_groups(spec.get("resourceGroups"))
    return ClusterQueue(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        cohort=require_text(spec.get("cohortName"), "spec.cohortName") or None,
        resource_groups=groups,
        created_at=read_time(metadata.get("creationTimestamp")),
        quarantined=True,
    )


def read_cohort(obj: JsonObject) -> Cohort:
    """Read a Cohort.

    Raises:
        MalformedField: a quantity is not readable.
    """
    spec = require_object(obj.get("spec"), "spec")
    return Cohort(
        name=obj["metadata"]["name"],
        parent=require_text(spec.get("parentName"), "spec.parentName") or None,
        resource_groups=_read_resource_groups(spec.get("resourceGroups")),
        fair_weight=_read_fair_weight(spec),
    )


def read_local_queue(obj: JsonObject) -> LocalQueue:
    """Read a LocalQueue.

    Raises:
        MalformedField: the stop policy is unknown, or the weight is not readable.
    """
    metadata, spec = obj["metadata"], require_object(obj.get("spec"), "spec")
    return LocalQueue(
        key=key_of(obj),
        cluster_queue=require_text(spec.get("clusterQueue"), "spec.clusterQueue"),
        uid=metadata.get("uid", ""),
        stop_policy=_read_stop_policy(spec.get("stopPolicy")),
        fair_weight=_read_fair_weight(spec),
        consumed=_read_consumed_resources(obj),
        terminating="deletionTimestamp" in metadata,
    )

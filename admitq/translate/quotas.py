"""Fields that several kinds of queues have: resource groups, the weight in fair sharing, the stop policy."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from admitq.core.model import ONE, FlavorQuotas, ResourceGroup, ResourceQuota, StopPolicy
from admitq.translate.enum_values import read_value_of
from admitq_api.stored_fields import (
    optional_amount,
    require_amount,
    require_exact_amount,
    require_list,
    require_object,
    require_text,
    require_texts,
)


def read_stop_policy(raw: Any) -> StopPolicy:
    """Read the stop policy of a queue; an absent one is None.

    Raises:
        MalformedField: the policy is unknown.
    """
    return read_value_of(StopPolicy, raw, "spec.stopPolicy") or StopPolicy.NONE


def read_resource_groups(raw: Any) -> tuple[ResourceGroup, ...]:
    """Read ``spec.resourceGroups``.

    Raises:
        MalformedField: a quantity is not readable.
    """
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


def read_fair_sharing_weight(spec: Mapping[str, Any]) -> Fraction:
    """Read the weight in fair sharing; 1 if it is absent.

    Raises:
        MalformedField: the weight is not a quantity.
    """
    weight = require_object(spec.get("fairSharing"), "spec.fairSharing").get("weight")
    return ONE if weight is None else require_exact_amount(weight, "spec.fairSharing.weight")

"""Rules of the resource groups and the fair sharing weight of ClusterQueues and Cohorts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from admitq_api.field_errors import ErrorPath, FieldError, check_text
from admitq_api.json_objects import aligned_objects_at, object_at, text_at
from admitq_api.quantity import QuantityError, parse_quantity
from admitq_api.syntax import check_dns_subdomain, check_qualified_name
from admitq_webhooks.validate.syntax import texts_at

MAX_FLAVORS: Final = 256
MAX_RESOURCES: Final = 256
MAX_QUOTAS_IN_GROUP: Final = 512
SMALLEST_WEIGHT: Final = Fraction(1, 10**9)
"""Weights are 0, or larger than this."""

_QUANTITIES: Final = ("nominalQuota", "borrowingLimit", "lendingLimit")


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """Rules that differ between the quotas of ClusterQueues and those of Cohorts.

    Attributes:
        has_parent: whether the object belongs to a cohort, with which it can borrow and lend.
        parent: the word for the cohort in messages.
        parent_field: the field with the name of the cohort.
        lending_up_to_nominal: whether the lending limit may not exceed the nominal quota.
    """

    has_parent: bool
    parent: str
    parent_field: str
    lending_up_to_nominal: bool


def validate_resource_groups(spec: Mapping[str, Any], rules: QuotaRules) -> Iterator[FieldError]:
    """Check all groups of the spec of a ClusterQueue or a Cohort."""
    path = ErrorPath("spec.resourceGroups")
    groups = aligned_objects_at(spec, ("resourceGroups",))
    flavors = sum(len(aligned_objects_at(group, ("flavors",))) for group in groups)
    resources = sum(len(texts_at(group, ("coveredResources",))) for group in groups)
    if flavors > MAX_FLAVORS:
        yield FieldError.too_many(path, flavors, MAX_FLAVORS)
    if resources > MAX_RESOURCES:
        yield FieldError.too_many(path, resources, MAX_RESOURCES)
    seen_resources: set[str] = set()
    seen_flavors: set[str] = set()
    for place, group in enumerate(groups):
        at = path.at(place)
        covered = texts_at(group, ("coveredResources",))
        yield from _covered(covered, at.at("coveredResources"), seen_resources)
        entries = sum(
            len(aligned_objects_at(flavor, ("resources",)))
            for flavor in aligned_objects_at(group, ("flavors",))
        )
        if entries > MAX_QUOTAS_IN_GROUP:
            yield FieldError.too_many(at.at("flavors"), entries, MAX_QUOTAS_IN_GROUP)
        for index, flavor in enumerate(aligned_objects_at(group, ("flavors",))):
            where = at.at("flavors", index)
            name = text_at(flavor, ("name",))
            yield from check_text(where.at("name"), name, check_dns_subdomain)
            if name in seen_flavors:
                yield FieldError.duplicate(where.at("name"), name, "a flavor belongs to one resource group")
            seen_flavors.add(name)
            yield from _flavor(flavor, covered, where, rules)


def _covered(covered: list[str], path: ErrorPath, earlier: set[str]) -> Iterator[FieldError]:
    for place, resource in enumerate(covered):
        yield from check_text(path.at(place), resource, check_qualified_name)
        if resource in earlier:
            yield FieldError.duplicate(path.at(place), resource, "a resource belongs to one resource group")
        earlier.add(resource)


def _flavor(
    flavor: Mapping[str, Any], covered: list[str], path: ErrorPath, rules: QuotaRules
) -> Iterator[FieldError]:
    quotas = aligned_objects_at(flavor, ("resources",))
    if len(quotas) != len(covered):
        yield FieldError.invalid(
            path.at("resources"),
            [text_at(quota, ("name",)) for quota in quotas],
            "flavors must have the same number of resources as coveredResources",
            f"list {', '.join(covered) or 'none'}, in this order",
        )
    for place, quota in enumerate(quotas):
        at = path.at("resources", place)
        name = text_at(quota, ("name",))
        if place < len(covered) and name != covered[place]:
            yield FieldError.invalid(
                at.at("name"),
                name,
                "must match the name in coveredResources",
                f"{covered[place]} is expected at this place",
            )
        yield from _quota(quota, at, rules)


def _quota(quota: Mapping[str, Any], path: ErrorPath, rules: QuotaRules) -> Iterator[FieldError]:
    amounts: dict[str, Fraction] = {}
    for name in _QUANTITIES:
        value = quota.get(name)
        if value is None:
            if name == "nominalQuota":
                yield FieldError.required(path.at(name), "set an amount, such as 0")
            continue
        try:
            amounts[name] = parse_quantity(value)
        except QuantityError as error:
            yield FieldError.invalid(path.at(name), value, str(error))
            continue
        if amounts[name] < 0:
            yield FieldError.invalid(path.at(name), value, "must be greater than or equal to 0")
    for name in ("borrowingLimit", "lendingLimit"):
        if not rules.has_parent and quota.get(name) is not None:
            yield FieldError.invalid(
                path.at(name),
                quota[name],
                f"must be nil when {rules.parent} is empty",
                f"set {rules.parent_field}, or leave the limit out",
            )
    lending = amounts.get("lendingLimit")
    nominal = amounts.get("nominalQuota")
    if rules.lending_up_to_nominal and lending is not None and nominal is not None and lending > nominal:
        yield FieldError.invalid(
            path.at("lendingLimit"), quota["lendingLimit"], "must be less than or equal to the nominalQuota"
        )


def validate_fair_sharing(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Check the weight: 0, or greater than ``SMALLEST_WEIGHT``, so that shares can be divided by it."""
    weight = object_at(spec, ("fairSharing",)).get("weight")
    if weight is None:
        return
    path = ErrorPath("spec.fairSharing.weight")
    try:
        value = parse_quantity(weight)
    except QuantityError as error:
        yield FieldError.invalid(path, weight, str(error))
        return
    if value < 0:
        yield FieldError.invalid(path, weight, "must be greater than or equal to 0")
    elif 0 < value <= SMALLEST_WEIGHT:
        yield FieldError.invalid(
            path, weight, "must be either 0 or greater than 1e-9", "choose a larger weight"
        )

"""Rules of ClusterQueues that their schema cannot say."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.field_errors import FieldError, Path, new_errors
from admitq_api.meaning import same_meaning
from admitq_api.selectors import validate_selector
from admitq_api.syntax import dns_subdomain
from admitq_webhooks.validate.quotas import QuotaRules, validate_fair_sharing, validate_resource_groups
from admitq_webhooks.validate.syntax import is_being_deleted, mapping, named, objects, text, texts

MAX_CONCURRENT_FLAVORS: Final = 16

Object = Mapping[str, Any]


def validate_create(cluster_queue: Object, gates: FeatureGates) -> list[FieldError]:
    """Check a new ClusterQueue."""
    spec = mapping(cluster_queue, "spec")
    return [*_spec(spec, gates), *_on_flavors(spec)]


def validate_update(old: Object, new: Object, gates: FeatureGates) -> list[FieldError]:
    """Check a change. One that is being deleted is let go, whatever it says."""
    if is_being_deleted(old):
        return []
    before, after = mapping(old, "spec"), mapping(new, "spec")
    errors = new_errors(_spec(after, gates), _spec(before, gates))
    errors.extend(_on_flavors(after, tolerated=_tolerated_lists(before, after, gates)))
    if gates.enabled(Gate.CONCURRENT_ADMISSION) and not same_meaning(
        before.get("concurrentAdmissionPolicy"), after.get("concurrentAdmissionPolicy")
    ):
        errors.append(
            FieldError.invalid(
                "spec.concurrentAdmissionPolicy",
                after.get("concurrentAdmissionPolicy"),
                "field is immutable",
                "create another ClusterQueue",
            )
        )
    return errors


def _flavor_names(spec: Object) -> list[str]:
    return [
        text(flavor, "name")
        for group in objects(spec, "resourceGroups")
        for flavor in objects(group, "flavors")
    ]


def _tolerated_lists(before: Object, after: Object, gates: FeatureGates) -> Mapping[str, frozenset[str]]:
    """The lists of flavors by check that stay as they are, where the ClusterQueue names the same flavors."""
    same_flavors = frozenset(_flavor_names(before)) == frozenset(_flavor_names(after))
    if not same_flavors or gates.enabled(Gate.REJECT_UPDATES_WITH_INVALID_ON_FLAVORS):
        return {}
    checks = objects(before, "admissionChecksStrategy", "admissionChecks")
    return {text(check, "name"): frozenset(texts(check, "onFlavors")) for check in checks}


def _spec(spec: Object, gates: FeatureGates) -> Iterator[FieldError]:
    cohort = text(spec, "cohortName")
    if cohort:
        yield from named(Path("spec.cohortName"), cohort, dns_subdomain)
    yield from validate_resource_groups(
        spec,
        QuotaRules(
            has_parent=bool(cohort),
            parent="cohort",
            parent_field="spec.cohortName",
            lending_up_to_nominal=True,
        ),
    )
    yield from validate_selector(spec.get("namespaceSelector"), "spec.namespaceSelector")
    yield from validate_fair_sharing(spec)
    yield from _preemption(mapping(spec, "preemption"))
    yield from _fungibility(mapping(spec, "flavorFungibility"))
    if gates.enabled(Gate.CONCURRENT_ADMISSION) and "concurrentAdmissionPolicy" in spec:
        yield from _concurrent_admission(spec)


def _preemption(preemption: Object) -> Iterator[FieldError]:
    reclaim = text(preemption, "reclaimWithinCohort") or "Never"
    borrow = text(preemption, "borrowWithinCohort", "policy") or "Never"
    if reclaim == "Never" and borrow != "Never":
        yield FieldError.invalid(
            "spec.preemption",
            {"reclaimWithinCohort": reclaim, "borrowWithinCohort": {"policy": borrow}},
            "reclaimWithinCohort=Never and borrowWithinCohort.policy!=Never cannot be set together",
            "set reclaimWithinCohort, or leave borrowWithinCohort out",
        )


def _fungibility(fungibility: Object) -> Iterator[FieldError]:
    preference = fungibility.get("preference")
    borrow = text(fungibility, "whenCanBorrow") or "MayStopSearch"
    preempt = text(fungibility, "whenCanPreempt") or "TryNextFlavor"
    if preference is not None and (borrow, preempt) != ("TryNextFlavor", "TryNextFlavor"):
        yield FieldError.invalid(
            "spec.flavorFungibility.preference",
            preference,
            "may only be set when whenCanBorrow and whenCanPreempt are both TryNextFlavor",
        )


def _on_flavors(
    spec: Object, *, tolerated: Mapping[str, frozenset[str]] | None = None
) -> Iterator[FieldError]:
    flavors = _flavor_names(spec)
    path = Path("spec.admissionChecksStrategy.admissionChecks")
    for place, check in enumerate(objects(spec, "admissionChecksStrategy", "admissionChecks")):
        if tolerated and tolerated.get(text(check, "name")) == frozenset(texts(check, "onFlavors")):
            continue
        for index, flavor in enumerate(texts(check, "onFlavors")):
            if flavor not in flavors:
                yield FieldError.invalid(
                    path.at(place, "onFlavors", index),
                    flavor,
                    "flavor is not found in spec.resourceGroups",
                    f"use one of {', '.join(flavors) or 'none'}, or leave it out",
                )


def _concurrent_admission(spec: Object) -> Iterator[FieldError]:
    path = Path("spec.concurrentAdmissionPolicy")
    groups = objects(spec, "resourceGroups")
    if len(groups) != 1:
        yield FieldError.invalid(
            "spec.resourceGroups", len(groups), "must be exactly one with concurrentAdmissionPolicy"
        )
    flavors = _flavor_names(spec)
    if len(flavors) > MAX_CONCURRENT_FLAVORS:
        yield FieldError.too_many("spec.resourceGroups[0].flavors", len(flavors), MAX_CONCURRENT_FLAVORS)
    if text(spec, "queueingStrategy") == "StrictFIFO":
        yield FieldError.invalid(
            "spec.queueingStrategy", "StrictFIFO", "cannot be used with concurrentAdmissionPolicy"
        )
    migration = mapping(spec, "concurrentAdmissionPolicy", "migration")
    if "constraints" not in migration:
        return
    if text(migration, "mode") != "TryPreferredFlavors":
        yield FieldError.forbidden(
            path.at("migration", "constraints"), "may only be set when mode is TryPreferredFlavors"
        )
    last = text(migration, "constraints", "lastAcceptableFlavorName")
    if last and last not in flavors:
        yield FieldError.not_found(
            path.at("migration", "constraints", "lastAcceptableFlavorName"),
            last,
            "name a flavor of spec.resourceGroups",
        )

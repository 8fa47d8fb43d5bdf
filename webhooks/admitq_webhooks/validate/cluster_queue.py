"""Rules of ClusterQueues that their schema cannot express."""

from collections.abc import Iterator, Mapping
from typing import Final

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.field_errors import ErrorPath, FieldError, check_text, select_new_errors
from admitq_api.json_objects import JsonObject, aligned_objects_at, object_at, text_at
from admitq_api.selectors import validate_selector
from admitq_api.semantic_equality import are_equivalent
from admitq_api.syntax import check_dns_subdomain
from admitq_webhooks.validate.quotas import QuotaRules, validate_fair_sharing, validate_resource_groups
from admitq_webhooks.validate.syntax import is_being_deleted, texts_at

MAX_CONCURRENT_FLAVORS: Final = 16


def validate_create(cluster_queue: JsonObject, gates: FeatureGates) -> list[FieldError]:
    """Check a new ClusterQueue."""
    spec = object_at(cluster_queue, ("spec",))
    return [*_spec(spec, gates), *_on_flavors(spec)]


def validate_update(old: JsonObject, new: JsonObject, gates: FeatureGates) -> list[FieldError]:
    """Check an update. All updates of a ClusterQueue that is being deleted are allowed."""
    if is_being_deleted(old):
        return []
    before, after = object_at(old, ("spec",)), object_at(new, ("spec",))
    errors = select_new_errors(_spec(after, gates), _spec(before, gates))
    errors.extend(_on_flavors(after, tolerated=_unchanged_flavor_lists(before, after, gates)))
    if gates.is_enabled(Gate.CONCURRENT_ADMISSION) and not are_equivalent(
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


def _flavor_names(spec: JsonObject) -> list[str]:
    return [
        text_at(flavor, ("name",))
        for group in aligned_objects_at(spec, ("resourceGroups",))
        for flavor in aligned_objects_at(group, ("flavors",))
    ]


def _unchanged_flavor_lists(
    before: JsonObject, after: JsonObject, gates: FeatureGates
) -> Mapping[str, frozenset[str]]:
    """Return the stored ``onFlavors`` by check; nothing if the flavors of the ClusterQueue change."""
    same_flavors = frozenset(_flavor_names(before)) == frozenset(_flavor_names(after))
    if not same_flavors or gates.is_enabled(Gate.REJECT_UPDATES_WITH_INVALID_ON_FLAVORS):
        return {}
    checks = aligned_objects_at(before, ("admissionChecksStrategy", "admissionChecks"))
    return {text_at(check, ("name",)): frozenset(texts_at(check, ("onFlavors",))) for check in checks}


def _spec(spec: JsonObject, gates: FeatureGates) -> Iterator[FieldError]:
    cohort = text_at(spec, ("cohortName",))
    if cohort:
        yield from check_text(ErrorPath("spec.cohortName"), cohort, check_dns_subdomain)
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
    yield from _preemption(object_at(spec, ("preemption",)))
    yield from _fungibility(object_at(spec, ("flavorFungibility",)))
    if gates.is_enabled(Gate.CONCURRENT_ADMISSION) and "concurrentAdmissionPolicy" in spec:
        yield from _concurrent_admission(spec)


def _preemption(preemption: JsonObject) -> Iterator[FieldError]:
    reclaim = text_at(preemption, ("reclaimWithinCohort",)) or "Never"
    borrow = text_at(preemption, ("borrowWithinCohort", "policy")) or "Never"
    if reclaim == "Never" and borrow != "Never":
        yield FieldError.invalid(
            "spec.preemption",
            {"reclaimWithinCohort": reclaim, "borrowWithinCohort": {"policy": borrow}},
            "reclaimWithinCohort=Never and borrowWithinCohort.policy!=Never cannot be set together",
            "set reclaimWithinCohort, or leave borrowWithinCohort out",
        )


def _fungibility(fungibility: JsonObject) -> Iterator[FieldError]:
    preference = fungibility.get("preference")
    borrow = text_at(fungibility, ("whenCanBorrow",)) or "MayStopSearch"
    preempt = text_at(fungibility, ("whenCanPreempt",)) or "TryNextFlavor"
    if preference is not None and (borrow, preempt) != ("TryNextFlavor", "TryNextFlavor"):
        yield FieldError.invalid(
            "spec.flavorFungibility.preference",
            preference,
            "may only be set when whenCanBorrow and whenCanPreempt are both TryNextFlavor",
        )


def _on_flavors(
    spec: JsonObject, *, tolerated: Mapping[str, frozenset[str]] | None = None
) -> Iterator[FieldError]:
    flavors = _flavor_names(spec)
    path = ErrorPath("spec.admissionChecksStrategy.admissionChecks")
    for place, check in enumerate(aligned_objects_at(spec, ("admissionChecksStrategy", "admissionChecks"))):
        if tolerated and tolerated.get(text_at(check, ("name",))) == frozenset(
            texts_at(check, ("onFlavors",))
        ):
            continue
        for index, flavor in enumerate(texts_at(check, ("onFlavors",))):
            if flavor not in flavors:
                yield FieldError.invalid(
                    path.at(place, "onFlavors", index),
                    flavor,
                    "flavor is not found in spec.resourceGroups",
                    f"use one of {', '.join(flavors) or 'none'}, or leave it out",
                )


def _concurrent_admission(spec: JsonObject) -> Iterator[FieldError]:
    path = ErrorPath("spec.concurrentAdmissionPolicy")
    groups = aligned_objects_at(spec, ("resourceGroups",))
    if len(groups) != 1:
        yield FieldError.invalid(
            "spec.resourceGroups", len(groups), "must be exactly one with concurrentAdmissionPolicy"
        )
    flavors = _flavor_names(spec)
    if len(flavors) > MAX_CONCURRENT_FLAVORS:
        yield FieldError.too_many("spec.resourceGroups[0].flavors", len(flavors), MAX_CONCURRENT_FLAVORS)
    if text_at(spec, ("queueingStrategy",)) == "StrictFIFO":
        yield FieldError.invalid(
            "spec.queueingStrategy", "StrictFIFO", "cannot be used with concurrentAdmissionPolicy"
        )
    migration = object_at(spec, ("concurrentAdmissionPolicy", "migration"))
    if "constraints" not in migration:
        return
    if text_at(migration, ("mode",)) != "TryPreferredFlavors":
        yield FieldError.forbidden(
            path.at("migration", "constraints"), "may only be set when mode is TryPreferredFlavors"
        )
    last = text_at(migration, ("constraints", "lastAcceptableFlavorName"))
    if last and last not in flavors:
        yield FieldError.not_found(
            path.at("migration", "constraints", "lastAcceptableFlavorName"),
            last,
            "name a flavor of spec.resourceGroups",
        )

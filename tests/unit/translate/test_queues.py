"""Translation of ClusterQueues, Cohorts and LocalQueues."""

from fractions import Fraction
from typing import Any

import pytest

from admitq.core.amounts import UNLIMITED
from admitq.core.model import (
    AdmissionCheckRule,
    BorrowWithinCohort,
    ClusterQueuePreemption,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorFungibilityPreference,
    LabelSelector,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
)
from admitq.translate.cluster_queues import read_cluster_queue, read_quarantined_cluster_queue
from admitq.translate.cohorts import read_cohort
from admitq.translate.local_queues import read_local_queue
from admitq_api import conditions
from admitq_api.json_objects import with_value
from admitq_api.stored_fields import MalformedField
from tests.unit.translate.builders import CREATED, cluster_queue, group


def test_cluster_queue_is_read_with_all_fields() -> None:
    read = read_cluster_queue(
        cluster_queue(
            cohortName="org",
            queueingStrategy="StrictFIFO",
            stopPolicy="Hold",
            namespaceSelector={"matchLabels": {"team": "a"}},
            resourceGroups=group(nominalQuota="9", borrowingLimit="500m", lendingLimit="0"),
            admissionChecksStrategy={"admissionChecks": [{"name": "budget", "onFlavors": ["default"]}]},
        )
    )
    assert (read.cohort, read.queueing_strategy, read.stop_policy) == (
        "org",
        QueueingStrategy.STRICT_FIFO,
        StopPolicy.HOLD,
    )
    assert read.namespace_selector == LabelSelector(
        (SelectorRequirement("team", SelectorOperator.IN, ("a",)),)
    )
    assert read.resource_groups[0].flavors[0].resources == (("cpu", ResourceQuota(9000, 500, 0)),)
    assert read.admission_checks == (AdmissionCheckRule("budget", ("default",)),)


def test_absent_limits_of_quota_are_none() -> None:
    read = read_cluster_queue(cluster_queue(resourceGroups=group(nominalQuota="1")))
    assert read.resource_groups[0].flavors[0].resources[0][1] == ResourceQuota(1000, None, None)


def test_absent_namespace_selector_is_none_and_empty_one_selects_all() -> None:
    assert read_cluster_queue(cluster_queue()).namespace_selector is None
    selects_all = read_cluster_queue(cluster_queue(namespaceSelector={}))
    assert selects_all.namespace_selector == LabelSelector(())


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"resourceGroups": group(nominalQuota="-1")},
            "resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
        ({"resourceGroups": group(nominalQuota="1 Gi")}, "resources[0].nominalQuota"),
        ({"resourceGroups": group(nominalQuota="1", borrowingLimit="1 Gi")}, "borrowingLimit"),
        ({"queueingStrategy": "LIFO"}, "spec.queueingStrategy"),
        ({"stopPolicy": "Maybe"}, "spec.stopPolicy"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
            "spec.namespaceSelector.matchExpressions[0].operator",
        ),
        ({"resourceGroups": "all"}, "spec.resourceGroups"),
    ],
)
def test_error_of_malformed_cluster_queue_names_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedField) as error:
        read_cluster_queue(cluster_queue(**spec))
    assert field in error.value.field
    assert error.value.remedy


@pytest.mark.parametrize(
    ("spec", "amounts"),
    [
        (
            {"queueingStrategy": "LIFO", "resourceGroups": group(nominalQuota="9", lendingLimit="1")},
            [(9000, 1000)],
        ),
        ({"resourceGroups": group(nominalQuota="1 Gi")}, []),
        ({"resourceGroups": "all"}, []),
    ],
)
def test_quarantined_cluster_queue_keeps_cohort_and_readable_quota(
    spec: dict[str, Any], amounts: list[tuple[int, int]]
) -> None:
    read = read_quarantined_cluster_queue(cluster_queue(cohortName="org", **spec))
    assert (read.cohort, read.quarantined) == ("org", True)
    flavors = [flavor for resource_group in read.resource_groups for flavor in resource_group.flavors]
    quotas = [quota for flavor in flavors for _, quota in flavor.resources]
    assert [(quota.nominal, quota.lending_limit) for quota in quotas] == amounts


PREEMPTION_POLICIES = "must be one of Never, LowerPriority, LowerOrNewerEqualPriority, Any"
FUNGIBILITY_POLICIES = "must be one of MayStopSearch, TryNextFlavor"


@pytest.mark.parametrize(
    ("section", "value", "field", "remedy"),
    [
        ("preemption", {"reclaimWithinCohort": "Borrowers"}, "reclaimWithinCohort", PREEMPTION_POLICIES),
        ("preemption", {"withinClusterQueue": "Borrowers"}, "withinClusterQueue", PREEMPTION_POLICIES),
        (
            "preemption",
            {"borrowWithinCohort": {"policy": "Borrowers"}},
            "borrowWithinCohort.policy",
            PREEMPTION_POLICIES,
        ),
        (
            "preemption",
            {"borrowWithinCohort": {"maxPriorityThreshold": "10"}},
            "borrowWithinCohort.maxPriorityThreshold",
            "must be a whole number",
        ),
        ("flavorFungibility", {"whenCanBorrow": "Borrow"}, "whenCanBorrow", FUNGIBILITY_POLICIES),
        ("flavorFungibility", {"whenCanPreempt": "Preempt"}, "whenCanPreempt", FUNGIBILITY_POLICIES),
        (
            "flavorFungibility",
            {"preference": "Cheapest"},
            "preference",
            "must be one of BorrowingOverPreemption, PreemptionOverBorrowing",
        ),
    ],
)
def test_cluster_queue_with_unknown_enum_value_is_malformed(
    section: str, value: dict[str, Any], field: str, remedy: str
) -> None:
    with pytest.raises(MalformedField) as error:
        read_cluster_queue(cluster_queue(**{section: value}))
    assert (error.value.field, error.value.remedy) == (f"spec.{section}.{field}", remedy)


def test_policies_of_cluster_queue_are_read_as_enums() -> None:
    read = read_cluster_queue(
        cluster_queue(
            preemption={
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerOrNewerEqualPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 3},
            },
            flavorFungibility={
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "MayStopSearch",
                "preference": "PreemptionOverBorrowing",
            },
        )
    )
    assert read.preemption == ClusterQueuePreemption(
        PreemptionPolicy.ANY,
        PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
        BorrowWithinCohort(PreemptionPolicy.LOWER_PRIORITY, 3),
    )
    assert read.flavor_fungibility == FlavorFungibility(
        FlavorFungibilityPolicy.TRY_NEXT_FLAVOR,
        FlavorFungibilityPolicy.MAY_STOP_SEARCH,
        FlavorFungibilityPreference.PREEMPTION_OVER_BORROWING,
    )


def test_cluster_queue_without_policies_has_defaults_of_api() -> None:
    read = read_cluster_queue(cluster_queue())
    assert read.preemption == ClusterQueuePreemption()
    assert read.flavor_fungibility == FlavorFungibility()


@pytest.mark.parametrize("value", [1, True, ["x"], {"x": "y"}])
@pytest.mark.parametrize(
    "path",
    [
        ("cohortName",),
        ("resourceGroups", 0, "coveredResources", 0),
        ("resourceGroups", 0, "flavors", 0, "name"),
        ("resourceGroups", 0, "flavors", 0, "resources", 0, "name"),
        ("admissionChecksStrategy", "admissionChecks", 0, "name"),
        ("admissionChecksStrategy", "admissionChecks", 0, "onFlavors", 0),
        ("namespaceSelector", "matchExpressions", 0, "key"),
        ("namespaceSelector", "matchExpressions", 0, "values", 0),
        ("namespaceSelector", "matchLabels", "team"),
    ],
)
def test_e_cluster_queue_with_name_that_is_no_text_is_malformed(
    path: tuple[str | int, ...], value: Any
) -> None:
    spec = {
        "resourceGroups": group(nominalQuota="1"),
        "admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["default"]}]},
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]},
    }
    with pytest.raises(MalformedField, match="must be a text"):
        read_cluster_queue(cluster_queue(**with_value(spec, path, value)))


@pytest.mark.parametrize("text", ["1E", "1e30", "8Ei"])
def test_c16_quota_beyond_int64_is_unlimited(text: str) -> None:
    spec = group(nominalQuota=text, borrowingLimit=text, lendingLimit=text)
    read = read_cluster_queue(cluster_queue(resourceGroups=spec))
    assert read.resource_groups[0].flavors[0].resources == (("cpu", ResourceQuota(*[UNLIMITED] * 3)),)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(None, Fraction(1)), ("0", Fraction(0)), ("500m", Fraction(1, 2)), (2, Fraction(2))],
)
def test_fair_sharing_weight_is_read_exactly(weight: object, expected: Fraction) -> None:
    spec: dict[str, Any] = {"clusterQueue": "cq"} | (
        {} if weight is None else {"fairSharing": {"weight": weight}}
    )
    obj = {"metadata": {"name": "q", "namespace": "team"}, "spec": spec}
    assert read_cluster_queue(obj).fair_weight == expected
    assert read_cohort(obj).fair_weight == expected
    assert read_local_queue(obj).fair_weight == expected


@pytest.mark.parametrize(
    ("mode", "usage_based"),
    [("UsageBasedAdmissionFairSharing", True), ("NoAdmissionFairSharing", False), (None, False)],
)
def test_admission_mode_of_cluster_queue_is_read(mode: str | None, usage_based: bool) -> None:
    scope = {} if mode is None else {"admissionScope": {"admissionMode": mode}}
    assert read_cluster_queue({"metadata": {"name": "q"}, "spec": scope}).usage_based_admission is usage_based


def test_past_usage_of_local_queue_is_read_from_status() -> None:
    past_usage = {"consumedResources": {"memory": "1Gi", "cpu": "1500m"}, "lastUpdate": CREATED}
    obj: dict[str, Any] = {
        "metadata": {"name": "q", "namespace": "team"},
        "status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": past_usage}},
    }
    read = read_local_queue(obj).consumed
    assert read is not None
    assert read.consumed == (("cpu", 1500), ("memory", 2**30))
    assert read.at == conditions.parse_time(CREATED)
    del obj["status"]["fairSharing"]["admissionFairSharingStatus"]
    assert read_local_queue(obj).consumed is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"consumedResources": {"cpu": "-1", "memory": "1"}}, (("cpu", 0), ("memory", 1))),
        ({"consumedResources": {"cpu": "much", "memory": "1"}}, (("memory", 1),)),
        ({"lastUpdate": "2026-01-01T00:00:00+99:00"}, None),
        ({"lastUpdate": None, "consumedResources": {"cpu": "1"}}, None),
    ],
    ids=["negative", "unreadable", "invalid time", "no time"],
)
def test_e_local_queue_with_malformed_past_usage_of_another_program_is_read(
    fields: Any, expected: Any
) -> None:
    past_usage = {"lastUpdate": CREATED, **fields}
    obj: dict[str, Any] = {
        "metadata": {"name": "q", "namespace": "team"},
        "status": {"fairSharing": {"admissionFairSharingStatus": past_usage}},
    }
    read = read_local_queue(obj).consumed
    assert (None if read is None else read.consumed) == expected

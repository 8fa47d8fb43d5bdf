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


def test_a_cluster_queue_is_read_whole() -> None:
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


def test_an_absent_limit_is_none_and_an_absent_selector_selects_nothing() -> None:
    read = read_cluster_queue(cluster_queue(resourceGroups=group(nominalQuota="1")))
    assert read.resource_groups[0].flavors[0].resources[0][1] == ResourceQuota(1000, None, None)
    assert read.namespace_selector is None
    everything = read_cluster_queue(cluster_queue(namespaceSelector={}))
    assert everything.namespace_selector == LabelSelector(())


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
def test_a_malformed_cluster_queue_names_the_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedField) as caught:
        read_cluster_queue(cluster_queue(**spec))
    assert field in caught.value.field
    assert caught.value.remedy


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
def test_quarantined_cluster_queue_has_its_cohort_and_the_quota_that_can_be_read(
    spec: dict[str, Any], amounts: list[tuple[int, int]]
) -> None:
    read = read_quarantined_cluster_queue(cluster_queue(cohortName="org", **spec))
    assert (read.cohort, read.quarantined) == ("org", True)
    flavors = [flavor for each in read.resource_groups for flavor in each.flavors]
    quotas = [quota for flavor in flavors for _, quota in flavor.resources]
    assert [(each.nominal, each.lending_limit) for each in quotas] == amounts


POLICIES = "must be one of Never, LowerPriority, LowerOrNewerEqualPriority, Any"
SEARCHES = "must be one of MayStopSearch, TryNextFlavor"


@pytest.mark.parametrize(
    ("section", "value", "field", "remedy"),
    [
        ("preemption", {"reclaimWithinCohort": "Borrowers"}, "reclaimWithinCohort", POLICIES),
        ("preemption", {"withinClusterQueue": "Borrowers"}, "withinClusterQueue", POLICIES),
        (
            "preemption",
            {"borrowWithinCohort": {"policy": "Borrowers"}},
            "borrowWithinCohort.policy",
            POLICIES,
        ),
        (
            "preemption",
            {"borrowWithinCohort": {"maxPriorityThreshold": "10"}},
            "borrowWithinCohort.maxPriorityThreshold",
            "must be a whole number",
        ),
        ("flavorFungibility", {"whenCanBorrow": "Borrow"}, "whenCanBorrow", SEARCHES),
        ("flavorFungibility", {"whenCanPreempt": "Preempt"}, "whenCanPreempt", SEARCHES),
        (
            "flavorFungibility",
            {"preference": "Cheapest"},
            "preference",
            "must be one of BorrowingOverPreemption, PreemptionOverBorrowing",
        ),
    ],
)
def test_cluster_queue_with_unknown_value_of_an_enum_is_malformed(
    section: str, value: dict[str, Any], field: str, remedy: str
) -> None:
    with pytest.raises(MalformedField) as caught:
        read_cluster_queue(cluster_queue(**{section: value}))
    assert (caught.value.field, caught.value.remedy) == (f"spec.{section}.{field}", remedy)


def test_cluster_queue_with_policies_is_read_as_enums() -> None:
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


def test_cluster_queue_without_policies_has_the_defaults_of_the_api() -> None:
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
def test_e_name_in_a_cluster_queue_that_is_no_text_is_malformed(
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
def test_weights_are_exact(weight: object, expected: Fraction) -> None:
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
def test_queues_take_turns_where_the_admission_mode_says_so(mode: str | None, usage_based: bool) -> None:
    scope = {} if mode is None else {"admissionScope": {"admissionMode": mode}}
    assert read_cluster_queue({"metadata": {"name": "q"}, "spec": scope}).usage_based_admission is usage_based


def test_what_a_local_queue_consumed_is_read_from_its_status() -> None:
    told = {"consumedResources": {"memory": "1Gi", "cpu": "1500m"}, "lastUpdate": CREATED}
    obj: dict[str, Any] = {
        "metadata": {"name": "q", "namespace": "team"},
        "status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": told}},
    }
    read = read_local_queue(obj).consumed
    assert read is not None
    assert read.consumed == (("cpu", 1500), ("memory", 2**30))
    assert read.at == conditions.parse_time(CREATED)
    del obj["status"]["fairSharing"]["admissionFairSharingStatus"]
    assert read_local_queue(obj).consumed is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"consumedResources": {"cpu": "-1", "memory": "1"}}, (("cpu", 0), ("memory", 1))),
        ({"consumedResources": {"cpu": "much", "memory": "1"}}, (("memory", 1),)),
        ({"lastUpdate": "2026-01-01T00:00:00+99:00"}, None),
        ({"lastUpdate": None, "consumedResources": {"cpu": "1"}}, None),
    ],
    ids=["negative", "unreadable", "another-time", "no-time"],
)
def test_e_consumption_that_another_program_wrote_keeps_no_local_queue_from_being_read(
    told: Any, expected: Any
) -> None:
    past = {"lastUpdate": CREATED, **told}
    obj: dict[str, Any] = {
        "metadata": {"name": "q", "namespace": "team"},
        "status": {"fairSharing": {"admissionFairSharingStatus": past}},
    }
    read = read_local_queue(obj).consumed
    assert (None if read is None else read.consumed) == expected

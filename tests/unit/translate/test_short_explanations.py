"""The short explanation for events on jobs: what is lacking, in few words and without names of workloads."""

import pytest

from admitq.core.asking.explanations import (
    BindingLimit,
    BindingNode,
    FlavorVerdict,
    QuotaHoldings,
    RefusalExplanation,
    ResourceConstraint,
)
from admitq.core.refusals import (
    ExceedsMaxQuota,
    FlavorRefusal,
    InsufficientQuota,
    NamespaceMismatch,
    NoFitReason,
    NoFlavorFits,
    NoPreemptionTargets,
    OverlappingTargets,
    PodSetRefusals,
    QuotaTakenInCycle,
    Refusal,
    UntoleratedTaint,
    WaitingForTargets,
)
from admitq.translate.short_explanations import short_explanation

COHORT = BindingNode("research", is_cohort=True, limit=BindingLimit.QUOTA)
LIMITED = BindingNode("team", is_cohort=False, limit=BindingLimit.BORROWING_LIMIT)
TAINT = UntoleratedTaint("spot", "k", "v", "NoSchedule")
TAINT_TEXT = "untolerated taint {k v NoSchedule <nil>} in flavor spot"


def refused(reason: NoFitReason, *refusals: FlavorRefusal) -> NoFlavorFits:
    return NoFlavorFits((PodSetRefusals("main", refusals),), reason)


LACKS = refused(NoFitReason.WAITING_FOR_QUOTA, InsufficientQuota("default", "cpu", 5000))
CPU = ResourceConstraint("cpu", 8000, 0, 3000, 10_000, 5000, COHORT, QuotaHoldings())
CPU_TEXT = "cpu in flavor default: needs 8, 3 of 10 free, limited by the quota of cohort research"


def verdict(*resources: ResourceConstraint, flavor: str = "default") -> FlavorVerdict:
    return FlavorVerdict(("main",), flavor, None, resources)


def text(refusal: Refusal, *verdicts: FlavorVerdict) -> str:
    return short_explanation(RefusalExplanation("team", refusal, verdicts))


@pytest.mark.parametrize(
    "refusal", [LACKS, NoPreemptionTargets(LACKS), QuotaTakenInCycle(), OverlappingTargets(will_fit=False)]
)
def test_lack_of_quota_names_needed_and_free_amount_and_the_node_that_limits(refusal: Refusal) -> None:
    assert text(refusal, verdict(CPU)) == f"Waits for unused quota in ClusterQueue team: {CPU_TEXT}"


def test_request_above_maximum_names_the_maximum() -> None:
    refusal = refused(NoFitReason.EXCEEDS_MAX_QUOTA, ExceedsMaxQuota("default", "cpu", 0, 12_000, 10_000))
    above = ResourceConstraint("cpu", 12_000, 0, 3000, 10_000, 9000, LIMITED, QuotaHoldings())
    assert text(refusal, verdict(above)) == (
        "Needs more than ClusterQueue team can ever have: cpu in flavor default: needs 12, at most 10, "
        "limited by the borrowing limit of ClusterQueue team"
    )


@pytest.mark.parametrize(("victims", "number"), [(1, "1 preempted workload"), (2, "2 preempted workloads")])
def test_preemptor_names_number_of_targets(victims: int, number: str) -> None:
    refusal = WaitingForTargets(victims, LACKS)
    assert text(refusal, verdict(CPU)) == f"Waits for {number} to stop: {CPU_TEXT}"
    assert text(refusal) == f"Waits for {number} to stop"


def test_needs_of_earlier_podsets_are_included_and_amounts_rounded() -> None:
    memory = ResourceConstraint("memory", 2**30, 2**30, 1_234_567_890, 3 * 2**30, 1, COHORT, QuotaHoldings())
    assert "memory in flavor default: needs 2Gi, 1.14Gi of 3Gi free" in text(LACKS, verdict(memory))


def test_small_change_of_usage_does_not_change_the_text() -> None:
    first, second = (
        ResourceConstraint("memory", 2**40, 0, 2**39 + used, 2**41, 1, COHORT, QuotaHoldings())
        for used in (2**20, 2**28)
    )
    assert text(LACKS, verdict(first)) == text(LACKS, verdict(second))


def test_refused_flavors_follow_and_further_parts_are_counted() -> None:
    verdicts = [verdict(CPU, flavor=name) for name in ("a", "b")]
    refusing = FlavorVerdict(("main",), "spot", TAINT, ())
    assert text(LACKS, refusing, *verdicts).endswith(f"limited by the quota of cohort research; {TAINT_TEXT}")
    more = text(LACKS, *verdicts, refusing, verdict(CPU, flavor="c"), verdict(CPU, flavor="c"))
    assert "cpu in flavor c" in more
    assert more.endswith("cohort research; and 1 more")


@pytest.mark.parametrize(
    ("refusal", "verdicts", "expected"),
    [
        (NamespaceMismatch(), (verdict(CPU),), "workload namespace doesn't match ClusterQueue selector"),
        (QuotaTakenInCycle(), (), "Workload no longer fits after processing another workload"),
        (
            refused(NoFitReason.NO_MATCHING_FLAVOR, TAINT),
            (FlavorVerdict(("main",), "spot", TAINT, ()),),
            f"couldn't assign flavors to pod set main: {TAINT_TEXT}",
        ),
    ],
)
def test_other_refusals_have_the_message_of_the_condition(
    refusal: Refusal, verdicts: tuple[FlavorVerdict, ...], expected: str
) -> None:
    assert text(refusal, *verdicts) == expected

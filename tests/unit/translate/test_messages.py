"""The exact texts of messages and reasons. Scenarios check most of them, too."""

from fractions import Fraction

import pytest

from admitq.core.instructions import ConsideredFlavor, FitMode, Preempt, PreemptionReason
from admitq.core.model import ObjectKey, ResourceProblem
from admitq.core.refusals import (
    AdmissionChecksFailed,
    Bound,
    ClusterQueueInactive,
    ClusterQueueNotFound,
    ExceedsMaxQuota,
    FlavorNotFound,
    InsufficientQuota,
    InvalidResources,
    NamespaceMismatch,
    NodeAffinityMismatch,
    NoFitReason,
    NoFlavorFits,
    NoPreemptionTargets,
    OutOfBounds,
    OverlappingTargets,
    PodSetRefusals,
    PodsNotReady,
    PreemptionGated,
    PreemptionsFailed,
    QuotaTakenInCycle,
    Refusal,
    ResourceNotCovered,
    TooManyChecks,
    TopologyMissing,
    TopologyUnsupported,
    UntoleratedTaint,
    WaitingForTargets,
)
from admitq.translate import messages

SHORT = NoFlavorFits(
    (PodSetRefusals("main", (InsufficientQuota("f", "cpu", 1000),)),), NoFitReason.WAITING_FOR_QUOTA
)
SHORT_TEXT = (
    "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 1 more needed"
)


@pytest.mark.parametrize(
    ("refusal", "reason", "message"),
    [
        (ClusterQueueInactive("q"), "Suspended", "ClusterQueue q is inactive"),
        (ClusterQueueNotFound("q"), "Misconfigured", "ClusterQueue q not found"),
        (
            NamespaceMismatch(),
            "Misconfigured",
            "workload namespace doesn't match ClusterQueue selector",
        ),
        (AdmissionChecksFailed(), "PendingEvaluation", "The workload has failed admission checks"),
        (
            TooManyChecks("q", 9, 8),
            "Misconfigured",
            (
                "9 AdmissionChecks of ClusterQueue q apply to every flavor, and a Workload can have "
                "at most 8: remove some from spec.admissionChecksStrategy.admissionChecks, "
                "or limit them to other flavors by onFlavors"
            ),
        ),
        (
            TooManyChecks("q", 9, 8, ("a", "b")),
            "Misconfigured",
            (
                "9 AdmissionChecks of ClusterQueue q apply to flavors a, b, and a Workload can have "
                "at most 8: remove some from spec.admissionChecksStrategy.admissionChecks, "
                "or limit them to other flavors by onFlavors"
            ),
        ),
        (
            WaitingForTargets(2, SHORT),
            "WaitingForPreemptedWorkloads",
            f"{SHORT_TEXT}. Pending the preemption of 2 workload(s)",
        ),
        (
            PreemptionsFailed(1, SHORT),
            "WaitingForQuota",
            f"{SHORT_TEXT}. Preempting 1 workload(s) failed, will retry.",
        ),
        (NoPreemptionTargets(SHORT), "WaitingForQuota", SHORT_TEXT),
        (PreemptionGated(), "AdmissionGated", "Workload requires preemption, but it's gated"),
        (
            OverlappingTargets(will_fit=True),
            "WaitingForPreemptedWorkloads",
            (
                "Workload has overlapping preemption targets with another workload, "
                "but will fit after these preemptions complete"
            ),
        ),
        (
            OverlappingTargets(will_fit=False),
            "WaitingForQuota",
            "Workload has overlapping preemption targets with another workload",
        ),
        (
            PodsNotReady(),
            "WaitingForPodsReady",
            "waiting for all admitted workloads to be in PodsReady condition",
        ),
        (
            QuotaTakenInCycle(),
            "WaitingForQuota",
            "Workload no longer fits after processing another workload",
        ),
        (
            InvalidResources(
                (
                    OutOfBounds(Bound.LIMIT, "f", "cpu", Fraction(3, 2), Fraction(1)),
                    OutOfBounds(Bound.LIMIT, "f", "cpu", Fraction(3, 2), Fraction(1)),
                )
            ),
            "Misconfigured",
            "resources validation failed: f: Invalid value: 1500m > 1: requests must not exceed its limits",
        ),
        (
            InvalidResources((ResourceProblem("f", "x"), ResourceProblem("g", "y"))),
            "Misconfigured",
            "resources validation failed: [f: Invalid value: x, g: Invalid value: y]",
        ),
        (
            InvalidResources(
                (
                    OutOfBounds(Bound.MAXIMUM, "f", "memory", Fraction(2**31), Fraction(2**30)),
                    OutOfBounds(Bound.MINIMUM, "f", "cpu", Fraction(1), Fraction(2)),
                )
            ),
            "Misconfigured",
            (
                "resources didn't satisfy LimitRange constraints: "
                "[f: Invalid value: 2Gi > 1Gi: requests must not be above the limitRange max, "
                "f: Invalid value: 1 < 2: requests must not be below the limitRange min]"
            ),
        ),
        (
            NoFlavorFits(
                (PodSetRefusals("main", (ExceedsMaxQuota("default", "cpu", 0, 10000, 8000),)),),
                NoFitReason.EXCEEDS_MAX_QUOTA,
            ),
            "ExceedsMaxQuota",
            (
                "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, "
                "previously considered podsets requests (0) + current podset request (10) "
                "> maximum capacity (8)"
            ),
        ),
        (
            NoFlavorFits(
                (
                    PodSetRefusals("leader", (InsufficientQuota("default", "cpu", 1000),)),
                    PodSetRefusals(
                        "workers",
                        (
                            UntoleratedTaint("spot", "instance", "spot", "NoSchedule"),
                            InsufficientQuota("default", "memory", 2**30),
                            InsufficientQuota("default", "memory", 2**30),
                            NodeAffinityMismatch("arm"),
                            FlavorNotFound("missing"),
                            ResourceNotCovered("gpu"),
                        ),
                    ),
                ),
                NoFitReason.WAITING_FOR_QUOTA,
            ),
            "WaitingForQuota",
            (
                "couldn't assign flavors to pod set leader: "
                "insufficient unused quota for cpu in flavor default, 1 more needed; "
                "couldn't assign flavors to pod set workers: flavor arm doesn't match node affinity, "
                "flavor missing not found, insufficient unused quota for memory in flavor default, "
                "1Gi more needed, "
                "resource gpu unavailable in ClusterQueue, "
                "untolerated taint {instance spot NoSchedule <nil>} in flavor spot"
            ),
        ),
        (
            NoFlavorFits(
                (PodSetRefusals("main", (TopologyMissing("racked"), TopologyUnsupported("plain"))),),
                NoFitReason.NO_MATCHING_FLAVOR,
            ),
            "NoMatchingFlavor",
            (
                "couldn't assign flavors to pod set main: "
                'Flavor "plain" does not support TopologyAwareScheduling, '
                'Flavor "racked" information missing in TAS cache'
            ),
        ),
    ],
)
def test_refusal_has_its_reason_and_message(refusal: Refusal, reason: str, message: str) -> None:
    assert messages.pending_condition(refusal) == (reason, message)


def test_bypassed_workload_has_reason_of_equivalent_workload() -> None:
    refusal = NoFlavorFits(
        (PodSetRefusals("main", (InsufficientQuota("default", "cpu", 1),)),), NoFitReason.WAITING_FOR_QUOTA
    )
    assert messages.bypassed_condition(refusal) == (
        "WaitingForQuota",
        "Bypassed scheduling evaluation because an equivalent workload recently failed",
    )


def test_flavors_considered_leaves_out_flavors_that_fit_without_borrowing() -> None:
    considered_flavors = (
        ConsideredFlavor("driver", "spot", FitMode.NO_FIT, 0, (NodeAffinityMismatch("spot"),)),
        ConsideredFlavor("driver", "near", FitMode.FIT, 1),
        ConsideredFlavor("workers", "far", FitMode.FIT, 0),
        ConsideredFlavor(
            "workers",
            "near",
            FitMode.NO_FIT,
            0,
            (InsufficientQuota("near", "cpu", 500), FlavorNotFound("near")),
        ),
    )
    assert messages.flavors_considered(considered_flavors) == (
        "driver: spot(NoFit;flavor spot doesn't match node affinity), near(Fit;borrow=1) | "
        "workers: near(NoFit;insufficient unused quota for cpu in flavor near, 500m more needed;"
        "flavor near not found)"
    )
    assert messages.flavors_considered(()) == ""


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (FitMode.PREEMPT, "Preempt"),
        (FitMode.RECLAIM, "Reclaim"),
        (FitMode.NO_PREEMPTION_CANDIDATES, "NoPreemptionCandidates"),
    ],
)
def test_flavors_considered_name_preemption_mode(mode: FitMode, text: str) -> None:
    considered = ConsideredFlavor("main", "spot", mode, 2, (InsufficientQuota("spot", "cpu", 1000),))
    assert messages.flavors_considered([considered]) == (
        f"main: spot(preemptionMode={text};borrow=2;"
        "insufficient unused quota for cpu in flavor spot, 1 more needed)"
    )


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (PreemptionReason.IN_CLUSTER_QUEUE, "prioritization in the ClusterQueue"),
        (PreemptionReason.IN_COHORT_RECLAMATION, "reclamation within the cohort"),
        (PreemptionReason.IN_COHORT_FAIR_SHARING, "Fair Sharing within the cohort"),
        (
            PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
            "reclamation within the cohort while borrowing",
        ),
    ],
)
def test_preempted_message_names_preemptor_reason_and_paths(reason: PreemptionReason, text: str) -> None:
    key = ObjectKey("ns", "w")
    message = messages.preempted_message(
        Preempt(key, "u", reason, key, "p", ("top", "a"), ("top", "b", "c")), "j"
    )
    assert message == (
        f"Preempted to accommodate a workload (UID: p, JobUID: j) due to {text}; "
        "preemptor path: /top/a; preemptee path: /top/b/c"
    )


def test_preempted_message_has_unknown_for_missing_parts() -> None:
    key = ObjectKey("ns", "w")
    message = messages.preempted_message(
        Preempt(key, "u", PreemptionReason.IN_CLUSTER_QUEUE, key, "", (), ()), ""
    )
    assert message == (
        "Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due to prioritization in the "
        "ClusterQueue; preemptor path: UNKNOWN; preemptee path: UNKNOWN"
    )

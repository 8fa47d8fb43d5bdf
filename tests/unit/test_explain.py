"""The literal texts; stories tell most of them in passing."""

from fractions import Fraction

import pytest

from admitq import explain
from admitq.core.instructions import FlavorAttempt
from admitq.core.model import ResourceProblem
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
    NoFlavorFits,
    OutOfBounds,
    Refusal,
    ResourceNotCovered,
    TakenInThisCycle,
    UntoleratedTaint,
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
            TakenInThisCycle(),
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
            InvalidResources(
                (ResourceProblem("malformed", "f", "x"), ResourceProblem("malformed", "g", "y"))
            ),
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
            NoFlavorFits("main", (ExceedsMaxQuota("default", "cpu", 0, 10000, 8000),), "ExceedsMaxQuota"),
            "ExceedsMaxQuota",
            (
                "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, "
                "previously considered podsets requests (0) + current podset request (10) "
                "> maximum capacity (8)"
            ),
        ),
        (
            NoFlavorFits(
                "workers",
                (
                    UntoleratedTaint("spot", "instance", "spot", "NoSchedule"),
                    InsufficientQuota("default", "memory", 2**30),
                    InsufficientQuota("default", "memory", 2**30),
                    NodeAffinityMismatch("arm"),
                    FlavorNotFound("gone"),
                    ResourceNotCovered("gpu"),
                ),
                "WaitingForQuota",
            ),
            "WaitingForQuota",
            (
                "couldn't assign flavors to pod set workers: flavor arm doesn't match node affinity, "
                "flavor gone not found, insufficient unused quota for memory in flavor default, "
                "1Gi more needed, "
                "resource gpu unavailable in ClusterQueue, "
                "untolerated taint {instance spot NoSchedule <nil>} in flavor spot"
            ),
        ),
    ],
)
def test_why_a_workload_waits(refusal: Refusal, reason: str, message: str) -> None:
    assert explain.pending_condition(refusal) == (reason, message)


def test_who_was_bypassed_has_the_reason_of_its_equal() -> None:
    refusal = NoFlavorFits("main", (InsufficientQuota("default", "cpu", 1),), "WaitingForQuota")
    assert explain.bypassed_condition(refusal) == (
        "WaitingForQuota",
        "Bypassed scheduling evaluation because an equivalent workload recently failed",
    )


def test_flavors_considered_leaves_out_the_plain_fit() -> None:
    attempts = (
        FlavorAttempt("driver", "spot", "NoFit", 0, (NodeAffinityMismatch("spot"),)),
        FlavorAttempt("driver", "near", "Fit", 1),
        FlavorAttempt("workers", "far", "Fit", 0),
        FlavorAttempt(
            "workers", "near", "NoFit", 0, (InsufficientQuota("near", "cpu", 500), FlavorNotFound("near"))
        ),
    )
    assert explain.flavors_considered(attempts) == (
        "driver: spot(NoFit;flavor spot doesn't match node affinity), near(Fit;borrow=1) | "
        "workers: near(NoFit;insufficient unused quota for cpu in flavor near, 500m more needed;"
        "flavor near not found)"
    )
    assert explain.flavors_considered(()) == ""

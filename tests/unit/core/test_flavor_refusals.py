"""Requests that fit into no flavor of a ClusterQueue, and the reason of each refusal."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.core.amounts import UNLIMITED, FlavorResource
from admitq.core.assignments import FlavorFit
from admitq.core.flavors import assign
from admitq.core.instructions import FitMode
from admitq.core.model import (
    ClusterQueuePreemption,
    FlavorQuotas,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Taint,
)
from admitq.core.refusals import ExceedsMaxQuota, InsufficientQuota, NoFitReason, ResourceNotCovered
from admitq.core.requests import demands, template_requesting
from admitq.core.settings import CoreSettings, Gates, Resources
from tests.unit.core.flavor_scans import Queue, group, options_without_cohort, oracle_of, pods, refusing

GPU_IN_TWO_FLAVORS = ResourceGroup(
    ("gpu",), tuple(FlavorQuotas(name, (("gpu", ResourceQuota(1)),)) for name in ("f2", "f3"))
)


def test_podset_beyond_quota_leaves_no_flavor_of_its_other_resources_to_try() -> None:
    options = options_without_cohort(
        group("f1", cpu=2), GPU_IN_TWO_FLAVORS, used={FlavorResource("f1", "cpu"): 2}
    )
    wanted = demands((PodSet("main", 1, template_requesting({"cpu": 3, "gpu": 1})),))
    assert assign(wanted, options).scan_stops == ()


def test_podset_without_quota_leaves_no_flavor_of_its_other_resources_to_try() -> None:
    options = options_without_cohort(
        group("f1", cpu=2), GPU_IN_TWO_FLAVORS, used={FlavorResource("f1", "cpu"): 2}
    )
    wanted = demands((PodSet("main", 1, template_requesting({"cpu": 1, "gpu": 1})),))
    oracle = oracle_of({"f1": FlavorFit(FitMode.NO_FIT, 0)})
    refused = assign(wanted, options, oracle=oracle)
    assert refused.refusal == refusing(
        "main", InsufficientQuota("f1", "cpu", 1), reason=NoFitReason.WAITING_FOR_QUOTA
    )
    assert refused.scan_stops == ()


def test_flavor_is_refused_for_first_resource_that_does_not_fit() -> None:
    wanted = PodSet("main", 1, template_requesting({"cpu": 2, "memory": 2}))
    refused = assign(demands((wanted,)), options_without_cohort(group("f1", cpu=1, memory=1)))
    assert refused.refusal == refusing(
        "main", ExceedsMaxQuota("f1", "cpu", 0, 2, 1), reason=NoFitReason.EXCEEDS_MAX_QUOTA
    )


@pytest.mark.parametrize(
    ("used", "nominal", "taints", "reason"),
    [
        ({"f1": 4, "f2": 4}, {"f1": 4, "f2": 4}, (), NoFitReason.WAITING_FOR_QUOTA),
        ({"f1": 4}, {"f1": 4, "f2": 1}, (), NoFitReason.WAITING_FOR_QUOTA),
        ({}, {"f1": 1, "f2": 1}, (), NoFitReason.EXCEEDS_MAX_QUOTA),
        ({}, {"f1": 1, "f2": 4}, ("f2",), NoFitReason.EXCEEDS_MAX_QUOTA),
        ({}, {"f1": 4, "f2": 4}, ("f1", "f2"), NoFitReason.NO_MATCHING_FLAVOR),
    ],
)
def test_refusal_reason_is_that_of_flavor_closest_to_fitting(
    used: dict[str, int], nominal: dict[str, int], taints: tuple[str, ...], reason: str
) -> None:
    spot = (Taint("spot", "", "NoSchedule"),)
    flavors = {name: ResourceFlavor(name, (), spot if name in taints else ()) for name in nominal}
    refusal = (
        Queue(nominal, used=used, preemption=ClusterQueuePreemption(), flavors=flavors)
        .assign(pods(2))
        .refusal
    )
    assert refusal is not None
    assert refusal.reason == reason


def test_refusal_reason_is_most_severe_of_all_resource_groups() -> None:
    options = options_without_cohort(
        group("f1", cpu=2), group("f2", gpu=2), used={FlavorResource("f1", "cpu"): 2}
    )
    everything = demands((PodSet("main", 1, template_requesting({"cpu": 3, "gpu": 3, "fpga": 1})),))
    assert assign(everything, options).refusal == refusing(
        "main",
        ResourceNotCovered("fpga"),
        ExceedsMaxQuota("f1", "cpu", 0, 3, 2),
        ExceedsMaxQuota("f2", "gpu", 0, 3, 2),
        reason=NoFitReason.NO_MATCHING_FLAVOR,
    )
    without_fpga = demands((PodSet("main", 1, template_requesting({"cpu": 1, "gpu": 3})),))
    assert assign(without_fpga, options).refusal == refusing(
        "main",
        InsufficientQuota("f1", "cpu", 1),
        ExceedsMaxQuota("f2", "gpu", 0, 3, 2),
        reason=NoFitReason.EXCEEDS_MAX_QUOTA,
    )


def test_pods_without_requests_need_no_flavor() -> None:
    assignment = Queue({"f1": 0}).assign(PodSet("main", 3))
    assert (assignment.refusal, assignment.usage) == (None, ())
    assert (assignment.pod_sets[0].flavors, assignment.pod_sets[0].count) == ((), 3)


def test_request_of_0_fits_into_oversubscribed_flavor() -> None:
    assignment = Queue({"f1": 2}, used={"f1": 3}).assign(pods(0))
    assert (assignment.mode, assignment.usage) == (FitMode.FIT, ())
    assert assignment.pod_sets == (PodSetAssignment("main", (("cpu", "f1"),), (("cpu", 0),), 1),)


def test_missing_amount_in_oversubscribed_flavor_is_at_most_the_request() -> None:
    refused = Queue({"f1": 2}, used={"f1": 9}, preemption=ClusterQueuePreemption()).assign(pods(1))
    assert refused.refusal == refusing(
        "main", InsufficientQuota("f1", "cpu", 1), reason=NoFitReason.WAITING_FOR_QUOTA
    )


def test_queue_without_flavors_refuses_every_request() -> None:
    assert Queue({}).assign(pods(1)).refusal == refusing("main", reason=NoFitReason.NO_MATCHING_FLAVOR)


def test_requests_of_podsets_that_saturate_together_fit_into_no_quota() -> None:
    options = options_without_cohort(group("f1", cpu=UNLIMITED, memory=UNLIMITED))
    half = PodSet("a", 1, template_requesting({"memory": 2**62}))
    assert assign(demands((half,)), options).mode is FitMode.FIT
    refused = assign(demands((half, replace(half, name="b"))), options)
    too_much = ExceedsMaxQuota("f1", "memory", 2**62, 2**62, UNLIMITED)
    assert refused.refusal == refusing("b", too_much, reason=NoFitReason.EXCEEDS_MAX_QUOTA)


def test_request_of_podset_that_saturates_fits_into_no_quota() -> None:
    options = options_without_cohort(group("f1", cpu=UNLIMITED))
    whole = PodSet("a", 2**31, template_requesting({"cpu": UNLIMITED - 1}))
    assert assign(demands((whole,)), options).mode is FitMode.NO_FIT


# --- covered resources ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fpga", "resources", "gate", "refusals"),
    [
        (1, Resources(), True, (ResourceNotCovered("fpga"),)),
        (0, Resources(), True, None),
        (1, Resources(ignore_undeclared=True), True, None),
        (1, Resources(ignore_undeclared=True), False, (ResourceNotCovered("fpga"),)),
    ],
    ids=["refused", "request of 0", "ignored", "gate off"],
)
def test_uncovered_resource_is_refused_unless_it_is_ignored(
    fpga: int, resources: Resources, gate: bool, refusals: tuple[Any, ...] | None
) -> None:
    settings = CoreSettings(resources=resources, gates=Gates(quota_check_strategy=gate))
    wanted = demands((PodSet("main", 1, template_requesting({"cpu": 1, "fpga": fpga})),))
    assignment = assign(wanted, options_without_cohort(group("f1", cpu=1), settings=settings))
    if refusals is None:
        assert assignment.usage == ((FlavorResource("f1", "cpu"), 1),)
        assert assignment.pod_sets[0].flavors == (("cpu", "f1"),)
    else:
        assert assignment.refusal == refusing("main", *refusals, reason=NoFitReason.NO_MATCHING_FLAVOR)


def test_pods_are_counted_when_queue_covers_resource_pods() -> None:
    wanted = demands((PodSet("main", 3, template_requesting({"cpu": 1})),), (("main", 1),))
    assignment = assign(wanted, options_without_cohort(group("f1", cpu=9, pods=2)))
    assert assignment.pod_sets[0].resource_usage == (("cpu", 2), ("pods", 2))
    refused = assign(wanted, options_without_cohort(group("f1", cpu=9, pods=1)))
    assert refused.refusal == refusing(
        "main", ExceedsMaxQuota("f1", "pods", 0, 2, 1), reason=NoFitReason.EXCEEDS_MAX_QUOTA
    )

"""Why a workload waits: what it waits for, which quota it lacks, and which workloads hold it."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.activity import ActiveReason
from admitq.core.asking.explain import explain, explain_refusal
from admitq.core.asking.explanations import (
    BindingLimit,
    BindingNode,
    FlavorVerdict,
    QuotaHolding,
    QuotaHoldings,
    RefusalExplanation,
    ResourceConstraint,
    WaitCause,
    WaitingBehindHead,
    WaitingForActivation,
    WaitingForBackoff,
    WaitingForChange,
    WaitingForChecks,
    WaitingForClusterQueue,
    WaitingForJobToStop,
    WaitingForLocalQueue,
    WaitingForOpenPreemptionGate,
    WaitingForOtherHeads,
    WaitingForPodsReady,
    WaitingForRelease,
    WaitingForTargetsToLeave,
    WaitingForTurn,
    WaitingForUnusedQuota,
    WorkloadExplanation,
)
from admitq.core.lifecycle import Phase
from admitq.core.model import (
    SECOND,
    AdmissionCheck,
    AdmissionCheckRule,
    CheckState,
    Cohort,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    ResourceProblem,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Taint,
)
from admitq.core.refusals import (
    InvalidResources,
    NamespaceMismatch,
    QuotaTakenInCycle,
    ResourceNotCovered,
    UntoleratedTaint,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings
from admitq.core.waiting.heads import Pause
from admitq.core.waiting.queue_positions import QueuedWorkload
from tests.unit.core.small_cluster import LOWER, RECLAIM, STRICT, SmallCluster, group, key, queue

RED = LabelSelector((SelectorRequirement("team", SelectorOperator.IN, ("red",)),))


def explained(cluster: SmallCluster, name: str) -> WorkloadExplanation:
    found = explain(cluster.state, key(name), cluster.now)
    assert found is not None
    cluster.state.validate()
    return found


def cause(cluster: SmallCluster, name: str) -> WaitCause | None:
    return explained(cluster, name).waits_for


def resources(cluster: SmallCluster, name: str) -> list[ResourceConstraint]:
    return [each for verdict in explained(cluster, name).flavors for each in verdict.resources]


def holders(cluster: SmallCluster, name: str) -> list[tuple[str, int]]:
    return [(each.workload.name, each.freed) for each in resources(cluster, name)[0].holdings.listed]


# --- what it waits for ----------------------------------------------------------------------------------


def test_workload_that_does_not_exist_has_no_explanation() -> None:
    assert explain(SmallCluster().state, key("w"), 0) is None


def test_admitted_and_finished_workloads_wait_for_nothing() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.submit("w", "q")
    cluster.run("w")
    assert explained(cluster, "w") == WorkloadExplanation(
        key("w"), Phase.ADMITTED, 0, key("q"), "q", None, None, None, ()
    )
    cluster.finish("w")
    assert explained(cluster, "w").phase is Phase.FINISHED
    assert cause(cluster, "w") is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"active": False}, WaitingForActivation()),
        ({"admission_gates": ("a", "b")}, WaitingForRelease(("a", "b"), False, False, False)),
        ({"on_hold": True}, WaitingForRelease((), True, False, False)),
        ({"waiting_for_replacement_pods": True}, WaitingForRelease((), False, True, False)),
        ({"deleting": True}, WaitingForRelease((), False, False, True)),
        ({"requeue_at": 1_002 * SECOND}, WaitingForBackoff(1_002 * SECOND)),
        ({"requeue_blocked": True}, WaitingForBackoff(None)),
        ({"queue_name": "missing"}, WaitingForLocalQueue(key("missing"), exists=False)),
        ({"queue_name": "stopped"}, WaitingForLocalQueue(key("stopped"), exists=True)),
        ({"queue_name": "dangling"}, WaitingForClusterQueue("nowhere", exists=False)),
        ({}, WaitingForTurn()),
    ],
)
def test_cause_before_any_cycle(fields: dict[str, Any], expected: WaitCause) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("stopped"), "q", stop_policy=StopPolicy.HOLD)))
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("dangling"), "nowhere")))
    cluster.submit("w", queue="q")
    cluster.change("w", **fields)
    assert cause(cluster, "w") == expected


def test_workload_with_ended_backoff_waits_for_its_turn() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.submit("w", "q", requeue_at=1_002 * SECOND)
    cluster.now = 1_002 * SECOND
    assert cause(cluster, "w") == WaitingForTurn()


def test_inactive_cluster_queue_has_causes() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1, stop_policy=StopPolicy.HOLD))
    cluster.submit("w", "q")
    found = cause(cluster, "w")
    assert isinstance(found, WaitingForClusterQueue)
    assert found.exists
    assert [each.reason for each in found.causes] == [ActiveReason.STOPPED]


def test_cluster_queue_that_is_excluded_from_cycles_has_no_causes() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.submit("w", "q")
    cluster.state.pause(Pause(cluster_queues=frozenset({"q"})))
    assert cause(cluster, "w") == WaitingForClusterQueue("q", exists=True)


@pytest.mark.parametrize(
    ("fields", "workload", "expected"),
    [
        ({"namespace_selector": RED}, {}, NamespaceMismatch()),
        (
            {},
            {"resource_problems": (ResourceProblem("f", "d"),)},
            InvalidResources((ResourceProblem("f", "d"),)),
        ),
    ],
)
def test_workload_that_is_held_back_waits_for_a_change(
    fields: dict[str, Any], workload: dict[str, Any], expected: object
) -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1, **fields))
    cluster.submit("w", "q", **workload)
    cluster.cycles()
    assert cause(cluster, "w") == WaitingForChange(expected)  # pyright: ignore[reportArgumentType]


def test_halted_admission_waits_for_pods_of_others() -> None:
    cluster = SmallCluster(CoreSettings(block_admission=True))
    cluster.put(queue("q", 12))
    cluster.submit("runs", "q")
    cluster.run("runs")
    cluster.submit("w", "q")
    cluster.cycles()
    assert cause(cluster, "w") == WaitingForPodsReady((key("runs"),), 0)


def test_refused_workload_waits_for_quota_with_its_lane() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    for name in ("first", "second"):
        cluster.submit(name, "q", cpu=2)
    cluster.cycles()
    refusal = cluster.refusal("first")
    assert cause(cluster, "first") == cause(cluster, "second") == WaitingForUnusedQuota(refusal)
    assert explained(cluster, "second").position == QueuedWorkload(key("second"), key("q"), 1, 1)


def test_workload_behind_head_of_strict_queue_names_the_head() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1, queueing_strategy=STRICT))
    cluster.submit("head", "q", cpu=2)
    cluster.submit("behind", "q")
    cluster.cycles()
    cluster.submit("overtakes", "q", priority=1)
    assert cause(cluster, "head") == WaitingForUnusedQuota(cluster.refusal("head"))
    assert cause(cluster, "behind") == WaitingBehindHead(key("head"))
    assert cause(cluster, "overtakes") == WaitingForTurn()


def test_preemptor_waits_for_its_targets_until_they_left() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2, preemption=LOWER))
    for name in ("low", "lower"):
        cluster.submit(name, "q")
    cluster.run("low", "lower")
    cluster.submit("w", "q", cpu=2, priority=1)
    cluster.cycles()
    assert cause(cluster, "w") == WaitingForTargetsToLeave((key("low"), key("lower")))
    cluster.leave("low")
    cluster.cycles()
    assert cause(cluster, "w") == WaitingForTargetsToLeave((key("lower"),))


def test_evicted_workload_waits_for_its_job_to_stop() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.submit("w", "q")
    cluster.run("w")
    cluster.evict("w")
    assert cause(cluster, "w") == WaitingForJobToStop()


def test_closed_preemption_gate_is_named() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1, preemption=LOWER))
    cluster.submit("low", "q")
    cluster.run("low")
    cluster.submit("w", "q", priority=1, has_closed_preemption_gate=True)
    cluster.cycles()
    assert cause(cluster, "w") == WaitingForOpenPreemptionGate()


def test_head_that_loses_to_reserved_capacity_waits_for_other_heads() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 2, "c", preemption=LOWER), queue("b", 0, "c"))
    cluster.submit("low", "a")
    cluster.run("low")
    cluster.submit("preempts", "a", cpu=2, priority=1)
    cluster.submit("borrows", "b")
    cluster.cycles()
    assert cause(cluster, "borrows") == WaitingForOtherHeads(QuotaTakenInCycle())


def test_head_that_fits_after_targets_of_another_has_no_targets() -> None:
    cluster = SmallCluster()
    cluster.put(
        queue("a", 1, "c", preemption=RECLAIM), queue("b", 1, "c", preemption=RECLAIM), queue("o", 0, "c")
    )
    cluster.submit("borrower", "o", cpu=2)
    cluster.run("borrower")
    cluster.submit("w", "a")
    cluster.submit("v", "b")
    cluster.cycles()
    assert cause(cluster, "w") == WaitingForTargetsToLeave((key("borrower"),))
    assert cause(cluster, "v") == WaitingForTargetsToLeave(())


def test_reserved_workload_waits_for_checks_that_are_not_ready() -> None:
    cluster = SmallCluster()
    for name in ("asks", "ready"):
        cluster.send(happened.AdmissionCheckChanged(AdmissionCheck(name, "c", active=True)))
    rules = tuple(AdmissionCheckRule(name) for name in ("asks", "ready"))
    cluster.put(queue("q", 1, admission_checks=rules))
    cluster.submit("w", "q")
    cluster.run("w")
    cluster.change("w", admission_checks=(("ready", CheckState.READY),))
    assert cause(cluster, "w") == WaitingForChecks((("asks", None),))
    cluster.send(happened.ClusterQueueDeleted("q"))
    assert cause(cluster, "w") == WaitingForChecks(())


# --- quota ----------------------------------------------------------------------------------------------


def test_shortage_names_node_and_holders() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 4, "c"), queue("b", 2, "c"))
    cluster.submit("small", "b")
    cluster.submit("large", "b", cpu=3, priority=7)
    cluster.run("small", "large")
    cluster.submit("w", "a", cpu=5)
    cluster.cycles()
    since = cluster.now // SECOND * SECOND
    holdings = QuotaHoldings(
        (
            QuotaHolding(key("large"), "b", 3, 3, 7, since, is_leaving=False),
            QuotaHolding(key("small"), "b", 1, 1, 0, since, is_leaving=False),
        )
    )
    constraint = ResourceConstraint(
        "cpu", 5, 0, 2, 6, 3, BindingNode("c", is_cohort=True, limit=BindingLimit.QUOTA), holdings
    )
    assert explained(cluster, "w").flavors == (FlavorVerdict(("main",), "default", None, (constraint,)),)
    assert not explained(cluster, "w").flavors[0].fits


def test_request_that_fits_has_no_binding_node() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4))
    cluster.submit("w", "q", cpu=3)
    assert resources(cluster, "w") == [ResourceConstraint("cpu", 3, 0, 4, 4, 0, None, QuotaHoldings())]
    assert explained(cluster, "w").flavors[0].fits


def test_request_above_maximum_has_no_holders() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4))
    cluster.submit("runs", "q")
    cluster.run("runs")
    cluster.submit("w", "q", cpu=5)
    (found,) = resources(cluster, "w")
    assert (found.free, found.maximum, found.short_by, found.holdings) == (3, 4, 2, QuotaHoldings())
    assert found.binding == BindingNode("q", is_cohort=False, limit=BindingLimit.QUOTA)


@pytest.mark.parametrize(
    ("queue_limit", "cohort_limit", "binding"),
    [
        (1, None, BindingNode("a", is_cohort=False, limit=BindingLimit.BORROWING_LIMIT)),
        (None, 1, BindingNode("inner", is_cohort=True, limit=BindingLimit.BORROWING_LIMIT)),
        (9, 9, BindingNode("outer", is_cohort=True, limit=BindingLimit.QUOTA)),
        (None, None, BindingNode("outer", is_cohort=True, limit=BindingLimit.QUOTA)),
    ],
)
def test_nearest_limit_that_allows_less_is_binding(
    queue_limit: int | None, cohort_limit: int | None, binding: BindingNode
) -> None:
    cluster = SmallCluster()
    quotas = (
        ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", ResourceQuota(1, cohort_limit)),)),)),
    )
    cluster.send(happened.CohortChanged(Cohort("inner", "outer", quotas)))
    cluster.put(
        queue("a", cohort="inner", resource_groups=group(("default", 2), limit=queue_limit)),
        queue("b", 2, "outer"),
    )
    cluster.submit("runs", "b")
    cluster.run("runs")
    cluster.submit("w", "a", cpu=5)
    (found,) = resources(cluster, "w")
    assert found.binding == binding


def test_only_workloads_that_free_lent_quota_are_holders() -> None:
    cluster = SmallCluster()
    kept = ResourceQuota(4, None, lending_limit=1)
    cluster.put(
        queue("a", 1, "c"),
        queue(
            "keeps",
            cohort="c",
            resource_groups=(ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", kept),)),)),),
        ),
        queue("idle", 0, "c"),
        queue("apart", 9),
    )
    cluster.submit("within", "keeps", cpu=2)
    cluster.submit("apart", "apart", cpu=9)
    cluster.run("within", "apart")
    cluster.submit("w", "a", cpu=2)
    assert holders(cluster, "w") == []
    cluster.submit("own", "a", cpu=1)
    cluster.submit("spills", "keeps", cpu=2, priority=1)
    cluster.delete("w")
    cluster.run("own", "spills")
    cluster.submit("w", "a", cpu=2)
    assert holders(cluster, "w") == [("own", 1), ("spills", 1), ("within", 1)]


def test_holders_beyond_the_list_are_counted() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 24))
    for number in range(12):
        cluster.submit(f"r{number:02}", "q", cpu=2)
    cluster.run(*(f"r{number:02}" for number in range(12)))
    cluster.submit("w", "q", cpu=1)
    (found,) = resources(cluster, "w")
    assert len(found.holdings.listed) == 10
    assert (found.holdings.more, found.holdings.more_amount) == (2, 4)


def test_refused_and_uncovered_flavors_are_verdicts() -> None:
    cluster = SmallCluster()
    cluster.send(
        happened.ResourceFlavorChanged(ResourceFlavor("spot", node_taints=(Taint("spot", "", "NoSchedule"),)))
    )
    cluster.put(queue("q", resource_groups=group(("spot", 4), ("default", 1))))
    pods = PodSet("main", 1, template_requesting({"cpu": 2, "gpu": 1}))
    cluster.submit("w", "q", pod_sets=(pods,))
    assert [(each.flavor, each.refusal, each.fits) for each in explained(cluster, "w").flavors] == [
        ("", ResourceNotCovered("gpu"), False),
        ("spot", UntoleratedTaint("spot", "spot", "", "NoSchedule"), False),
        ("default", None, False),
    ]


def test_later_podset_counts_with_earlier_ones_of_the_same_flavor() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4))
    pods = tuple(PodSet(name, 1, template_requesting({"cpu": 3})) for name in ("first", "second"))
    cluster.submit("w", "q", pod_sets=pods)
    assert [(each.earlier, each.free, each.short_by) for each in resources(cluster, "w")] == [
        (0, 4, 0),
        (3, 4, 2),
    ]


def test_quota_of_replaced_workload_counts_as_free() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4))
    cluster.submit("old", "q", cpu=3)
    cluster.run("old")
    cluster.submit("other", "q", cpu=1)
    cluster.run("other")
    cluster.submit("new", "q", cpu=4, replaces=key("old"))
    (found,) = resources(cluster, "new")
    assert (found.free, found.short_by) == (3, 1)
    assert [each.workload for each in found.holdings.listed] == [key("other")]
    cluster.state.validate()


def test_explanation_does_not_change_the_state() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 4, "c"), queue("b", 2, "c"))
    cluster.submit("runs", "b", cpu=5)
    cluster.run("runs")
    cluster.submit("w", "a", cpu=5)
    cluster.cycles()
    before = cluster.state.to_dict()
    explained(cluster, "w")
    assert cluster.state.to_dict() == before


# --- refusals -------------------------------------------------------------------------------------------


def test_refusal_explanation_has_the_constraints_without_holders() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2))
    cluster.submit("runs", "q")
    cluster.run("runs")
    for name in ("first", "second"):
        cluster.submit(name, "q", cpu=2)
    cluster.cycles()
    (verdict,) = explained(cluster, "second").flavors
    (constraint,) = verdict.resources
    assert constraint.holdings != QuotaHoldings()
    without_holders = replace(verdict, resources=(replace(constraint, holdings=QuotaHoldings()),))
    refusal = cluster.refusal("first")
    assert refusal is not None
    for name in ("first", "second"):
        assert explain_refusal(cluster.state, key(name)) == RefusalExplanation(
            "q", refusal, (without_holders,)
        )
    cluster.state.validate()


def test_workload_without_refusal_has_no_refusal_explanation() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.submit("w", "q")
    assert explain_refusal(cluster.state, key("w")) is None
    cluster.run("w")
    assert explain_refusal(cluster.state, key("w")) is None
    assert explain_refusal(cluster.state, key("missing")) is None

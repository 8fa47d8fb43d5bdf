"""The search for flavors, with an oracle that stands for preemption."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.amounts import UNLIMITED, FlavorResource
from admitq.core.assignments import Assignment, FlavorFit, TriedFlavor
from admitq.core.cohorts import CohortTrees, declared_quotas
from admitq.core.flavor_options import FlavorOptions, build_flavor_options
from admitq.core.flavors import (
    Oracle,
    PreemptionQuestion,
    assign,
    find_no_candidates,
    should_try_next_flavor,
)
from admitq.core.instructions import FitMode, FlavorAttempt
from admitq.core.model import (
    BorrowWithinCohort,
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorFungibilityPreference,
    FlavorQuotas,
    PodSet,
    PodSetAssignment,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Taint,
    Toleration,
)
from admitq.core.refusals import (
    ExceedsMaxQuota,
    InsufficientQuota,
    NoFitReason,
    NoFlavorFits,
    PodSetRefusals,
    ResourceNotCovered,
    UntoleratedTaint,
)
from admitq.core.requests import demands, template_requesting
from admitq.core.settings import FairSharing, Gates, Resources, Settings

FLAVORS = {name: ResourceFlavor(name) for name in ("f1", "f2", "f3")}
ANY_PREEMPTION = ClusterQueuePreemption(
    borrow_within_cohort=BorrowWithinCohort(PreemptionPolicy.LOWER_PRIORITY)
)


class Queue:
    """A ClusterQueue with quota of cpu in some flavors, in a cohort with more, some of it in use."""

    def __init__(
        self,
        nominal: Mapping[str, int],
        *,
        lent: Mapping[str, int] | None = None,
        used: Mapping[str, int] | None = None,
        fungibility: FlavorFungibility | None = None,
        preemption: ClusterQueuePreemption = ANY_PREEMPTION,
        settings: Settings | None = None,
        flavors: Mapping[str, ResourceFlavor] = FLAVORS,
    ) -> None:
        def group(of: Mapping[str, int]) -> ResourceGroup:
            offered = (FlavorQuotas(name, (("cpu", ResourceQuota(cpu)),)) for name, cpu in of.items())
            return ResourceGroup(("cpu",), tuple(offered))

        forest = CohortTrees()
        spec = ClusterQueue(
            "q",
            cohort="org",
            resource_groups=(group(nominal),),
            flavor_fungibility=fungibility or FlavorFungibility(),
            preemption=preemption,
        )
        node = forest.put_cluster_queue("q", "org", declared_quotas(spec.resource_groups))
        forest.put_cohort("org", None, declared_quotas((group(lent or {}),)))
        self.flavor_options: FlavorOptions = build_flavor_options(
            spec, forest, node, flavors, settings or Settings()
        )
        self._forest, self._node = forest, node
        self.use(used or {})

    def use(self, more: Mapping[str, int]) -> None:
        """Count so much more as in use."""
        usage = {pair: more.get(pair.flavor, 0) for pair in self._node.cells}
        self._forest.add_usage(self._node, tuple(usage.items()))

    def assign(
        self,
        *pod_sets: PodSet,
        tried: tuple[TriedFlavor, ...] = (),
        oracle: Oracle = find_no_candidates,
        restrict_to: tuple[PodSetAssignment, ...] | None = None,
    ) -> Assignment:
        return assign(
            demands(pod_sets), self.flavor_options, tried=tried, oracle=oracle, restrict_to=restrict_to
        )


def alone(
    *groups: ResourceGroup,
    settings: Settings | None = None,
    used: Mapping[FlavorResource, int] | None = None,
) -> FlavorOptions:
    """What a ClusterQueue without a cohort offers."""
    forest = CohortTrees()
    spec = ClusterQueue("q", resource_groups=groups)
    node = forest.put_cluster_queue("q", None, declared_quotas(groups))
    forest.add_usage(node, tuple((used or {}).items()))
    return build_flavor_options(spec, forest, node, FLAVORS, settings or Settings())


def group(flavor: str, **quotas: int) -> ResourceGroup:
    of = tuple((resource, ResourceQuota(amount)) for resource, amount in quotas.items())
    return ResourceGroup(tuple(quotas), (FlavorQuotas(flavor, of),))


def refusing(name: str, *refusals: Any, reason: NoFitReason) -> NoFlavorFits:
    return NoFlavorFits((PodSetRefusals(name, refusals),), reason)


def pods(cpu: int, name: str = "main", **of: Any) -> PodSet:
    return PodSet(name, 1, template_requesting({"cpu": cpu}), **of)


def chosen(assignment: Assignment) -> list[str]:
    return [dict(part.flavors)["cpu"] for part in assignment.pod_sets]


SEARCH_ON = FlavorFungibilityPolicy.TRY_NEXT_FLAVOR
STOP = FlavorFungibilityPolicy.MAY_STOP_SEARCH
BORROWING_FIRST = FlavorFungibilityPreference.BORROWING_OVER_PREEMPTION
PREEMPTION_FIRST = FlavorFungibilityPreference.PREEMPTION_OVER_BORROWING


@pytest.mark.parametrize(
    ("mode", "level", "borrow", "preempt", "on"),
    [
        (FitMode.NO_FIT, 0, STOP, STOP, True),
        (FitMode.NO_PREEMPTION_CANDIDATES, 0, STOP, STOP, True),
        (FitMode.FIT, 0, SEARCH_ON, SEARCH_ON, False),
        (FitMode.FIT, 1, STOP, SEARCH_ON, False),
        (FitMode.FIT, 1, SEARCH_ON, STOP, True),
        (FitMode.PREEMPT, 0, SEARCH_ON, STOP, False),
        (FitMode.PREEMPT, 0, STOP, SEARCH_ON, True),
        (FitMode.RECLAIM, 0, STOP, SEARCH_ON, True),
        (FitMode.RECLAIM, 1, SEARCH_ON, STOP, True),
    ],
)
def test_when_the_search_goes_on(
    mode: FitMode, level: int, borrow: FlavorFungibilityPolicy, preempt: FlavorFungibilityPolicy, *, on: bool
) -> None:
    assert should_try_next_flavor(FlavorFit(mode, level), FlavorFungibility(borrow, preempt)) is on


@pytest.mark.parametrize("mode", FitMode)
def test_without_the_gate_only_a_fit_ends_the_search(mode: FitMode) -> None:
    assert should_try_next_flavor(FlavorFit(mode, 1), None) is (mode is not FitMode.FIT)


BY_FLAVOR = {
    "f1": FlavorFit(FitMode.PREEMPT, 0),
    "f2": FlavorFit(FitMode.RECLAIM, 1),
    "f3": FlavorFit(FitMode.NO_PREEMPTION_CANDIDATES, 0),
}


def oracle_of(prospects: Mapping[str, FlavorFit]) -> Oracle:
    def answer(question: PreemptionQuestion) -> FlavorFit:
        return prospects[question.pair.flavor]

    return answer


@pytest.mark.parametrize(
    ("preference", "prospects", "best"),
    [
        (None, {"f1": (FitMode.PREEMPT, 0), "f2": (FitMode.RECLAIM, 1)}, "f2"),
        (BORROWING_FIRST, {"f1": (FitMode.PREEMPT, 0), "f2": (FitMode.RECLAIM, 1)}, "f2"),
        (PREEMPTION_FIRST, {"f1": (FitMode.PREEMPT, 0), "f2": (FitMode.RECLAIM, 1)}, "f1"),
        (None, {"f1": (FitMode.PREEMPT, 2), "f2": (FitMode.PREEMPT, 1)}, "f2"),
        (PREEMPTION_FIRST, {"f1": (FitMode.PREEMPT, 1), "f2": (FitMode.RECLAIM, 1)}, "f2"),
        (None, {"f1": (FitMode.NO_PREEMPTION_CANDIDATES, 0), "f2": (FitMode.PREEMPT, 3)}, "f2"),
        (
            PREEMPTION_FIRST,
            {"f1": (FitMode.NO_PREEMPTION_CANDIDATES, 0), "f2": (FitMode.PREEMPT, 3)},
            "f2",
        ),
        (None, {"f1": (FitMode.PREEMPT, 1), "f2": (FitMode.PREEMPT, 1)}, "f1"),
    ],
)
def test_preference_among_flavors_that_need_preemption(
    preference: FlavorFungibilityPreference | None, prospects: dict[str, tuple[FitMode, int]], best: str
) -> None:
    queue = Queue(
        {"f1": 2, "f2": 2},
        used={"f1": 2, "f2": 2},
        fungibility=FlavorFungibility(SEARCH_ON, SEARCH_ON, preference),
    )
    oracle = oracle_of({name: FlavorFit(*of) for name, of in prospects.items()})
    assignment = queue.assign(pods(1), oracle=oracle)
    assert chosen(assignment) == [best]
    assert assignment.mode is prospects[best][0]
    assert assignment.borrow_level == prospects[best][1]


@pytest.mark.parametrize(("preference", "best"), [(None, "f1"), (PREEMPTION_FIRST, "f2")])
def test_a_fit_that_borrows_against_preemption_at_home(
    preference: FlavorFungibilityPreference | None, best: str
) -> None:
    queue = Queue(
        {"f1": 1, "f2": 3},
        lent={"f1": 5, "f2": 0},
        used={"f1": 1, "f2": 3},
        fungibility=FlavorFungibility(SEARCH_ON, SEARCH_ON, preference),
    )
    oracle = oracle_of({"f2": FlavorFit(FitMode.PREEMPT, 0)})
    assert chosen(queue.assign(pods(2), oracle=oracle)) == [best]


def test_the_worst_podset_decides_the_mode() -> None:
    queue = Queue({"f1": 3}, used={"f1": 1})
    oracle = oracle_of({"f1": FlavorFit(FitMode.PREEMPT, 0)})
    assignment = queue.assign(pods(2, "a"), pods(1, "b"), oracle=oracle)
    assert (assignment.mode, assignment.refusal) == (
        FitMode.PREEMPT,
        refusing("b", InsufficientQuota("f1", "cpu", 1), reason=NoFitReason.WAITING_FOR_QUOTA),
    )
    assert assignment.contested == {FlavorResource("f1", "cpu")}
    assert assignment.usage == ((FlavorResource("f1", "cpu"), 3),)
    assert assignment.attempts == ()


def test_the_oracle_is_asked_for_all_that_the_workload_takes() -> None:
    asked: list[int] = []

    def oracle(question: PreemptionQuestion) -> FlavorFit:
        asked.append(question.amount)
        return FlavorFit(FitMode.NO_FIT, 0)

    Queue({"f1": 4}, used={"f1": 2}).assign(pods(2, "a"), pods(1, "b"), oracle=oracle)
    assert asked == [3]


def test_the_search_ends_at_the_first_flavor_that_pleases_and_remembers_it() -> None:
    queue = Queue({"f1": 2, "f2": 2, "f3": 2})
    first = queue.assign(pods(1))
    assert (chosen(first), first.tried) == (["f1"], (TriedFlavor("main", "cpu", 0),))
    second = queue.assign(pods(1), tried=first.tried)
    assert (chosen(second), second.tried) == (["f2"], (TriedFlavor("main", "cpu", 1),))
    third = queue.assign(pods(1), tried=second.tried)
    assert (chosen(third), third.tried) == (["f3"], ())


def test_a_place_beyond_the_last_flavor_starts_over() -> None:
    queue = Queue({"f1": 2})
    assert chosen(queue.assign(pods(1), tried=(TriedFlavor("main", "cpu", 7),))) == ["f1"]


def test_a_scan_that_found_nothing_has_nothing_left() -> None:
    refused = Queue({"f1": 1, "f2": 1}).assign(pods(5))
    assert refused.tried == ()
    assert refused.mode is FitMode.NO_FIT


def test_an_earlier_podset_may_go_on_where_a_later_one_failed() -> None:
    refused = Queue({"f1": 2, "f2": 1}).assign(pods(2, "a"), pods(2, "b"))
    assert refused.refusal is not None
    assert [part.pod_set for part in refused.refusal.parts] == ["b"]
    assert refused.tried == (TriedFlavor("a", "cpu", 0),)


def test_scans_of_a_podset_that_failed_before_them_are_not_gone_on_with() -> None:
    two_flavors = ResourceGroup(
        ("gpu",), tuple(FlavorQuotas(name, (("gpu", ResourceQuota(1)),)) for name in ("f2", "f3"))
    )
    options = alone(group("f1", cpu=2), two_flavors, used={FlavorResource("f1", "cpu"): 2})
    wanted = demands((PodSet("main", 1, template_requesting({"cpu": 3, "gpu": 1})),))
    assert assign(wanted, options).tried == ()
    short = alone(group("f1", cpu=2), two_flavors, used={FlavorResource("f1", "cpu"): 2})
    within = demands((PodSet("main", 1, template_requesting({"cpu": 1, "gpu": 1})),))
    oracle = oracle_of({"f1": FlavorFit(FitMode.NO_FIT, 0)})
    refused = assign(within, short, oracle=oracle)
    assert refused.refusal == refusing(
        "main", InsufficientQuota("f1", "cpu", 1), reason=NoFitReason.WAITING_FOR_QUOTA
    )
    assert refused.tried == ()


def test_the_first_resource_that_finds_nothing_ends_the_flavor() -> None:
    wanted = PodSet("main", 1, template_requesting({"cpu": 2, "memory": 2}))
    refused = assign(demands((wanted,)), alone(group("f1", cpu=1, memory=1)))
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
def test_the_most_hopeful_flavor_gives_the_reason(
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


def test_among_groups_the_most_severe_gives_the_reason() -> None:
    options = alone(group("f1", cpu=2), group("f2", gpu=2), used={FlavorResource("f1", "cpu"): 2})
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


def test_pods_that_ask_for_nothing_need_no_flavor() -> None:
    assignment = Queue({"f1": 0}).assign(PodSet("main", 3))
    assert (assignment.refusal, assignment.usage) == (None, ())
    assert (assignment.pod_sets[0].flavors, assignment.pod_sets[0].count) == ((), 3)


def test_nothing_fits_into_a_flavor_in_debt_too() -> None:
    assignment = Queue({"f1": 2}, used={"f1": 3}).assign(pods(0))
    assert (assignment.mode, assignment.usage) == (FitMode.FIT, ())
    assert assignment.pod_sets == (PodSetAssignment("main", (("cpu", "f1"),), (("cpu", 0),), 1),)


def test_what_is_missing_in_a_flavor_in_debt_is_not_the_debt() -> None:
    refused = Queue({"f1": 2}, used={"f1": 9}, preemption=ClusterQueuePreemption()).assign(pods(1))
    assert refused.refusal == refusing(
        "main", InsufficientQuota("f1", "cpu", 1), reason=NoFitReason.WAITING_FOR_QUOTA
    )


def test_a_queue_without_flavors_offers_nothing() -> None:
    assert Queue({}).assign(pods(1)).refusal == refusing("main", reason=NoFitReason.NO_MATCHING_FLAVOR)


def test_more_than_can_be_counted_fits_into_no_quota() -> None:
    options = alone(group("f1", cpu=UNLIMITED, memory=UNLIMITED))
    half = PodSet("a", 1, template_requesting({"memory": 2**62}))
    assert assign(demands((half,)), options).mode is FitMode.FIT
    refused = assign(demands((half, replace(half, name="b"))), options)
    too_much = ExceedsMaxQuota("f1", "memory", 2**62, 2**62, UNLIMITED)
    assert refused.refusal == refusing("b", too_much, reason=NoFitReason.EXCEEDS_MAX_QUOTA)
    whole = PodSet("a", 2**31, template_requesting({"cpu": UNLIMITED - 1}))
    assert assign(demands((whole,)), options).mode is FitMode.NO_FIT


# --- what is covered ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fpga", "resources", "gate", "refusals"),
    [
        (1, Resources(), True, (ResourceNotCovered("fpga"),)),
        (0, Resources(), True, None),
        (1, Resources(ignore_undeclared=True), True, None),
        (1, Resources(ignore_undeclared=True), False, (ResourceNotCovered("fpga"),)),
    ],
    ids=["refused", "nothing of it", "ignored", "gate off"],
)
def test_resources_that_the_queue_does_not_cover(
    fpga: int, resources: Resources, gate: bool, refusals: tuple[Any, ...] | None
) -> None:
    settings = Settings(resources=resources, gates=Gates(quota_check_strategy=gate))
    wanted = demands((PodSet("main", 1, template_requesting({"cpu": 1, "fpga": fpga})),))
    assignment = assign(wanted, alone(group("f1", cpu=1), settings=settings))
    if refusals is None:
        assert assignment.usage == ((FlavorResource("f1", "cpu"), 1),)
        assert assignment.pod_sets[0].flavors == (("cpu", "f1"),)
    else:
        assert assignment.refusal == refusing("main", *refusals, reason=NoFitReason.NO_MATCHING_FLAVOR)


def test_pods_are_a_resource_where_the_queue_covers_them() -> None:
    wanted = demands((PodSet("main", 3, template_requesting({"cpu": 1})),), (("main", 1),))
    assignment = assign(wanted, alone(group("f1", cpu=9, pods=2)))
    assert assignment.pod_sets[0].resource_usage == (("cpu", 2), ("pods", 2))
    refused = assign(wanted, alone(group("f1", cpu=9, pods=1)))
    assert refused.refusal == refusing(
        "main", ExceedsMaxQuota("f1", "pods", 0, 2, 1), reason=NoFitReason.EXCEEDS_MAX_QUOTA
    )


# --- podset groups --------------------------------------------------------------------------------------


def test_podsets_of_a_group_take_the_same_flavor_for_all_they_ask_for_together() -> None:
    queue = Queue({"f1": 3, "f2": 4})
    apart = queue.assign(pods(3, "leader"), pods(1, "workers"))
    assert chosen(apart) == ["f1", "f2"]
    together = queue.assign(pods(3, "leader", group="g"), pods(1, "workers", group="g"))
    assert chosen(together) == ["f2", "f2"]
    assert [part.resource_usage for part in together.pod_sets] == [(("cpu", 3),), (("cpu", 1),)]
    assert together.usage == ((FlavorResource("f2", "cpu"), 4),)


def test_a_group_stands_where_its_first_podset_stands() -> None:
    assignment = Queue({"f1": 9}).assign(pods(1, "a", group="g"), pods(1, "b"), pods(1, "c", group="g"))
    assert [part.name for part in assignment.pod_sets] == ["a", "b", "c"]


def test_nodes_must_hold_all_podsets_of_a_group() -> None:
    spot = ResourceFlavor("f1", node_taints=(Taint("spot", "", "NoSchedule"),))
    tolerant = pods(1, "a", group="g", tolerations=(Toleration("spot", "Exists"),))
    refused = Queue({"f1": 9}, flavors={"f1": spot}).assign(tolerant, pods(1, "b", group="g"))
    taint = UntoleratedTaint("f1", "spot", "", "NoSchedule")
    assert refused.refusal == NoFlavorFits(
        (PodSetRefusals("a", (taint,)), PodSetRefusals("b", (taint,))), NoFitReason.NO_MATCHING_FLAVOR
    )


def test_a_podset_takes_flavors_for_what_it_asks_for_itself() -> None:
    options = alone(group("f1", cpu=2), group("f2", gpu=2))
    wanted = (
        PodSet("a", 1, template_requesting({"cpu": 1}), group="g"),
        PodSet("b", 1, template_requesting({"gpu": 1}), group="g"),
    )
    assignment = assign(demands(wanted), options)
    assert [part.flavors for part in assignment.pod_sets] == [(("cpu", "f1"),), (("gpu", "f2"),)]


# --- when preemption may help ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "preemption", "fair", "asked"),
    [
        (2, ClusterQueuePreemption(), False, True),
        (3, ClusterQueuePreemption(), False, False),
        (3, ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.ANY), False, False),
        (3, ClusterQueuePreemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY), False, False),
        (3, ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.ANY), True, True),
        (3, ClusterQueuePreemption(), True, False),
        (3, ANY_PREEMPTION, False, True),
    ],
    ids=[
        "within nominal",
        "beyond it, in the whole tree",
        "reclaiming does not help there",
        "nor preempting at home",
        "shares do if it may reclaim",
        "and not if it may not",
        "preempting while borrowing does",
    ],
)
def test_when_the_oracle_is_asked(
    amount: int, preemption: ClusterQueuePreemption, *, fair: bool, asked: bool
) -> None:
    settings = Settings(fair_sharing=FairSharing() if fair else None)
    queue = Queue({"f1": 2}, lent={"f1": 5}, used={"f1": 7}, preemption=preemption, settings=settings)
    assignment = queue.assign(pods(amount))
    assert assignment.mode is (FitMode.NO_PREEMPTION_CANDIDATES if asked else FitMode.NO_FIT)


def test_the_oracle_is_asked_where_others_below_the_root_may_be_in_debt() -> None:
    forest = CohortTrees()
    quota = {
        name: (group("f1", cpu=cpu),) for name, cpu in (("q", 1), ("other", 3), ("left", 2), ("root", 9))
    }
    forest.put_cohort("root", None, declared_quotas(quota["root"]))
    forest.put_cohort("left", "root", declared_quotas(quota["left"]))
    node = forest.put_cluster_queue("q", "left", declared_quotas(quota["q"]))
    other = forest.put_cluster_queue("other", "root", declared_quotas(quota["other"]))
    forest.add_usage(other, ((FlavorResource("f1", "cpu"), 15),))
    spec = ClusterQueue("q", cohort="left", resource_groups=quota["q"])
    options = build_flavor_options(spec, forest, node, FLAVORS, Settings())
    modes = {amount: assign(demands((pods(amount),)), options).mode for amount in (1, 3, 4)}
    assert modes == {
        1: FitMode.NO_PREEMPTION_CANDIDATES,
        3: FitMode.NO_PREEMPTION_CANDIDATES,
        4: FitMode.NO_FIT,
    }


def test_a_fit_elsewhere_does_not_hide_that_a_resource_must_be_preempted_for() -> None:
    """The flavor competes as its least preferred resource, a fit far away; the workload must preempt."""
    forest = CohortTrees()
    own = (group("f1", cpu=2, memory=1),)
    node = forest.put_cluster_queue("q", "org", declared_quotas(own))
    forest.put_cohort("org", None, declared_quotas((group("f1", memory=5),)))
    forest.add_usage(node, ((FlavorResource("f1", "cpu"), 2),))
    fungibility = FlavorFungibility(preference=PREEMPTION_FIRST)
    spec = ClusterQueue("q", cohort="org", resource_groups=own, flavor_fungibility=fungibility)
    wanted = demands((PodSet("main", 1, template_requesting({"cpu": 1, "memory": 3})),))
    assignment = assign(
        wanted,
        build_flavor_options(spec, forest, node, FLAVORS, Settings()),
        oracle=oracle_of({"f1": FlavorFit(FitMode.PREEMPT, 0)}),
    )
    assert (assignment.mode, assignment.borrow_level) == (FitMode.PREEMPT, 1)
    assert assignment.contested == {FlavorResource("f1", "cpu")}
    assert assignment.refusal == refusing(
        "main", InsufficientQuota("f1", "cpu", 1), reason=NoFitReason.WAITING_FOR_QUOTA
    )


def test_preempting_workload_reports_all_evaluated_flavors() -> None:
    queue = Queue({"f1": 1, "f2": 3}, used={"f2": 3})
    assignment = queue.assign(pods(2), oracle=oracle_of({"f2": FlavorFit(FitMode.RECLAIM, 0)}))
    assert assignment.mode is FitMode.RECLAIM
    assert assignment.refusal == refusing(
        "main",
        ExceedsMaxQuota("f1", "cpu", 0, 2, 1),
        InsufficientQuota("f2", "cpu", 2),
        reason=NoFitReason.WAITING_FOR_QUOTA,
    )


# --- gates, pins, records -------------------------------------------------------------------------------


def test_without_the_gate_the_first_fit_or_the_best_mode_is_taken() -> None:
    gates = Settings(gates=Gates(flavor_fungibility=False))
    rules = FlavorFungibility(SEARCH_ON, SEARCH_ON, PREEMPTION_FIRST)
    queue = Queue({"f1": 1, "f2": 3}, lent={"f1": 5}, fungibility=rules, settings=gates)
    assert chosen(queue.assign(pods(2))) == ["f1"]
    full = Queue({"f1": 1, "f2": 3, "f3": 3}, used={"f1": 1, "f2": 3, "f3": 3}, settings=gates)
    oracle = oracle_of(
        {
            "f1": FlavorFit(FitMode.PREEMPT, 0),
            "f2": FlavorFit(FitMode.RECLAIM, 2),
            "f3": FlavorFit(FitMode.RECLAIM, 1),
        }
    )
    assert chosen(full.assign(pods(1), oracle=oracle)) == ["f2"]


def test_a_nomination_is_kept_to() -> None:
    queue = Queue({"f1": 2, "f2": 2, "f3": 2})
    nominated = queue.assign(pods(1), tried=(TriedFlavor("main", "cpu", 0),))
    assert chosen(nominated) == ["f2"]
    again = queue.assign(pods(1), restrict_to=nominated.pod_sets)
    assert chosen(again) == ["f2"]
    full = Queue({"f1": 2, "f2": 2}, used={"f2": 2}, preemption=ClusterQueuePreemption())
    refused = full.assign(pods(2), restrict_to=nominated.pod_sets)
    assert refused.refusal == refusing(
        "main", InsufficientQuota("f2", "cpu", 2), reason=NoFitReason.WAITING_FOR_QUOTA
    )


def test_pins_hold_for_each_podset() -> None:
    queue = Queue({"f1": 2, "f2": 9})
    nominated = queue.assign(pods(2, "a"), pods(2, "b"))
    assert chosen(nominated) == ["f1", "f2"]
    assert chosen(queue.assign(pods(1, "a"), pods(1, "b"), restrict_to=nominated.pod_sets)) == ["f1", "f2"]


# --- what was looked at ---------------------------------------------------------------------------------


def test_skipped_flavors_are_reported() -> None:
    rules = FlavorFungibility(when_can_borrow=SEARCH_ON)
    queue = Queue({"f1": 1, "f2": 1, "f3": 2}, lent={"f2": 5}, fungibility=rules)
    assert queue.assign(pods(2)).attempts == (
        FlavorAttempt("main", "f1", FitMode.NO_FIT, 0, (ExceedsMaxQuota("f1", "cpu", 0, 2, 1),)),
        FlavorAttempt("main", "f2", FitMode.FIT, 1, ()),
    )


def test_what_is_remembered_of_a_shape_is_what_a_search_would_find() -> None:
    queue = Queue({"f1": 2, "f2": 2}, lent={"f1": 9})
    wanted = demands((pods(1, "a"), pods(2, "b")))
    first, second = (assign(wanted, queue.flavor_options) for _ in range(2))
    assert first is second
    assert (chosen(first), first.borrow_level, first.tried) == (
        ["f1", "f1"],
        1,
        (TriedFlavor("a", "cpu", 0), TriedFlavor("b", "cpu", 0)),
    )


small = st.integers(0, 4)


@given(
    st.fixed_dictionaries({"f1": small}, optional={"f2": small, "f3": small}),
    st.dictionaries(st.sampled_from(("f1", "f2")), small),
    st.dictionaries(st.sampled_from(("f1", "f2")), small),
    st.sampled_from((STOP, SEARCH_ON)),
    st.sampled_from((None, BORROWING_FIRST, PREEMPTION_FIRST)),
    st.booleans(),
    st.lists(st.tuples(small, st.sampled_from((None, "g"))), min_size=1, max_size=3),
    st.lists(st.dictionaries(st.sampled_from(("f1", "f2")), st.integers(-2, 2)), max_size=4),
)
def test_whatever_is_remembered_a_search_would_find(
    nominal: dict[str, int],
    lent: dict[str, int],
    used: dict[str, int],
    when_can_borrow: FlavorFungibilityPolicy,
    preference: FlavorFungibilityPreference | None,
    gate: bool,
    workload: list[tuple[int, str | None]],
    changes: list[dict[str, int]],
) -> None:
    queue = Queue(
        nominal,
        lent=lent,
        used=used,
        fungibility=FlavorFungibility(when_can_borrow, STOP, preference),
        settings=Settings(gates=Gates(flavor_fungibility=gate)),
    )
    wanted = demands(
        tuple(pods(cpu, f"p{number}", group=group) for number, (cpu, group) in enumerate(workload))
    )
    forgetful = replace(queue.flavor_options, remembered={})
    plan = queue.flavor_options.options_for(wanted)
    for change in ({}, *changes, {}):
        queue.use(change)
        forgetful.remembered[wanted] = plan._replace(first=None, fitting={}, chosen={}, refused={})
        assert assign(wanted, queue.flavor_options) == assign(wanted, forgetful)


def test_what_is_remembered_holds_only_while_it_fits() -> None:
    queue = Queue({"f1": 4}, lent={"f1": 4}, preemption=ClusterQueuePreemption())
    outcomes: list[tuple[FitMode, int]] = []
    for more in (0, 2, 1, 4, -4, -3):
        queue.use({"f1": more})
        assignment = queue.assign(pods(2))
        outcomes.append((assignment.mode, assignment.borrow_level))
    fits, borrows, short = (FitMode.FIT, 0), (FitMode.FIT, 1), (FitMode.NO_PREEMPTION_CANDIDATES, 1)
    assert outcomes == [fits, fits, borrows, short, borrows, fits]


def test_a_great_many_shapes_are_not_all_remembered() -> None:
    queue = Queue({"f1": 2})
    for cpu in range(1100):
        queue.assign(pods(cpu))
    assert len(queue.flavor_options.remembered) < 1100


def test_a_great_many_refusals_are_not_all_remembered() -> None:
    queue = Queue({"f1": 200})
    queue.use({"f1": 1})
    for _ in range(100):
        queue.use({"f1": 1})
        assert queue.assign(pods(200)).refusal is not None
    (plan,) = queue.flavor_options.remembered.values()
    assert 0 < len(plan.refused) <= 64

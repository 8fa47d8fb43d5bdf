"""The scan of flavors, with an oracle instead of the search for targets."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.amounts import FlavorResource
from admitq.core.assignments import FlavorFit, ScanStop
from admitq.core.cohorts import CohortTrees, declared_quotas
from admitq.core.flavor_options import build_flavor_options
from admitq.core.flavors import PreemptionQuestion, assign, should_try_next_flavor
from admitq.core.instructions import ConsideredFlavor, FitMode
from admitq.core.model import (
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorFungibilityPreference,
    PodSet,
    PreemptionPolicy,
    ResourceFlavor,
    Taint,
    Toleration,
)
from admitq.core.refusals import (
    ExceedsMaxQuota,
    InsufficientQuota,
    NoFitReason,
    NoFlavorFits,
    PodSetRefusals,
    UntoleratedTaint,
)
from admitq.core.requests import demands, template_requesting
from admitq.core.settings import CoreSettings, FairSharing, Gates
from tests.unit.core.flavor_scans import (
    ANY_PREEMPTION,
    FLAVORS,
    Queue,
    chosen,
    group,
    options_without_cohort,
    oracle_of,
    pods,
    refusing,
)

TRY_NEXT = FlavorFungibilityPolicy.TRY_NEXT_FLAVOR
STOP = FlavorFungibilityPolicy.MAY_STOP_SEARCH
BORROWING_FIRST = FlavorFungibilityPreference.BORROWING_OVER_PREEMPTION
PREEMPTION_FIRST = FlavorFungibilityPreference.PREEMPTION_OVER_BORROWING


@pytest.mark.parametrize(
    ("mode", "level", "borrow", "preempt", "tries_next"),
    [
        (FitMode.NO_FIT, 0, STOP, STOP, True),
        (FitMode.NO_PREEMPTION_CANDIDATES, 0, STOP, STOP, True),
        (FitMode.FIT, 0, TRY_NEXT, TRY_NEXT, False),
        (FitMode.FIT, 1, STOP, TRY_NEXT, False),
        (FitMode.FIT, 1, TRY_NEXT, STOP, True),
        (FitMode.PREEMPT, 0, TRY_NEXT, STOP, False),
        (FitMode.PREEMPT, 0, STOP, TRY_NEXT, True),
        (FitMode.RECLAIM, 0, STOP, TRY_NEXT, True),
        (FitMode.RECLAIM, 1, TRY_NEXT, STOP, True),
    ],
)
def test_scan_tries_next_flavor_by_fit_and_policy(
    mode: FitMode,
    level: int,
    borrow: FlavorFungibilityPolicy,
    preempt: FlavorFungibilityPolicy,
    *,
    tries_next: bool,
) -> None:
    assert should_try_next_flavor(FlavorFit(mode, level), FlavorFungibility(borrow, preempt)) is tries_next


@pytest.mark.parametrize("mode", FitMode)
def test_scan_ends_only_at_fit_when_gate_is_off(mode: FitMode) -> None:
    assert should_try_next_flavor(FlavorFit(mode, 1), None) is (mode is not FitMode.FIT)


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
def test_preference_selects_among_flavors_that_need_preemption(
    preference: FlavorFungibilityPreference | None, prospects: dict[str, tuple[FitMode, int]], best: str
) -> None:
    queue = Queue(
        {"f1": 2, "f2": 2},
        used={"f1": 2, "f2": 2},
        fungibility=FlavorFungibility(TRY_NEXT, TRY_NEXT, preference),
    )
    oracle = oracle_of({name: FlavorFit(*of) for name, of in prospects.items()})
    assignment = queue.assign(pods(1), oracle=oracle)
    assert chosen(assignment) == [best]
    assert assignment.mode is prospects[best][0]
    assert assignment.borrow_level == prospects[best][1]


@pytest.mark.parametrize(("preference", "best"), [(None, "f1"), (PREEMPTION_FIRST, "f2")])
def test_preference_selects_between_borrowing_and_preemption(
    preference: FlavorFungibilityPreference | None, best: str
) -> None:
    queue = Queue(
        {"f1": 1, "f2": 3},
        lent={"f1": 5, "f2": 0},
        used={"f1": 1, "f2": 3},
        fungibility=FlavorFungibility(TRY_NEXT, TRY_NEXT, preference),
    )
    oracle = oracle_of({"f2": FlavorFit(FitMode.PREEMPT, 0)})
    assert chosen(queue.assign(pods(2), oracle=oracle)) == [best]


def test_mode_of_assignment_is_that_of_worst_podset() -> None:
    queue = Queue({"f1": 3}, used={"f1": 1})
    oracle = oracle_of({"f1": FlavorFit(FitMode.PREEMPT, 0)})
    assignment = queue.assign(pods(2, "a"), pods(1, "b"), oracle=oracle)
    assert (assignment.mode, assignment.refusal) == (
        FitMode.PREEMPT,
        refusing("b", InsufficientQuota("f1", "cpu", 1), reason=NoFitReason.WAITING_FOR_QUOTA),
    )
    assert assignment.contested == {FlavorResource("f1", "cpu")}
    assert assignment.usage == ((FlavorResource("f1", "cpu"), 3),)
    assert assignment.considered_flavors == ()


def test_oracle_is_asked_for_total_amount_of_workload() -> None:
    asked: list[int] = []

    def oracle(question: PreemptionQuestion) -> FlavorFit:
        asked.append(question.amount)
        return FlavorFit(FitMode.NO_FIT, 0)

    Queue({"f1": 4}, used={"f1": 2}).assign(pods(2, "a"), pods(1, "b"), oracle=oracle)
    assert asked == [3]


def test_scan_ends_at_first_accepted_flavor_and_continues_after_it() -> None:
    queue = Queue({"f1": 2, "f2": 2, "f3": 2})
    first = queue.assign(pods(1))
    assert (chosen(first), first.scan_stops) == (["f1"], (ScanStop("main", "cpu", 0),))
    second = queue.assign(pods(1), scan_stops=first.scan_stops)
    assert (chosen(second), second.scan_stops) == (["f2"], (ScanStop("main", "cpu", 1),))
    third = queue.assign(pods(1), scan_stops=second.scan_stops)
    assert (chosen(third), third.scan_stops) == (["f3"], ())


def test_scan_position_beyond_last_flavor_starts_over() -> None:
    queue = Queue({"f1": 2})
    assert chosen(queue.assign(pods(1), scan_stops=(ScanStop("main", "cpu", 7),))) == ["f1"]


def test_scan_without_fit_leaves_no_flavor_to_try() -> None:
    refused = Queue({"f1": 1, "f2": 1}).assign(pods(5))
    assert refused.scan_stops == ()
    assert refused.mode is FitMode.NO_FIT


def test_earlier_podset_can_try_further_flavors_when_later_podset_failed() -> None:
    refused = Queue({"f1": 2, "f2": 1}).assign(pods(2, "a"), pods(2, "b"))
    assert refused.refusal is not None
    assert [part.pod_set for part in refused.refusal.parts] == ["b"]
    assert refused.scan_stops == (ScanStop("a", "cpu", 0),)


# --- podset groups --------------------------------------------------------------------------------------


def test_podsets_of_group_get_one_flavor_for_their_total_request() -> None:
    queue = Queue({"f1": 3, "f2": 4})
    apart = queue.assign(pods(3, "leader"), pods(1, "workers"))
    assert chosen(apart) == ["f1", "f2"]
    together = queue.assign(pods(3, "leader", group="g"), pods(1, "workers", group="g"))
    assert chosen(together) == ["f2", "f2"]
    assert [part.resource_usage for part in together.pod_sets] == [(("cpu", 3),), (("cpu", 1),)]
    assert together.usage == ((FlavorResource("f2", "cpu"), 4),)


def test_assignment_keeps_order_of_podsets_around_group() -> None:
    assignment = Queue({"f1": 9}).assign(pods(1, "a", group="g"), pods(1, "b"), pods(1, "c", group="g"))
    assert [part.name for part in assignment.pod_sets] == ["a", "b", "c"]


def test_group_is_refused_when_nodes_cannot_hold_one_of_its_podsets() -> None:
    spot = ResourceFlavor("f1", node_taints=(Taint("spot", "", "NoSchedule"),))
    tolerant = pods(1, "a", group="g", tolerations=(Toleration("spot", "Exists"),))
    refused = Queue({"f1": 9}, flavors={"f1": spot}).assign(tolerant, pods(1, "b", group="g"))
    taint = UntoleratedTaint("f1", "spot", "", "NoSchedule")
    assert refused.refusal == NoFlavorFits(
        (PodSetRefusals("a", (taint,)), PodSetRefusals("b", (taint,))), NoFitReason.NO_MATCHING_FLAVOR
    )


def test_podset_of_group_gets_flavors_only_for_its_own_resources() -> None:
    options = options_without_cohort(group("f1", cpu=2), group("f2", gpu=2))
    wanted = (
        PodSet("a", 1, template_requesting({"cpu": 1}), group="g"),
        PodSet("b", 1, template_requesting({"gpu": 1}), group="g"),
    )
    assignment = assign(demands(wanted), options)
    assert [part.flavors for part in assignment.pod_sets] == [(("cpu", "f1"),), (("gpu", "f2"),)]


# --- when preemption can help ---------------------------------------------------------------------------


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
        "within nominal quota",
        "beyond nominal quota without preemption",
        "beyond nominal quota with reclaim",
        "beyond nominal quota with preemption in queue",
        "fair sharing with reclaim",
        "fair sharing without reclaim",
        "preemption while borrowing",
    ],
)
def test_oracle_is_asked_only_when_preemption_can_help(
    amount: int, preemption: ClusterQueuePreemption, *, fair: bool, asked: bool
) -> None:
    settings = CoreSettings(fair_sharing=FairSharing() if fair else None)
    queue = Queue({"f1": 2}, lent={"f1": 5}, used={"f1": 7}, preemption=preemption, settings=settings)
    assignment = queue.assign(pods(amount))
    assert assignment.mode is (FitMode.NO_PREEMPTION_CANDIDATES if asked else FitMode.NO_FIT)


def test_oracle_is_asked_up_to_quota_of_cohort_below_root() -> None:
    trees = CohortTrees()
    quota = {
        name: (group("f1", cpu=cpu),) for name, cpu in (("q", 1), ("other", 3), ("left", 2), ("root", 9))
    }
    trees.put_cohort("root", None, declared_quotas(quota["root"]))
    trees.put_cohort("left", "root", declared_quotas(quota["left"]))
    node = trees.put_cluster_queue("q", "left", declared_quotas(quota["q"]))
    other = trees.put_cluster_queue("other", "root", declared_quotas(quota["other"]))
    trees.add_usage(other, ((FlavorResource("f1", "cpu"), 15),))
    spec = ClusterQueue("q", cohort="left", resource_groups=quota["q"])
    options = build_flavor_options(spec, trees, node, FLAVORS, CoreSettings())
    modes = {amount: assign(demands((pods(amount),)), options).mode for amount in (1, 3, 4)}
    assert modes == {
        1: FitMode.NO_PREEMPTION_CANDIDATES,
        3: FitMode.NO_PREEMPTION_CANDIDATES,
        4: FitMode.NO_FIT,
    }


def test_flavor_that_fits_for_one_resource_needs_preemption_for_another() -> None:
    """The flavor is ranked by memory, which borrows; but the workload has to preempt for cpu."""
    trees = CohortTrees()
    own = (group("f1", cpu=2, memory=1),)
    node = trees.put_cluster_queue("q", "org", declared_quotas(own))
    trees.put_cohort("org", None, declared_quotas((group("f1", memory=5),)))
    trees.add_usage(node, ((FlavorResource("f1", "cpu"), 2),))
    fungibility = FlavorFungibility(preference=PREEMPTION_FIRST)
    spec = ClusterQueue("q", cohort="org", resource_groups=own, flavor_fungibility=fungibility)
    wanted = demands((PodSet("main", 1, template_requesting({"cpu": 1, "memory": 3})),))
    assignment = assign(
        wanted,
        build_flavor_options(spec, trees, node, FLAVORS, CoreSettings()),
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


# --- gate, and restriction to a nomination --------------------------------------------------------------


def test_first_flavor_that_fits_is_selected_when_fungibility_gate_is_off() -> None:
    gates = CoreSettings(gates=Gates(flavor_fungibility=False))
    rules = FlavorFungibility(TRY_NEXT, TRY_NEXT, PREEMPTION_FIRST)
    queue = Queue({"f1": 1, "f2": 3}, lent={"f1": 5}, fungibility=rules, settings=gates)
    assert chosen(queue.assign(pods(2))) == ["f1"]


def test_flavor_with_best_mode_is_selected_when_fungibility_gate_is_off() -> None:
    gates = CoreSettings(gates=Gates(flavor_fungibility=False))
    full = Queue({"f1": 1, "f2": 3, "f3": 3}, used={"f1": 1, "f2": 3, "f3": 3}, settings=gates)
    oracle = oracle_of(
        {
            "f1": FlavorFit(FitMode.PREEMPT, 0),
            "f2": FlavorFit(FitMode.RECLAIM, 2),
            "f3": FlavorFit(FitMode.RECLAIM, 1),
        }
    )
    assert chosen(full.assign(pods(1), oracle=oracle)) == ["f2"]


def test_assignment_restricted_to_nomination_keeps_its_flavor() -> None:
    queue = Queue({"f1": 2, "f2": 2, "f3": 2})
    nominated = queue.assign(pods(1), scan_stops=(ScanStop("main", "cpu", 0),))
    assert chosen(nominated) == ["f2"]
    restricted = queue.assign(pods(1), restrict_to=nominated.pod_sets)
    assert chosen(restricted) == ["f2"]


def test_assignment_restricted_to_nomination_is_refused_when_its_flavor_is_full() -> None:
    nominated = Queue({"f1": 2, "f2": 2}).assign(pods(1), scan_stops=(ScanStop("main", "cpu", 0),))
    full = Queue({"f1": 2, "f2": 2}, used={"f2": 2}, preemption=ClusterQueuePreemption())
    refused = full.assign(pods(2), restrict_to=nominated.pod_sets)
    assert refused.refusal == refusing(
        "main", InsufficientQuota("f2", "cpu", 2), reason=NoFitReason.WAITING_FOR_QUOTA
    )


def test_restriction_to_nomination_holds_for_each_podset() -> None:
    queue = Queue({"f1": 2, "f2": 9})
    nominated = queue.assign(pods(2, "a"), pods(2, "b"))
    assert chosen(nominated) == ["f1", "f2"]
    assert chosen(queue.assign(pods(1, "a"), pods(1, "b"), restrict_to=nominated.pod_sets)) == ["f1", "f2"]


# --- considered flavors, and remembered assignments -----------------------------------------------------


def test_considered_flavors_include_skipped_flavors() -> None:
    rules = FlavorFungibility(when_can_borrow=TRY_NEXT)
    queue = Queue({"f1": 1, "f2": 1, "f3": 2}, lent={"f2": 5}, fungibility=rules)
    assert queue.assign(pods(2)).considered_flavors == (
        ConsideredFlavor("main", "f1", FitMode.NO_FIT, 0, (ExceedsMaxQuota("f1", "cpu", 0, 2, 1),)),
        ConsideredFlavor("main", "f2", FitMode.FIT, 1, ()),
    )


def test_assignment_is_remembered_for_equal_request() -> None:
    queue = Queue({"f1": 2, "f2": 2}, lent={"f1": 9})
    wanted = demands((pods(1, "a"), pods(2, "b")))
    first, second = (assign(wanted, queue.flavor_options) for _ in range(2))
    assert first is second
    assert (chosen(first), first.borrow_level, first.scan_stops) == (
        ["f1", "f1"],
        1,
        (ScanStop("a", "cpu", 0), ScanStop("b", "cpu", 0)),
    )


small = st.integers(0, 4)


@given(
    st.fixed_dictionaries({"f1": small}, optional={"f2": small, "f3": small}),
    st.dictionaries(st.sampled_from(("f1", "f2")), small),
    st.dictionaries(st.sampled_from(("f1", "f2")), small),
    st.sampled_from((STOP, TRY_NEXT)),
    st.sampled_from((None, BORROWING_FIRST, PREEMPTION_FIRST)),
    st.booleans(),
    st.lists(st.tuples(small, st.sampled_from((None, "g"))), min_size=1, max_size=3),
    st.lists(st.dictionaries(st.sampled_from(("f1", "f2")), st.integers(-2, 2)), max_size=4),
)
def test_remembered_assignment_equals_that_of_new_scan(
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
        settings=CoreSettings(gates=Gates(flavor_fungibility=gate)),
    )
    wanted = demands(
        tuple(pods(cpu, f"p{number}", group=group) for number, (cpu, group) in enumerate(workload))
    )
    without_memory = replace(queue.flavor_options, cached={})
    remembered = queue.flavor_options.options_for(wanted)
    for change in ({}, *changes, {}):
        queue.use(change)
        without_memory.cached[wanted] = remembered._replace(
            first=None, cached_fits={}, cached_choices={}, cached_refusals={}
        )
        assert assign(wanted, queue.flavor_options) == assign(wanted, without_memory)


def test_remembered_assignment_is_used_only_while_it_fits() -> None:
    queue = Queue({"f1": 4}, lent={"f1": 4}, preemption=ClusterQueuePreemption())
    outcomes: list[tuple[FitMode, int]] = []
    for more in (0, 2, 1, 4, -4, -3):
        queue.use({"f1": more})
        assignment = queue.assign(pods(2))
        outcomes.append((assignment.mode, assignment.borrow_level))
    fits, borrows, short = (FitMode.FIT, 0), (FitMode.FIT, 1), (FitMode.NO_PREEMPTION_CANDIDATES, 1)
    assert outcomes == [fits, fits, borrows, short, borrows, fits]


def test_number_of_remembered_requests_is_limited() -> None:
    queue = Queue({"f1": 2})
    for cpu in range(1100):
        queue.assign(pods(cpu))
    assert len(queue.flavor_options.cached) < 1100


def test_number_of_remembered_refusals_is_limited() -> None:
    queue = Queue({"f1": 200})
    queue.use({"f1": 1})
    for _ in range(100):
        queue.use({"f1": 1})
        assert queue.assign(pods(200)).refusal is not None
    (remembered,) = queue.flavor_options.cached.values()
    assert 0 < len(remembered.cached_refusals) <= 64

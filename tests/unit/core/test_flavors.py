"""The search for flavors, with an oracle that stands for preemption."""

from collections.abc import Mapping

import pytest

from admitq.core.cohorts import Forest, declared_quotas
from admitq.core.flavors import (
    Assignment,
    Mode,
    Offer,
    Oracle,
    PreemptionQuestion,
    Prospect,
    TriedFlavor,
    assign,
    keeps_searching,
    nobody_to_preempt,
    offer_of,
    unfit_nodes,
)
from admitq.core.model import (
    ClusterQueue,
    FlavorFungibility,
    FlavorQuotas,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Taint,
    Toleration,
)
from admitq.core.refusals import (
    ExceedsMaxQuota,
    FlavorNotFound,
    InsufficientQuota,
    NoFlavorFits,
    ResourceNotCovered,
    UntoleratedTaint,
)
from admitq.core.requests import asking, demands

FLAVORS = {name: ResourceFlavor(name) for name in ("f1", "f2", "f3")}


class Queue:
    """A ClusterQueue with quota of cpu in some flavors, in a cohort with more, some of it in use."""

    def __init__(
        self,
        nominal: Mapping[str, int],
        *,
        lent: Mapping[str, int] | None = None,
        used: Mapping[str, int] | None = None,
        fungibility: FlavorFungibility | None = None,
    ) -> None:
        def group(of: Mapping[str, int]) -> ResourceGroup:
            flavors = (FlavorQuotas(name, (("cpu", ResourceQuota(cpu)),)) for name, cpu in of.items())
            return ResourceGroup(("cpu",), tuple(flavors))

        forest = Forest()
        spec = ClusterQueue(
            "q", "", "org", (group(nominal),), flavor_fungibility=fungibility or FlavorFungibility()
        )
        node = forest.put_cluster_queue("q", "org", declared_quotas(spec.resource_groups))
        forest.put_cohort("org", None, declared_quotas((group(lent or {}),)))
        self.offer: Offer = offer_of(spec, forest, node)
        usage = {pair: (used or {}).get(pair.flavor, 0) for pair in node.cells}
        forest.add_usage(node, tuple(usage.items()))

    def assign(
        self,
        *pod_sets: PodSet,
        tried: tuple[TriedFlavor, ...] = (),
        oracle: Oracle = nobody_to_preempt,
        flavors: Mapping[str, ResourceFlavor] = FLAVORS,
    ) -> Assignment:
        return assign(demands(pod_sets, ()), self.offer, flavors, tried=tried, oracle=oracle)


def pods(cpu: int, name: str = "main") -> PodSet:
    return PodSet(name, 1, asking({"cpu": cpu}))


def chosen(assignment: Assignment) -> list[str]:
    return [dict(part.flavors)["cpu"] for part in assignment.pod_sets]


SEARCH_ON = "TryNextFlavor"
STOP = "MayStopSearch"


@pytest.mark.parametrize(
    ("mode", "level", "borrow", "preempt", "on"),
    [
        (Mode.NO_FIT, 0, STOP, STOP, True),
        (Mode.NO_PREEMPTION_CANDIDATES, 0, STOP, STOP, True),
        (Mode.FIT, 0, SEARCH_ON, SEARCH_ON, False),
        (Mode.FIT, 1, STOP, SEARCH_ON, False),
        (Mode.FIT, 1, SEARCH_ON, STOP, True),
        (Mode.PREEMPT, 0, SEARCH_ON, STOP, False),
        (Mode.PREEMPT, 0, STOP, SEARCH_ON, True),
        (Mode.RECLAIM, 0, STOP, SEARCH_ON, True),
        (Mode.RECLAIM, 1, SEARCH_ON, STOP, True),
    ],
)
def test_when_the_search_goes_on(mode: Mode, level: int, borrow: str, preempt: str, *, on: bool) -> None:
    assert keeps_searching(Prospect(mode, level), FlavorFungibility(borrow, preempt)) is on


BY_FLAVOR = {
    "f1": Prospect(Mode.PREEMPT, 0),
    "f2": Prospect(Mode.RECLAIM, 1),
    "f3": Prospect(Mode.NO_PREEMPTION_CANDIDATES, 0),
}


def oracle_of(prospects: Mapping[str, Prospect]) -> Oracle:
    def answer(question: PreemptionQuestion) -> Prospect:
        return prospects[question.pair.flavor]

    return answer


@pytest.mark.parametrize(
    ("preference", "prospects", "best"),
    [
        (None, {"f1": (Mode.PREEMPT, 0), "f2": (Mode.RECLAIM, 1)}, "f2"),
        ("BorrowingOverPreemption", {"f1": (Mode.PREEMPT, 0), "f2": (Mode.RECLAIM, 1)}, "f2"),
        ("PreemptionOverBorrowing", {"f1": (Mode.PREEMPT, 0), "f2": (Mode.RECLAIM, 1)}, "f1"),
        (None, {"f1": (Mode.PREEMPT, 2), "f2": (Mode.PREEMPT, 1)}, "f2"),
        ("PreemptionOverBorrowing", {"f1": (Mode.PREEMPT, 1), "f2": (Mode.RECLAIM, 1)}, "f2"),
        (None, {"f1": (Mode.NO_PREEMPTION_CANDIDATES, 0), "f2": (Mode.PREEMPT, 3)}, "f2"),
        (
            "PreemptionOverBorrowing",
            {"f1": (Mode.NO_PREEMPTION_CANDIDATES, 0), "f2": (Mode.PREEMPT, 3)},
            "f2",
        ),
        (None, {"f1": (Mode.PREEMPT, 1), "f2": (Mode.PREEMPT, 1)}, "f1"),
    ],
)
def test_preference_among_flavors_that_need_preemption(
    preference: str | None, prospects: dict[str, tuple[Mode, int]], best: str
) -> None:
    queue = Queue(
        {"f1": 2, "f2": 2},
        used={"f1": 2, "f2": 2},
        fungibility=FlavorFungibility(SEARCH_ON, SEARCH_ON, preference),
    )
    oracle = oracle_of({name: Prospect(*of) for name, of in prospects.items()})
    assignment = queue.assign(pods(1), oracle=oracle)
    assert chosen(assignment) == [best]
    assert assignment.mode is prospects[best][0]
    assert assignment.borrow_level == prospects[best][1]


@pytest.mark.parametrize(("preference", "best"), [(None, "f1"), ("PreemptionOverBorrowing", "f2")])
def test_a_fit_that_borrows_against_preemption_at_home(preference: str | None, best: str) -> None:
    queue = Queue(
        {"f1": 1, "f2": 3},
        lent={"f1": 5, "f2": 0},
        used={"f1": 1, "f2": 3},
        fungibility=FlavorFungibility(SEARCH_ON, SEARCH_ON, preference),
    )
    oracle = oracle_of({"f2": Prospect(Mode.PREEMPT, 0)})
    assert chosen(queue.assign(pods(2), oracle=oracle)) == [best]


def test_the_worst_podset_decides_the_mode() -> None:
    queue = Queue({"f1": 3}, used={"f1": 1})
    oracle = oracle_of({"f1": Prospect(Mode.PREEMPT, 0)})
    assignment = queue.assign(pods(2, "a"), pods(1, "b"), oracle=oracle)
    assert (assignment.mode, assignment.refusal) == (Mode.PREEMPT, None)


def test_the_oracle_is_asked_for_all_that_the_workload_takes() -> None:
    asked: list[int] = []

    def oracle(question: PreemptionQuestion) -> Prospect:
        asked.append(question.amount)
        return Prospect(Mode.NO_FIT, 0)

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
    assert refused.mode is Mode.NO_FIT


def test_an_earlier_podset_may_go_on_where_a_later_one_failed() -> None:
    refused = Queue({"f1": 2, "f2": 1}).assign(pods(2, "a"), pods(2, "b"))
    assert refused.refusal is not None
    assert refused.refusal.pod_set == "b"
    assert refused.tried == (TriedFlavor("a", "cpu", 0),)


def test_the_first_resource_that_finds_nothing_ends_the_flavor() -> None:
    forest = Forest()
    quotas = (("cpu", ResourceQuota(1)), ("memory", ResourceQuota(1)))
    spec = ClusterQueue("q", "", None, (ResourceGroup(("cpu", "memory"), (FlavorQuotas("f1", quotas),)),))
    node = forest.put_cluster_queue("q", None, declared_quotas(spec.resource_groups))
    wanted = PodSet("main", 1, asking({"cpu": 2, "memory": 2}))
    refused = assign(demands((wanted,), ()), offer_of(spec, forest, node), FLAVORS)
    assert refused.refusal == NoFlavorFits(
        "main", (ExceedsMaxQuota("f1", "cpu", 0, 2, 1),), "ExceedsMaxQuota"
    )


@pytest.mark.parametrize(
    ("used", "nominal", "taints", "reason"),
    [
        ({"f1": 4, "f2": 4}, {"f1": 4, "f2": 4}, (), "WaitingForQuota"),
        ({"f1": 4}, {"f1": 4, "f2": 1}, (), "WaitingForQuota"),
        ({}, {"f1": 1, "f2": 1}, (), "ExceedsMaxQuota"),
        ({}, {"f1": 1, "f2": 4}, ("f2",), "ExceedsMaxQuota"),
        ({}, {"f1": 4, "f2": 4}, ("f1", "f2"), "NoMatchingFlavor"),
    ],
)
def test_the_most_hopeful_flavor_gives_the_reason(
    used: dict[str, int], nominal: dict[str, int], taints: tuple[str, ...], reason: str
) -> None:
    spot = (Taint("spot", "", "NoSchedule"),)
    flavors = {name: ResourceFlavor(name, (), spot if name in taints else ()) for name in nominal}
    refusal = Queue(nominal, used=used).assign(pods(2), flavors=flavors).refusal
    assert refusal is not None
    assert refusal.reason == reason


def test_among_groups_the_most_severe_gives_the_reason() -> None:
    forest = Forest()
    groups = tuple(
        ResourceGroup((resource,), (FlavorQuotas(flavor, ((resource, ResourceQuota(2)),)),))
        for resource, flavor in (("cpu", "f1"), ("gpu", "f2"))
    )
    spec = ClusterQueue("q", "", None, groups)
    node = forest.put_cluster_queue("q", None, declared_quotas(groups))
    forest.add_usage(node, ((next(pair for pair in node.cells if pair.resource == "cpu"), 2),))
    offer = offer_of(spec, forest, node)
    wanted = demands((PodSet("main", 1, asking({"cpu": 1, "gpu": 3, "fpga": 1})),), ())
    refusal = assign(wanted, offer, FLAVORS).refusal
    assert refusal == NoFlavorFits(
        "main",
        (
            ResourceNotCovered("fpga"),
            InsufficientQuota("f1", "cpu", 1),
            ExceedsMaxQuota("f2", "gpu", 0, 3, 2),
        ),
        "NoMatchingFlavor",
    )
    without_fpga = demands((PodSet("main", 1, asking({"cpu": 1, "gpu": 3})),), ())
    refusal = assign(without_fpga, offer, FLAVORS).refusal
    assert refusal is not None
    assert refusal.reason == "ExceedsMaxQuota"


def test_pods_that_ask_for_nothing_need_no_flavor() -> None:
    assignment = Queue({"f1": 0}).assign(PodSet("main", 3))
    assert (assignment.refusal, assignment.usage) == (None, ())
    assert (assignment.pod_sets[0].flavors, assignment.pod_sets[0].count) == ((), 3)


def test_in_a_flavor_in_debt_not_even_nothing_is_taken() -> None:
    refused = Queue({"f1": 2}, used={"f1": 3}).assign(pods(0))
    assert refused.refusal == NoFlavorFits("main", (InsufficientQuota("f1", "cpu", 1),), "WaitingForQuota")


def test_a_queue_without_flavors_offers_nothing() -> None:
    refusal = Queue({}).assign(pods(1)).refusal
    assert refusal == NoFlavorFits("main", (), "NoMatchingFlavor")


def test_nodes_that_cannot_hold_the_pods() -> None:
    spot = ResourceFlavor("spot", (("arch", "arm"),), (Taint("spot", "yes", "NoSchedule"),))
    flavors = {"spot": spot}
    assert unfit_nodes(pods(1), "other", flavors) == FlavorNotFound("other")
    assert unfit_nodes(pods(1), "spot", flavors) == UntoleratedTaint("spot", "spot", "yes", "NoSchedule")
    tolerant = PodSet("main", 1, tolerations=(Toleration("spot", "Exists"),))
    assert unfit_nodes(tolerant, "spot", flavors) is None

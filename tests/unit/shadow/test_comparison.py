"""What a shadow tells: nothing of a manager that decides as it does, and all that another does otherwise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from admitq.core import events as happened
from admitq.core.instructions import Preempt, PreemptionReason, ReserveQuota
from admitq.core.model import (
    SECOND,
    Admission,
    ClusterQueue,
    LocalQueue,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    QueueingStrategy,
    ResourceFlavor,
    StopPolicy,
    Workload,
)
from admitq.core.requests import template_requesting
from admitq.shadow.findings import DisagreementKind
from admitq.shadow.log_fields import make_log_fields
from tests.unit.core.play import LOWER, RECLAIM, group, key, queue
from tests.unit.shadow.cluster import LEEWAY, PATIENCE, Cluster, Decided
from tests.unit.shadow.histories import History

# --- equal decisions are not reported -------------------------------------------------------------------


@pytest.mark.drawn
@pytest.mark.parametrize(("seeds", "calm"), [(range(50), False), ((26, *range(100, 130)), True)])
def test_equal_manager_is_not_reported(seeds: Sequence[int], calm: bool) -> None:
    agreed = 0
    for seed in seeds:
        history = History(seed, calm=calm)
        history.play(60)
        history.cluster.shadow.state.validate()
        assert history.cluster.disagreements == [], f"seed {seed}"
        agreed += len(history.cluster.agreements)
    assert agreed > 5 * len(seeds), "too little was compared to tell"


# --- different decisions are reported -------------------------------------------------------------------


@pytest.mark.drawn
@pytest.mark.parametrize("kind", [DisagreementKind.ASSIGNED, DisagreementKind.WAITING])
def test_a_difference_is_found_among_all_else_that_happens(kind: DisagreementKind) -> None:
    """Of one workload somewhere in a history the manager in charge decides otherwise, and of no other."""
    found = 0
    for seed in range(80, 130):
        history = History(seed, calm=True)
        history.play(15)
        wrong: list[ObjectKey] = []

        def meddle(decided: Decided, wrong: list[ObjectKey] = wrong) -> Decided | None:
            if not isinstance(decided, ReserveQuota) or (wrong and wrong[0] != decided.key):
                return decided
            if not wrong:
                wrong.append(decided.key)
            elif kind is DisagreementKind.ASSIGNED:
                return decided
            return (
                decided._replace(admission=elsewhere(decided.admission))
                if kind is DisagreementKind.ASSIGNED
                else None
            )

        history.cluster.meddle = meddle
        history.submit()
        history.cluster.wait(3 * PATIENCE)
        told_first = [(one.workload, one.kind) for one in history.cluster.disagreements[:1]]
        assert told_first == [(key, kind) for key in wrong], f"seed {seed}"
        found += len(wrong)
    assert found > 10, "too few were decided over to tell"


def elsewhere(admission: Admission) -> Admission:
    """The same pods, of flavors that are not there."""
    parts = tuple(
        replace(part, flavors=tuple((resource, "elsewhere") for resource, _ in part.flavors))
        for part in admission.pod_set_assignments
    )
    return replace(admission, pod_set_assignments=parts)


def cluster(*queues: ClusterQueue) -> Cluster:
    """A cluster with these ClusterQueues and LocalQueues of their names, which a shadow follows."""
    made = Cluster()
    made.send(happened.NamespaceChanged("n", ()))
    for name in ("default", "spot"):
        made.send(happened.ResourceFlavorChanged(ResourceFlavor(name)))
    for each in queues:
        made.send(happened.ClusterQueueChanged(each))
        made.send(happened.LocalQueueChanged(LocalQueue(key(each.name), each.name)))
    made.follow()
    return made


def submit(
    made: Cluster, name: str, cpu: int = 1, *, of: str = "q", priority: int = 0, pods: int = 1
) -> None:
    """A workload comes, some time after all that was before."""
    made.now += LEEWAY + SECOND
    pod_sets = (PodSet("main", pods, template_requesting({"cpu": cpu}), min_count=1 if pods > 1 else None),)
    made.send(
        happened.WorkloadChanged(
            Workload(key(name), f"uid-{name}", of, made.now, pod_sets, priority=priority)
        )
    )


def admitted(
    name: str, cpu: int = 1, *, of: str = "q", flavor: str = "default", pods: int = 1
) -> ReserveQuota:
    part = PodSetAssignment("main", (("cpu", flavor),), (("cpu", cpu * pods),), pods)
    return ReserveQuota(key(name), f"uid-{name}", Admission(of, (part,)), admit=True)


def preempted(name: str, preemptor: str) -> Preempt:
    reason = PreemptionReason.IN_CLUSTER_QUEUE
    return Preempt(key(name), f"uid-{name}", reason, key(preemptor), f"uid-{preemptor}", (), ())


def without(*names: str) -> Callable[[Decided], Decided | None]:
    """The manager in charge decides nothing over these."""
    keys = {key(name) for name in names}
    return lambda decided: None if decided.key in keys else decided


def told_of(made: Cluster) -> list[tuple[str, str]]:
    return [(one.workload.name, str(one.kind)) for one in made.disagreements]


@dataclass(frozen=True)
class Case:
    """What another manager does: ``prepare`` what was before, ``do`` it; what is told, and in which words."""

    queues: tuple[ClusterQueue, ...]
    prepare: Callable[[Cluster], None]
    do: Callable[[Cluster], None]
    kind: DisagreementKind
    of: str
    ours: str
    explanation: str


def _two_wait(made: Cluster) -> None:
    submit(made, "runs", 2)
    made.settle()
    made.meddle = without("first", "second")
    submit(made, "first", 2, priority=1)
    submit(made, "second", 2)
    made.settle()
    made.put(key("runs"), finished=True)


def _first_too_big(made: Cluster) -> None:
    submit(made, "runs", 2)
    submit(made, "first", 3)
    submit(made, "second", 1)
    made.settle()


def _victims(made: Cluster) -> None:
    submit(made, "older", 1)
    submit(made, "lower", 1, priority=-1)
    made.settle()
    made.meddle = without("older", "lower")
    submit(made, "preemptor", 1, priority=2)


def _one_runs(made: Cluster) -> None:
    submit(made, "runs", 1)
    made.settle()


def _one_comes(name: str, cpu: int = 1, pods: int = 1) -> Callable[[Cluster], None]:
    def prepare(made: Cluster) -> None:
        made.meddle = without(name)
        submit(made, name, cpu, pods=pods)

    return prepare


FLAVORS = replace(queue("q"), resource_groups=group(("default", 2), ("spot", 2)))
STRICT = queue("q", 3, queueing_strategy=QueueingStrategy.STRICT_FIFO)

CASES = {
    "more than there is": Case(
        (queue("q", 2),),
        _one_comes("big", 3),
        lambda made: made.reserve(admitted("big", 3)),
        DisagreementKind.RESERVED,
        "big",
        "would let it wait",
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, "
        "previously considered podsets requests (0) + current podset request (3m) > maximum capacity (2m)",
    ),
    "another before its turn": Case(
        (queue("q", 2),),
        _two_wait,
        lambda made: made.reserve(admitted("second", 2)),
        DisagreementKind.RESERVED,
        "second",
        "would let it wait",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
        "2m more needed; n/first would come first",
    ),
    "past one that holds up its queue": Case(
        (STRICT,),
        _first_too_big,
        lambda made: made.reserve(admitted("second")),
        DisagreementKind.RESERVED,
        "second",
        "would let it wait",
        "it is not its turn; n/first holds up the queue",
    ),
    "in a stopped queue": Case(
        (replace(queue("q", 2), stop_policy=StopPolicy.HOLD),),
        _one_comes("w"),
        lambda made: made.reserve(admitted("w")),
        DisagreementKind.RESERVED,
        "w",
        "would let it wait",
        "ClusterQueue q is inactive",
    ),
    "another flavor": Case(
        (FLAVORS,),
        _one_comes("w"),
        lambda made: made.reserve(admitted("w", flavor="spot")),
        DisagreementKind.ASSIGNED,
        "w",
        "would reserve quota (main: 1 pod, cpu of default)",
        "it fits",
    ),
    "fewer pods": Case(
        (queue("q", 3),),
        _one_comes("w", pods=3),
        lambda made: made.reserve(admitted("w", pods=2)),
        DisagreementKind.ASSIGNED,
        "w",
        "would reserve quota (main: 3 pods, cpu of default)",
        "it fits",
    ),
    "nothing": Case(
        (queue("q", 2),),
        _one_comes("w"),
        lambda _: None,
        DisagreementKind.WAITING,
        "w",
        "would reserve quota (main: 1 pod, cpu of default)",
        "it fits",
    ),
    "another victim": Case(
        (queue("q", 2, preemption=LOWER),),
        _victims,
        lambda made: made.preempt(key("older"), "uid-preemptor"),
        DisagreementKind.PREEMPTED,
        "older",
        "would not preempt it; of n/preemptor, for which it was preempted: would preempt n/lower for it",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
        "1m more needed. Pending the preemption of 1 workload(s)",
    ),
    "a target without preemptor": Case(
        (queue("q", 2, preemption=LOWER),),
        _one_runs,
        lambda made: made.preempt(key("runs")),
        DisagreementKind.PREEMPTED,
        "runs",
        "would not preempt it",
        "It holds quota and may run.",
    ),
    "no victim": Case(
        (queue("q", 2, preemption=LOWER),),
        _victims,
        lambda _: None,
        DisagreementKind.SPARED,
        "preemptor",
        "would preempt n/lower for it",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
        "1m more needed. Pending the preemption of 1 workload(s)",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_other_decision_of_a_manager_is_reported_once_and_explained(case: Case) -> None:
    made = cluster(*case.queues)
    case.prepare(made)
    made.deliver_to_shadow()
    made.now += LEEWAY + SECOND
    made.look()
    case.do(made)
    made.wait(3 * PATIENCE)
    assert told_of(made) == [(case.of, str(case.kind))]
    words = make_log_fields(made.disagreements[0])
    assert words["workload"] == f"n/{case.of}"
    assert words["cluster_queue"] == "q"
    assert words["admitq"] == case.ours
    assert words["explanation"] == case.explanation


# --- one difference does not bring others ---------------------------------------------------------------


def test_what_follows_from_a_difference_is_agreed_with() -> None:
    made = cluster(queue("q", 2))
    _two_wait(made)
    made.deliver_to_shadow()
    made.now += LEEWAY + SECOND
    made.look()
    made.reserve(admitted("second", 2))
    made.wait(PATIENCE)
    made.meddle = lambda decided: decided
    # The first goes on waiting, because there is nothing left; then it is its turn.
    made.put(key("second"), finished=True)
    made.wait(3 * PATIENCE)
    assert told_of(made) == [("second", "reserved")]
    assert made.workloads[key("first")].admission is not None


def test_idle_manager_is_reported_only_for_fitting_workloads() -> None:
    made = cluster(queue("q", 2), replace(STRICT, name="s"))
    made.meddle = lambda _: None
    for name in ("a", "b", "c", "d"):
        submit(made, name)
        submit(made, f"s{name}", of="s")
    made.wait(5 * PATIENCE)
    # No workload is admitted before the blocked head of a StrictFIFO queue.
    assert sorted(told_of(made)) == [("a", "waiting"), ("b", "waiting"), ("sa", "waiting")]
    # A workload that takes the place of a waiting one is compared as if that did not wait.
    made.reserve(admitted("c"))
    made.reserve(admitted("d"))
    made.wait(2 * PATIENCE)
    assert len(made.disagreements) == 3


def test_changed_workload_may_be_reported_again() -> None:
    made = cluster(queue("q", 2))
    made.meddle = lambda _: None
    submit(made, "w")
    made.wait(2 * PATIENCE)
    made.put(key("w"), priority=1)
    made.wait(2 * PATIENCE)
    assert told_of(made) == [("w", "waiting")] * 2


# --- a race is no difference ----------------------------------------------------------------------------


def test_recent_workload_may_be_unobserved() -> None:
    made = cluster(queue("q", 2))
    made.meddle = lambda _: None
    submit(made, "lower", 2)
    made.now += SECOND // 10
    made.send(
        happened.WorkloadChanged(
            Workload(
                key("higher"),
                "uid-higher",
                "q",
                made.now,
                (PodSet("main", 1, template_requesting({"cpu": 2})),),
                5,
            )
        )
    )
    made.deliver_to_shadow()
    made.reserve(admitted("lower", 2))
    made.wait(2 * PATIENCE)
    assert told_of(made) == []


def test_an_edit_that_is_seen_late_explains_what_came_before_it() -> None:
    made = cluster(queue("q", 1))
    made.meddle = lambda _: None
    submit(made, "w", 2)
    made.settle()
    made.now += LEEWAY + SECOND
    made.deliver_to_shadow()
    made.send(happened.ClusterQueueChanged(queue("q", 2)))
    edit = made.for_shadow.waiting["ClusterQueue"].popleft()
    made.reserve(admitted("w", 2))
    made.deliver_to_shadow()
    made.now += LEEWAY // 2
    made.for_shadow.put(edit)
    made.wait(2 * PATIENCE)
    assert told_of(made) == []


@pytest.mark.parametrize("priority", [0, 1])
def test_deed_is_explained_when_its_conclusion_is_late_and_others_have_got_its_quota(priority: int) -> None:
    made = cluster(queue("q", 1))
    made.meddle = lambda _: None
    submit(made, "w", 2)
    made.settle()
    made.now += LEEWAY + SECOND
    made.reserve(admitted("w", 2))
    made.deliver_to_shadow()
    made.now += SECOND // 10
    # The watch of ClusterQueues is behind, and the quota passes on before the action is looked into.
    made.send(happened.ClusterQueueChanged(queue("q", 2)))
    made.put(key("w"), finished=True)
    pod_sets = (PodSet("main", 1, template_requesting({"cpu": 2})),)
    following = Workload(key("next"), "uid-next", "q", made.now, pod_sets, priority=priority)
    made.send(happened.WorkloadChanged(following))
    made.reserve(admitted("next", 2))
    made.deliver_to_shadow()
    made.now += 2 * LEEWAY
    made.look()
    made.wait(2 * PATIENCE)
    assert told_of(made) == []


def test_decisions_that_were_made_together_are_seen_in_any_order() -> None:
    made = cluster(queue("a", 1, "all", preemption=RECLAIM), queue("b", 1, "all", preemption=RECLAIM))
    submit(made, "borrows", 2, of="a")
    made.settle()
    made.now += PATIENCE
    submit(made, "home", 1, of="b")
    made.deliver_to_manager()
    made.deliver_to_shadow()
    made.decide()
    made.writes.reverse()
    made.settle()
    made.stop(key("borrows"))
    made.wait(3 * PATIENCE)
    assert told_of(made) == []
    assert len(made.agreements) == 3


def test_time_is_looked_at_when_there_is_something_to_conclude() -> None:
    made = cluster(queue("q", 2))
    assert made.shadow.next_look(made.now) is None
    made.meddle = lambda _: None
    submit(made, "w")
    made.deliver_to_shadow()
    assert made.shadow.next_look(made.now) == made.now + PATIENCE


def test_each_difference_is_reported() -> None:
    made = cluster(queue("q", 2))
    made.meddle = lambda _: None
    names = [f"big-{number}" for number in range(8)]
    for name in names:
        submit(made, name, 3)
    made.deliver_to_shadow()
    made.now += LEEWAY + SECOND
    for name in names:
        made.reserve(admitted(name, 3))
    made.wait(2 * PATIENCE)
    assert told_of(made) == [(name, "reserved") for name in names]

"""Laws of the core over random histories, held against the slow reference.

Each history creates, changes and deletes objects of every kind, answers reservations in every way they can
be answered, moves time, and asks for cycles. The core's own invariants are checked after every step; at
cycles, and where a step says so, the laws named below.
"""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource
from admitq.core.events import Event
from admitq.core.instructions import Instruction, ReserveQuota
from admitq.core.model import (
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    ObjectKey,
    PodSet,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceProblem,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Taint,
    Workload,
)
from admitq.core.requests import asking
from admitq.core.state import AdmissionState
from tests.laws.reference import Reference, demanded

QUEUES = ("a", "b", "c", "d")
COHORTS = ("x", "y", "z")
FLAVORS = ("f1", "f2")
NAMESPACES = ("n1", "n2")
LOCAL_QUEUES = tuple(ObjectKey(namespace, name) for namespace in NAMESPACES for name in ("l1", "l2"))
WORKLOADS = tuple(ObjectKey(namespace, f"w{n}") for namespace in NAMESPACES for n in range(6))

TEAM_BLUE = LabelSelector((SelectorRequirement("team", SelectorOperator.IN, ("blue",)),))

limits = st.sampled_from((None, None, None, 0, 1, 2, 4))
quotas = st.builds(ResourceQuota, st.sampled_from((4, 3, 2, 1, 0, 6, 10)), limits, limits)


@st.composite
def resource_groups(draw: st.DrawFn) -> tuple[ResourceGroup, ...]:
    """One group of cpu in one or two flavors, perhaps with memory, perhaps a second group of gpus."""
    covered = draw(st.sampled_from((("cpu",), ("cpu", "mem"))))
    names = draw(st.sampled_from((("f1",), ("f2", "f1"), ("f1", "f2"))))
    groups = [
        ResourceGroup(
            covered,
            tuple(
                FlavorQuotas(name, tuple((resource, draw(quotas)) for resource in covered)) for name in names
            ),
        )
    ]
    if names == ("f1",) and draw(st.booleans()):
        groups.append(ResourceGroup(("gpu",), (FlavorQuotas("f2", (("gpu", draw(quotas)),)),)))
    return tuple(groups)


cluster_queues = st.builds(
    ClusterQueue,
    name=st.sampled_from(QUEUES),
    cohort=st.sampled_from((None, *COHORTS)),
    resource_groups=resource_groups(),
    queueing_strategy=st.sampled_from(QueueingStrategy),
    namespace_selector=st.sampled_from((LabelSelector(), LabelSelector(), TEAM_BLUE, None)),
    stop_policy=st.sampled_from((StopPolicy.NONE, StopPolicy.NONE, StopPolicy.NONE, StopPolicy.HOLD)),
    flavor_fungibility=st.builds(
        FlavorFungibility, when_can_borrow=st.sampled_from(("MayStopSearch", "TryNextFlavor"))
    ),
)
cohorts = st.builds(
    Cohort,
    name=st.sampled_from(COHORTS),
    parent=st.sampled_from((None, *COHORTS)),
    resource_groups=st.just(()) | resource_groups(),
)
local_queues = st.builds(
    LocalQueue,
    key=st.sampled_from(LOCAL_QUEUES),
    cluster_queue=st.sampled_from(QUEUES),
    stop_policy=st.sampled_from((StopPolicy.NONE, StopPolicy.NONE, StopPolicy.HOLD)),
)
flavors = st.builds(
    ResourceFlavor,
    name=st.sampled_from(FLAVORS),
    node_taints=st.sampled_from(((), (), (Taint("spot", "", "NoSchedule"),))),
)
edits = st.one_of(
    cluster_queues.map(happened.ClusterQueueChanged),
    cluster_queues.map(happened.ClusterQueueChanged),
    cohorts.map(happened.CohortChanged),
    cohorts.map(happened.CohortChanged),
    local_queues.map(happened.LocalQueueChanged),
    flavors.map(happened.ResourceFlavorChanged),
    st.builds(
        happened.NamespaceChanged,
        st.sampled_from(NAMESPACES),
        st.sampled_from(((("team", "blue"),), (("team", "red"),))),
    ),
    st.sampled_from(
        (
            *map(happened.ClusterQueueDeleted, QUEUES),
            *map(happened.CohortDeleted, COHORTS),
            *map(happened.LocalQueueDeleted, LOCAL_QUEUES),
            *map(happened.ResourceFlavorDeleted, FLAVORS),
        )
    ),
)
requests = st.sampled_from(
    (
        (("cpu", 3),),
        (("cpu", 1),),
        (("cpu", 2),),
        (("cpu", 4),),
        (("cpu", 1), ("mem", 2)),
        (("cpu", 1), ("gpu", 1)),
        (("cpu", 0),),
        (),
    )
)
pod_sets = st.builds(
    PodSet, name=st.just("main"), count=st.sampled_from((1, 1, 2, 0)), template=requests.map(asking)
).map(lambda one: (one,)) | st.builds(
    lambda first, second: (PodSet("main", 1, asking(first)), PodSet("workers", 2, asking(second))),
    requests,
    requests,
)

submissions = st.builds(
    Workload,
    key=st.sampled_from(WORKLOADS),
    uid=st.just(""),
    queue_name=st.sampled_from(("l1", "l1", "l2", "l2", "nowhere")),
    queued_at=st.integers(0, 3),
    pod_sets=pod_sets,
    priority=st.sampled_from((0, 0, 0, 1, -1)),
)


def identity(event: Event) -> tuple[str, Any]:
    """The object that an event is about; events on one object keep their order."""
    match event:
        case happened.ClusterQueueChanged(queue):
            return ("queue", queue.name)
        case happened.CohortChanged(cohort):
            return ("cohort", cohort.name)
        case happened.LocalQueueChanged(queue):
            return ("local", queue.key)
        case happened.ResourceFlavorChanged(flavor):
            return ("flavor", flavor.name)
        case happened.NamespaceChanged(name, _):
            return ("namespace", name)
        case happened.WorkloadChanged(workload):
            return ("workload", workload.key)
        case happened.WorkloadDeleted(key, _) | happened.ReservationFailed(key, _):
            return ("workload", key)
        case happened.ClusterQueueDeleted(name):
            return ("queue", name)
        case happened.CohortDeleted(name):
            return ("cohort", name)
        case happened.LocalQueueDeleted(key):
            return ("local", key)
        case happened.ResourceFlavorDeleted(name):
            return ("flavor", name)
        case _:
            raise AssertionError(event)


def reordered(batch: list[Event], seed: int) -> list[Event]:
    """Another order of the events in which those on one object keep theirs."""
    by_object: dict[tuple[str, Any], list[Event]] = {}
    for event in batch:
        by_object.setdefault(identity(event), []).append(event)
    turns = [name for name, events in by_object.items() for _ in events]
    random.Random(seed).shuffle(turns)  # noqa: S311 an order, not a secret
    return [by_object[name].pop(0) for name in turns]


class Histories(RuleBasedStateMachine):
    """The core, the reference, and a twin that was restored from a dump."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1
        self.uids = 0
        self.core = AdmissionState()
        self.twin: AdmissionState | None = None
        self.reference = Reference()
        self.before_batch = self.core.fork()
        self.batch: list[Event] = []
        self.shown: dict[Any, Any] = {}
        self.log: list[Event] = []

    # --- sending ----------------------------------------------------------------------------------

    def tell(self, event: Event) -> list[Instruction]:
        instructions = self.core.handle(event, now=self.now)
        if self.twin is not None:
            assert self.twin.handle(event, now=self.now) == instructions, "a restored state decides otherwise"
        self.check_refreshes(instructions)
        return instructions

    def send(self, event: Event) -> None:
        self.batch.append(event)
        self.reference.observe(event)
        instructions = self.tell(event)
        assert not any(isinstance(each, ReserveQuota) for each in instructions), "decided without a cycle"

    def check_refreshes(self, instructions: list[Instruction]) -> None:
        """A refresh is asked for whenever what is shown changed (and may be when it did not)."""
        asked = {repr(each) for each in instructions if type(each).__name__.startswith("Refresh")}
        current: dict[str, Any] = {}
        for name in QUEUES:
            current[f"RefreshClusterQueue(name={name!r})"] = self.core.cluster_queue_status(name)
        for key in LOCAL_QUEUES:
            current[f"RefreshLocalQueue(key={key!r})"] = self.core.local_queue_status(key)
        for name in COHORTS:
            current[f"RefreshCohort(name={name!r})"] = self.core.cohort_status(name)
        changed = {
            what for what, status in current.items() if status is not None and status != self.shown.get(what)
        }
        assert changed <= asked
        self.shown = current

    def uid(self) -> str:
        self.uids += 1
        # Not in the order of creation, as uids are not.
        return f"{(self.uids * 7919) % 1000:03}-{self.uids}"

    # --- objects ----------------------------------------------------------------------------------

    @initialize(groups=st.tuples(*[resource_groups()] * 3), parent=st.sampled_from((None, "x", "z")))
    def begin(self, groups: tuple[tuple[ResourceGroup, ...], ...], parent: str | None) -> None:
        """A world in which something can happen: two queues side by side, one in a cohort perhaps below."""
        for name in FLAVORS:
            self.put_flavor(ResourceFlavor(name))
        for name in NAMESPACES:
            self.put_namespace(name, "blue")
        self.send(happened.CohortChanged(Cohort("y", parent)))
        for name, cohort, strategy, of in zip(
            ("a", "b", "c"),
            ("x", "x", "y"),
            (
                QueueingStrategy.BEST_EFFORT_FIFO,
                QueueingStrategy.STRICT_FIFO,
                QueueingStrategy.BEST_EFFORT_FIFO,
            ),
            groups,
            strict=True,
        ):
            self.put_cluster_queue(ClusterQueue(name, "", cohort, of, strategy, LabelSelector()))
        for key, queue in zip(LOCAL_QUEUES, ("a", "b", "c", "b"), strict=True):
            self.put_local_queue(LocalQueue(key, queue))

    def put_cluster_queue(self, queue: ClusterQueue) -> None:
        self.send(happened.ClusterQueueChanged(queue))

    def put_local_queue(self, queue: LocalQueue) -> None:
        self.send(happened.LocalQueueChanged(queue))

    def put_flavor(self, flavor: ResourceFlavor) -> None:
        self.send(happened.ResourceFlavorChanged(flavor))

    def put_namespace(self, name: str, team: str) -> None:
        self.send(happened.NamespaceChanged(name, (("team", team),)))

    @rule(event=edits)
    def edit(self, event: Event) -> None:
        """An administrator changes something."""
        self.send(event)

    @rule(name=st.sampled_from(QUEUES), groups=resource_groups())
    def change_quota(self, name: str, groups: tuple[ResourceGroup, ...]) -> None:
        queue = self.reference.cluster_queues.get(name)
        if queue is not None:
            self.put_cluster_queue(replace(queue, resource_groups=groups))

    # --- workloads --------------------------------------------------------------------------------

    def put_workload(self, workload: Workload) -> None:
        self.send(happened.WorkloadChanged(workload))

    @rule(submissions=st.lists(submissions, min_size=3, max_size=8))
    def submit(self, submissions: list[Workload]) -> None:
        """Workloads are created; or deleted, and others of their names created before anyone looked."""
        for workload in submissions:
            if workload.key not in self.reference.workloads:
                self.put_workload(replace(workload, uid=self.uid()))

    @rule(workload=submissions)
    def submit_again(self, workload: Workload) -> None:
        """A workload was deleted and another of its name created before anyone looked."""
        self.put_workload(replace(workload, uid=self.uid()))

    @rule(submissions=st.lists(submissions, min_size=3, max_size=8))
    def submit_and_run(self, submissions: list[Workload]) -> None:
        self.submit(submissions)
        self.run_cycles(None, 0, 1)

    @rule(key=st.sampled_from(WORKLOADS))
    def delete_workload(self, key: ObjectKey) -> None:
        workload = self.reference.workloads.get(key)
        self.send(happened.WorkloadDeleted(key, "" if workload is None else workload.uid))

    @rule(
        key=st.sampled_from(WORKLOADS),
        change=st.sampled_from(
            (
                {"finished": True},
                {"active": False},
                {"active": True},
                {"deleting": True},
                {"priority": 2},
                {"priority": 0},
                {"queued_at": 5},
                {"queue_name": "l1"},
                {"queue_name": "l2"},
                {"reclaimable_pods": (("main", 1),)},
                {"requeue_blocked": True},
                {"requeue_blocked": False},
                {"requeue_at": None},
                {"admission_checks": (("check", "Retry"),)},
                {"admission_checks": ()},
                {"admission_gates": ("gate",)},
                {"admission_gates": ()},
                {"resource_problems": (ResourceProblem("malformed", "field", "detail"),)},
                {"resource_problems": ()},
                {"generation": 2},
            )
        ),
    )
    def change_workload(self, key: ObjectKey, change: dict[str, Any]) -> None:
        workload = self.reference.workloads.get(key)
        if workload is not None and not (workload.finished and "finished" not in change):
            self.put_workload(replace(workload, **change))

    @rule(key=st.sampled_from(WORKLOADS), seconds=st.integers(1, 3))
    def back_off(self, key: ObjectKey, seconds: int) -> None:
        workload = self.reference.workloads.get(key)
        if workload is not None:
            self.put_workload(replace(workload, requeue_at=self.now + seconds))

    @rule(choices=st.lists(st.tuples(st.integers(0, 11), st.booleans()), min_size=1, max_size=4))
    def give_back(self, choices: list[tuple[int, bool]]) -> None:
        """Workloads that hold quota finish, or were evicted and have stopped."""
        for choice, finish in choices:
            holding = sorted(key for key, of in self.reference.workloads.items() if of.admission is not None)
            if holding:
                workload = self.reference.workloads[holding[choice % len(holding)]]
                ended = {"finished": True} if finish else {"admission": None, "admitted": False}
                self.put_workload(replace(workload, **ended))

    @rule(failing=st.sets(st.integers(0, 5), max_size=2))
    def answer(self, failing: set[int]) -> None:
        """Decided reservations are observed, or could not be written."""
        for choice, key in enumerate(sorted(self.reference.assumed)):
            workload, admission = self.reference.workloads[key], self.reference.assumed[key]
            if choice in failing:
                self.send(happened.ReservationFailed(key, workload.uid))
            else:
                self.put_workload(replace(workload, admission=admission, admitted=True))

    # --- time and cycles --------------------------------------------------------------------------

    @rule(limit=st.sampled_from((None, None, None, 1, 2)), seconds=st.integers(0, 2), seed=st.integers(0, 99))
    def run_cycles(self, limit: int | None, seconds: int, seed: int) -> None:
        self.now += seconds
        other = self.before_batch
        for event in reordered(self.batch, seed):
            other.handle(event, now=self.now - seconds)
        instructions = self.tell(happened.CyclesRequested(limit))
        in_other_order = other.handle(happened.CyclesRequested(limit), now=self.now)
        reservations = [each for each in instructions if isinstance(each, ReserveQuota)]
        assert reservations == [each for each in in_other_order if isinstance(each, ReserveQuota)], (
            "decisions depend on the order of events on different objects"
        )
        for reservation in reservations:
            self.check_reservation(reservation)
            self.reference.assumed[reservation.key] = reservation.admission
        if limit is None:
            self.check_nobody_was_forgotten()
        self.batch = []
        self.before_batch = self.core.fork()

    def check_reservation(self, decided: ReserveQuota) -> None:
        reference, name = self.reference, decided.admission.cluster_queue
        key, workload = decided.key, self.reference.workloads[decided.key]
        assert decided.uid == workload.uid
        assert reference.waits_in(key) == name
        assert reference.is_active(name)
        assert reference.path(f"q:{name}") is not None
        waiting = reference.waiting(name, self.now)
        assert key in waiting
        assert reference.is_sound(key)
        taken: dict[FlavorResource, int] = {}
        for part, pod_set in zip(decided.admission.pod_set_assignments, workload.pod_sets, strict=True):
            assert part.name == pod_set.name
            assert {resource for resource, amount in demanded(pod_set, part.count).items() if amount} <= {
                resource for resource, _ in part.flavors
            }
            for resource, flavor in part.flavors:
                assert not reference.flavors[flavor].node_taints
                pair = FlavorResource(flavor, resource)
                taken[pair] = taken.get(pair, 0) + dict(part.resource_usage)[resource]
        for pair, amount in taken.items():
            assert amount <= reference.available(f"q:{name}", pair), "more than there is"
            assert amount <= reference.potential(f"q:{name}", pair)
        before = waiting[: waiting.index(key)]
        if reference.is_strict(name):
            assert not before, "overtook in a StrictFIFO queue"
        for each in before:
            if len(reference.workloads[each].pod_sets) == 1:
                assert not reference.fits(each, name), "overtook one that would have fitted"

    def check_nobody_was_forgotten(self) -> None:
        """Nobody who waits would be admitted, by the reference or by trying everything again."""
        reference = self.reference
        due = self.core.next_wakeup(self.now)
        assert due is None or due > self.now
        for name in reference.cluster_queues:
            if not reference.is_active(name):
                continue
            waiting = reference.waiting(name, self.now)
            for key in waiting[:1] if reference.is_strict(name) else waiting:
                if len(reference.workloads[key].pod_sets) == 1:
                    assert not reference.fits(key, name), f"{key} fits in {name} and was not admitted"
        again = self.core.fork()
        again.retry_everything()
        instructions = again.handle(happened.CyclesRequested(), now=self.now)
        assert not [each for each in instructions if isinstance(each, ReserveQuota)], "a lost wake-up"
        assert self.tell(happened.CyclesRequested()) == [], "a settled world is quiet"

    @rule()
    def observe_everything_again(self) -> None:
        """Observations are levels: repeated, they say nothing new."""
        reference = self.reference
        for event in (
            *(happened.ResourceFlavorChanged(flavor) for flavor in reference.flavors.values()),
            *(happened.NamespaceChanged(n, tuple(of.items())) for n, of in reference.namespaces.items()),
            *(happened.CohortChanged(cohort) for cohort in reference.cohorts.values()),
            *(happened.ClusterQueueChanged(queue) for queue in reference.cluster_queues.values()),
            *(happened.LocalQueueChanged(queue) for queue in reference.local_queues.values()),
            *(happened.WorkloadChanged(workload) for workload in reference.workloads.values()),
        ):
            assert self.tell(event) == []

    @rule()
    def restart(self) -> None:
        """Go on beside a state restored from a dump, through text."""
        dumped = json.loads(json.dumps(self.core.to_dict()))
        self.twin = AdmissionState.from_dict(dumped)
        self.twin.validate()
        assert self.twin.to_dict() == dumped

    # --- after every step -------------------------------------------------------------------------

    @invariant()
    def books_are_right(self) -> None:
        self.core.validate()
        reference = self.reference
        for name, queue in reference.cluster_queues.items():
            status = self.core.cluster_queue_status(name)
            assert status is not None
            assert status.active == reference.is_active(name)
            assert status.pending == sum(reference.waits_in(key) == name for key in reference.workloads)
            shown = {
                FlavorResource(flavor, total.resource): (total.total, total.borrowed)
                for flavor, totals in status.flavors_reservation
                for total in totals
            }
            for pair, (total, borrowed) in shown.items():
                used = reference.usage(f"q:{name}", pair)
                beyond = max(0, used - reference.quota(f"q:{name}", pair).nominal)
                assert (total, borrowed) == (used, beyond if queue.cohort is not None else 0)
        for name in reference.cohort_names():
            if reference.path(f"c:{name}") is not None:
                self.check_cohort(name)

    def check_cohort(self, name: str) -> None:
        status = self.core.cohort_status(name)
        assert status is not None
        for pair, subtree in status.subtree_quota:
            assert subtree == self.reference.subtree(f"c:{name}", pair)


TestHistories = pytest.mark.timeout(900)(Histories.TestCase)
TestHistories.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
)

"""Plays events to the core, to a twin restored from a dump, and to the model, and checks the laws.

=====  ======================================================================================================
law    says
=====  ======================================================================================================
S1     no reservation takes more than is available at any node, when it is decided; and what one who replaces
       others does not count with himself, those count with
S2     the core's books equal a recomputation from what was observed (``validate``, and the model's)
S3     a workload is in one place
S5     what is finished or inactive is not admitted; who holds quota already gets none
S6     no float leaves the core
D1     the same decisions from a restored state, from another order of events, and from cycles run singly
C13    the first of a StrictFIFO queue takes part in every cycle of its tree, and in one after quota was taken
L1     nobody who waits would be admitted, or could preempt, if he was tried again
L2     so a queue that is blocked holds up no other
L3     without changes from outside, preemptions come to an end, and nobody leaves twice for one who waits
model  each cycle does with its heads, and with who needs a second pass, what the reference model says
=====  ======================================================================================================
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Any

from admitq.core import events as happened
from admitq.core.amounts import FlavorResource
from admitq.core.events import Event
from admitq.core.instructions import (
    Instruction,
    Preempt,
    PreemptionReason,
    RefreshClusterQueue,
    RefreshCohort,
    RefreshLocalQueue,
    ReportPending,
    ReportSecondPass,
    ReserveQuota,
)
from admitq.core.model import SECOND, Instant, ObjectKey, Workload
from admitq.core.refusals import (
    AdmissionChecksFailed,
    OverlappingVictims,
    TakenInThisCycle,
    WaitingForVictims,
)
from admitq.core.settings import Settings
from admitq.core.state import AdmissionState
from tests.laws.drawing import COHORTS, LOCAL_QUEUES, QUEUES
from tests.laws.heads import taken_heads, used_by_local_queues
from tests.laws.reference.assignment import Assignment
from tests.laws.reference.cycle import Cycle, Head, Outcome, Preemption
from tests.laws.reference.observed import Assumed, Observed
from tests.laws.reference.preemption import Used
from tests.laws.reference.second_pass import SecondPasses, Turn
from tests.laws.reference.tree import Node, cohort_node, queue_node

MOST_CYCLES = 1000
"""Cycles after which a world that is not at rest is one that spins.

Two workloads that are woken once, and whose podsets go on to other flavors in turn, take more than 250.
"""


_REFRESHES = (RefreshClusterQueue, RefreshLocalQueue, RefreshCohort)
_STANDING = (WaitingForVictims, OverlappingVictims, TakenInThisCycle)


class LawBroken(AssertionError):
    """The core does not do as it must."""


def law(holds: object, message: str, *details: object) -> None:
    """Raise if a law does not hold."""
    if not holds:
        raise LawBroken("\n  ".join([message, *map(str, details)]))


def floats_in(value: object) -> bool:
    """Whether a value handed out has a float anywhere in it."""
    if isinstance(value, float):
        return True
    if value is None or isinstance(value, (str, int, Fraction, Enum)):
        return False
    if is_dataclass(value):
        return any(floats_in(getattr(value, each.name)) for each in fields(value))
    if isinstance(value, dict):
        return any(floats_in(key) or floats_in(item) for key, item in value.items())
    assert isinstance(value, (list, tuple)), f"{value!r} is handed out"
    return any(floats_in(item) for item in value)


def object_of(event: Event) -> tuple[str, Any]:
    """The object that an event is about; events on one object keep their order."""
    kind = type(event).__name__
    for ending in ("Changed", "Deleted"):
        kind = kind.removesuffix(ending)
    match event:
        case (
            happened.WorkloadDeleted(key, _)
            | happened.ReservationFailed(key, _)
            | happened.PreemptionFailed(key, _)
        ):
            return ("Workload", key)
        case happened.WorkloadChanged(workload):
            return (kind, workload.key)
        case happened.ClusterQueueChanged(value) | happened.CohortChanged(value):
            return (kind, value.name)
        case happened.ResourceFlavorChanged(value) | happened.AdmissionCheckChanged(value):
            return (kind, value.name)
        case happened.LocalQueueChanged(value):
            return (kind, value.key)
        case (
            happened.LocalQueueDeleted(key)
            | happened.LimitRangeChanged(key)
            | happened.LimitRangeDeleted(key)
        ):
            return (kind, key)
        case happened.CyclesRequested():
            raise AssertionError(event)
        case _:
            return (kind, event.name)


def reordered(batch: Iterable[Event], seed: int) -> list[Event]:
    """Another order of the events in which those on one object keep theirs."""
    by_object: dict[tuple[str, Any], list[Event]] = {}
    for event in batch:
        by_object.setdefault(object_of(event), []).append(event)
    turns = [name for name, events in by_object.items() for _ in events]
    random.Random(seed).shuffle(turns)  # noqa: S311 an order, not a secret
    return [by_object[name].pop(0) for name in turns]


def decisions(instructions: Iterable[Instruction]) -> list[Instruction]:
    """Reservations and preemptions, in order."""
    return [each for each in instructions if isinstance(each, (ReserveQuota, Preempt))]


def told(instructions: Iterable[Instruction]) -> list[Instruction]:
    """All but refreshes, which may be asked for without need."""
    return [each for each in instructions if not isinstance(each, _REFRESHES)]


def led_to(key: ObjectKey, pairs: Collection[tuple[ObjectKey, ObjectKey]]) -> set[ObjectKey]:
    """Who was preempted by a workload, by those whom it preempted, and so on; and itself."""
    found, looked_at = {key}, set[ObjectKey]()
    while found - looked_at:
        one = min(found - looked_at)
        looked_at.add(one)
        found |= {victim for preemptor, victim in pairs if preemptor == one}
    return found


def left_twice(preemptions: Iterable[Preemption]) -> Iterator[Preemption]:
    """Preemptions of those who were to leave for the same before, and since then it waited."""
    told: set[tuple[ObjectKey, ObjectKey]] = set()
    for each in preemptions:
        if (each.preemptor, each.victim) in told:
            yield each
        told.add((each.preemptor, each.victim))
        told = {pair for pair in told if pair[0] != each.victim}


class Player:
    """One history, being played."""

    def __init__(self, settings: Settings, *, crowded: bool, watches_statuses: bool) -> None:
        self.crowded = crowded
        self.watches_statuses = watches_statuses
        self.core = AdmissionState(settings)
        self.twin: AdmissionState | None = None
        self.observed = Observed(settings)
        self.now: Instant = 1000 * SECOND
        self.uids = 0
        self.told_to_stop: dict[ObjectKey, str] = {}
        """Preemptions that nobody has answered: the uid by workload."""
        self.tried: dict[ObjectKey, tuple[str, dict[tuple[str, str], int]]] = {}
        self.preemptors: dict[str, tuple[str, int]] = {}
        """By ClusterQueue, uid and generation of who waits for victims."""
        self.displaced: dict[ObjectKey, set[str]] = {}
        """By workload, uids of those who were to leave for it since it began to wait."""
        self.waits_since: dict[ObjectKey, object] = {}
        """By workload that others were to leave for, where and as what it waited then."""
        self.shown: dict[object, object] = {}
        self.asked: set[object] = set()
        """What was to be shown anew since it was looked at last."""
        self.told = 0
        self.before_batch: AdmissionState | None = None
        self.batch: list[tuple[Event, Instant]] = []
        self.preemptions: list[Preemption] = []
        self.overtaken: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors, each with one who was not to leave for it and took what was free before its turn."""
        self.came_back: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors that were beaten, each with one who was to leave for it and took quota then."""
        self.back_first: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors not tried, behind the first of a StrictFIFO queue, each with one who took back then."""
        self.used: Mapping[ObjectKey, Used] | None = None
        """What LocalQueues used when cycles were last asked for."""
        self.cycles = 0
        self.tried_in: dict[object, int] = {}
        """By ClusterQueue and shape, the cycle in which one of it was last tried."""
        self.taken_in = 0
        """The cycle in which quota was last taken."""
        self.took_in: dict[str, int] = {}
        """By uid, the cycle in which a workload took quota."""
        self.began_further: set[ObjectKey] = set()
        """Workloads of which the last attempt began behind the first flavor."""
        self.second_passes = SecondPasses()
        self.halted = False
        """Whether admission waits for pods: nobody is tried until all are ready, not even to preempt."""

    def uid(self) -> str:
        """A new uid; they are not in the order of creation."""
        self.uids += 1
        return f"{(self.uids * 7919) % 1000:03}-{self.uids}"

    # --- events -----------------------------------------------------------------------------------

    def tell(self, event: Event) -> list[Instruction]:
        """Hand an event to the core and its twin."""
        instructions = self.core.handle(event, now=self.now)
        if self.twin is not None:
            same = told(self.twin.handle(event, now=self.now))
            law(same == told(instructions), "D1: a restored state decides otherwise", same, instructions)
        law(not floats_in(instructions), "S6: a float is handed out", instructions)
        self.told += 1
        if self.watches_statuses:
            self.asked.update(each for each in instructions if isinstance(each, _REFRESHES))
            # Every status is read each time, which is much.
            if self.told % 3 == 0:
                self.check_refreshes()
        return instructions

    def send(self, event: Event) -> None:
        """Something happened other than a request for cycles."""
        if self.before_batch is not None:
            self.batch.append((event, self.now))
        self.observed.observe(event)
        self.halted = self.halted and self.observed.waits_for_pods()
        instructions = self.tell(event)
        law(
            not any(isinstance(each, (ReserveQuota, Preempt)) for each in instructions),
            "decided without a cycle",
            instructions,
        )
        self.forget_answers()
        if isinstance(event, (happened.WorkloadChanged, happened.WorkloadDeleted)):
            self.second_passes.observe(self.observed, self.now)
        self.forget_preemptors()

    def observe_again(self, event: Event) -> None:
        """What is observed once more says nothing new, but for what LocalQueues used if that is due."""
        due = self.core.next_wakeup(self.now)
        instructions = self.tell(event)
        if due is not None and due <= self.now and self.used is not None:
            instructions = [each for each in instructions if not isinstance(each, RefreshLocalQueue)]
        law(not instructions, "an observation repeated says something new", event, instructions)

    def forget_answers(self) -> None:
        """What was asked of a workload that holds nothing any more needs no answer."""
        for key, uid in list(self.told_to_stop.items()):
            workload = self.observed.workloads.get(key)
            if workload is None or workload.uid != uid or self.observed.admission(key) is None:
                del self.told_to_stop[key]

    def forget_preemptors(self) -> None:
        """Whoever leaves a queue is its preemptor no longer."""
        observed = self.observed
        waiting = {(observed.waits_in(key), workload.uid) for key, workload in observed.workloads.items()}
        for name, (uid, _) in list(self.preemptors.items()):
            if (name, uid) not in waiting:
                del self.preemptors[name]
        for key in list(self.displaced):
            if key not in observed.workloads or self.place(key) != self.waits_since[key]:
                del self.displaced[key]

    def place(self, key: ObjectKey) -> object:
        """Where a workload waits, and as what."""
        workload = self.observed.workloads[key]
        return (self.observed.waits_in(key), workload.queue_name, workload.uid, workload.generation)

    def put(self, workload: Workload, **changes: Any) -> None:
        """A workload is observed."""
        self.send(happened.WorkloadChanged(replace(workload, **changes)))

    # --- cycles -----------------------------------------------------------------------------------

    def run(self, limit: int | None, draw: random.Random) -> None:
        """Cycles, one after the other, each held against the model."""
        apart = self.core.fork() if draw.random() < 0.15 else None  # before anything of it happened
        other = self.before_batch
        decided: list[Instruction] = []
        for _ in range(MOST_CYCLES if limit is None else limit):
            heads, instructions = self.cycle(draw)
            decided += decisions(instructions)
            if not heads:
                break
        else:
            law(limit is not None, f"R1: not at rest after {MOST_CYCLES} cycles")
        if apart is not None:
            together = decisions(apart.handle(happened.CyclesRequested(limit), now=self.now))
            law(
                sorted(map(repr, together)) == sorted(map(repr, decided)),
                "D1: cycles back to back decide otherwise than one by one",
                together,
                decided,
            )
        if other is not None:
            self.check_other_order(other, limit, decided, draw.randrange(1000))
        self.before_batch = self.core.fork() if draw.random() < 0.15 else None
        self.batch = []
        if limit is None:
            self.check_rest(draw)

    def check_other_order(
        self, other: AdmissionState, limit: int | None, decided: list[Instruction], seed: int
    ) -> None:
        """Events on different objects may come in any order between two requests for cycles."""
        instants = {id(event): at for event, at in self.batch}
        if len(set(instants.values())) > 1:
            return
        for event in reordered([event for event, _ in self.batch], seed):
            other.observe(event, now=instants[id(event)])
        otherwise = decisions(other.handle(happened.CyclesRequested(limit), now=self.now))
        law(
            sorted(map(repr, otherwise)) == sorted(map(repr, decided)),
            "D1: decisions depend on the order of events on different objects",
            otherwise,
            decided,
        )

    def cycle(self, draw: random.Random) -> tuple[list[Head], list[Instruction]]:
        """One cycle."""
        turns = [] if self.halted else self.second_passes.take_due(self.now)
        with taken_heads(self.preemptors, self.displaced) as cycles:
            instructions = self.tell(happened.CyclesRequested(1))
        heads, self.used = cycles[0] if cycles else ([], used_by_local_queues(self.core))
        law(not (heads and self.halted), "tries somebody while admission waits for pods", heads)
        self.check_strict_heads(heads)
        self.cycles += 1
        for head in heads:
            self.check_head(head)
            if draw.random() < 0.1:
                self.check_nobody_is_overtaken(head)
        cycle = Cycle(self.observed, self.now, self.used)
        self.check_second_passes([(each, cycle.second_pass(each.key)) for each in turns], instructions)
        outcome = cycle.run(heads)
        self.halted = self.halted or "PodsNotReady" in outcome.refusals.values()
        self.compare(outcome, instructions)
        self.take_over(outcome, instructions, heads)
        return heads, instructions

    def in_order(self, name: str) -> list[ObjectKey]:
        """Who may be tried in a ClusterQueue, in the order in which they are tried."""
        observed = self.observed
        waiting = observed.waiting(name, self.now)
        if self.used is not None and observed.cluster_queues[name].usage_based_admission:
            used = self.used
            waiting.sort(key=lambda key: used[ObjectKey(key.namespace, observed.workloads[key].queue_name)])
        return waiting

    def check_nobody_is_overtaken(self, head: Head) -> None:
        """Whoever stands before a head would get nothing."""
        waiting = self.in_order(head.queue)
        if head.key not in waiting or head.is_preemptor:
            return
        before = waiting[: waiting.index(head.key)]
        law(not before or not self.observed.is_strict(head.queue), "overtakes in a StrictFIFO queue", head)
        for key in {self.shape(key): key for key in before}.values():
            self.check_not_forgotten(head.queue, key)

    def check_head(self, head: Head) -> None:
        """Only who waits where he is taken is tried, and goes on where he stopped."""
        observed, key = self.observed, head.key
        law(observed.waits_in(key) == head.queue, "S3: a head does not wait there", head)
        law(not observed.is_kept_back(key, self.now), "a head is kept back", head)
        law(observed.is_active(head.queue), "a head of a ClusterQueue that is not active", head)
        uid, tried = self.tried.get(key, ("", {}))
        recorded = tried if uid == observed.workloads[key].uid else {}
        law(head.start in ({}, recorded), "a scan goes on where none stopped", head, recorded)

    def strict_firsts(self) -> dict[str, ObjectKey]:
        """By StrictFIFO ClusterQueue that may admit, its first workload."""
        observed = self.observed
        return {
            name: keys[0]
            for name in sorted(observed.cluster_queues)
            if observed.is_strict(name)
            and observed.is_active(name)
            and self.root_of(name) is not None
            and (keys := self.to_be_tried(name))
        }

    def root_of(self, name: str) -> Node | None:
        """The root of the tree of a ClusterQueue; None if it is unknown or has no tree."""
        tree = self.observed.tree()
        if name not in self.observed.cluster_queues or tree.path(queue_node(name)) is None:
            return None
        return tree.root(queue_node(name))

    def check_strict_heads(self, heads: list[Head]) -> None:
        """The first of each StrictFIFO queue takes part in a cycle of its tree."""
        running = {self.root_of(head.queue) for head in heads}
        taken = {head.queue for head in heads}
        for name, key in self.strict_firsts().items():
            takes_part = name in taken or self.root_of(name) not in running
            law(takes_part, "C13: the first is not in a cycle of its tree", name, key)

    def check_strict_heads_saw_all(self) -> None:
        """The first of each StrictFIFO queue was tried after quota of its tree was last taken."""
        observed = self.observed
        taken = Counter[Node | None]()
        for key, workload in observed.workloads.items():
            holder = observed.holder(key)
            if holder is not None:
                root = self.root_of(holder.queue)
                taken[root] = max(taken[root], self.took_in.get(workload.uid, 0))
        for name, key in self.strict_firsts().items():
            tried, last = self.tried_in.get((name, self.shape(key)), 0), taken[self.root_of(name)]
            law(tried > last or not last, "C13: not tried since quota was taken", name, key)

    @staticmethod
    def check_second_passes(expected: list[tuple[Turn, str]], instructions: list[Instruction]) -> None:
        """Those are tried once more whose turn it is, and keep what they have."""
        foreseen = [(turn.key, turn.uid, refusal) for turn, refusal in expected]
        told = [
            (each.key, each.uid, type(each.refusal).__name__)
            for each in instructions
            if isinstance(each, ReportSecondPass)
        ]
        law(told == foreseen, "model: other second passes", f"core  {told}", f"model {foreseen}")

    def compare(self, outcome: Outcome, instructions: list[Instruction]) -> None:
        """The cycle did what the model says; what happens in one tree is nothing to another."""
        tree = self.observed.tree()

        def root(key: ObjectKey) -> Node:
            return tree.root(queue_node(self.observed.waits_in(key) or ""))

        expected = [(key, self.admission_parts(assignment)) for key, assignment in outcome.reservations]
        decided = [
            (
                each.key,
                {
                    part.name: (part.count, dict(part.flavors), dict(part.resource_usage))
                    for part in each.admission.pod_set_assignments
                },
            )
            for each in instructions
            if isinstance(each, ReserveQuota)
        ]
        for some in (expected, decided):
            some.sort(key=lambda each: root(each[0]))
        law(decided == expected, "model: other reservations", f"core  {decided}", f"model {expected}")
        preempted = [
            Preemption(each.key, each.preemptor, each.reason)
            for each in instructions
            if isinstance(each, Preempt)
        ]
        foreseen = sorted(outcome.preemptions, key=lambda each: root(each.preemptor))
        preempted.sort(key=lambda each: root(each.preemptor))
        law(preempted == foreseen, "model: other preemptions", f"core  {preempted}", f"model {foreseen}")
        for each in instructions:
            if isinstance(each, ReportPending) and each.key in outcome.refusals:
                told = type(each.refusal).__name__
                law(told == outcome.refusals[each.key], "model: another refusal", each, outcome.refusals)

    @staticmethod
    def admission_parts(assignment: Assignment) -> dict[str, tuple[int, dict[str, str], dict[str, int]]]:
        """An assignment as an admission tells it."""
        return {
            name: (count, assignment.flavors[name], assignment.amounts[name])
            for name, count in assignment.counts.items()
        }

    def take_over(self, outcome: Outcome, instructions: list[Instruction], heads: list[Head]) -> None:
        """Count what was decided, and check it against what there was."""
        observed = self.observed
        held = observed.tree()
        taking = {each.key: each.uid for each in instructions if isinstance(each, ReserveQuota)}
        for preemptor, uids in self.displaced.items():
            back = {(preemptor, key) for key, uid in taking.items() if uid in uids}
            if back and self.is_behind_the_first(preemptor):
                self.back_first |= back
        for each in instructions:
            if isinstance(each, ReserveQuota):
                self.check_reservation(each)
                observed.assumed[each.key] = Assumed(each.admission, self.now, each.admit)
                holder = observed.holder(each.key)
                assert holder is not None, "it holds now"
                law(held.fits(holder.queue, holder.usage), "S1: more than there is", each)
                held.add(holder.queue, holder.usage)
                if observed.heir(each.key) is not None:
                    held = observed.tree()  # That counts with less now.
                self.taken_in = self.took_in[each.uid] = self.cycles
                self.tried.pop(each.key, None)
            if isinstance(each, Preempt):
                law(observed.admission(each.key) is not None, "preempts one that holds nothing", each)
                law(each.uid == observed.workloads[each.key].uid, "preempts a former workload", each)
                observed.preempting.add(each.key)
                self.told_to_stop[each.key] = each.uid
                self.preemptions.append(Preemption(each.key, each.preemptor, each.reason))
        for head in heads:
            self.tried_in[head.queue, self.shape(head.key)] = self.cycles
            (self.began_further.add if head.start else self.began_further.discard)(head.key)
            uid = observed.workloads[head.key].uid
            if head.key in outcome.refusals:
                self.tried[head.key] = (uid, outcome.tried.get(head.key, {}))
            if head.key in outcome.waiting_for_victims:
                self.preemptors[head.queue] = (uid, observed.workloads[head.key].generation)
            if outcome.refusals.get(head.key) == "TakenInThisCycle" and head.displaced:
                for key, _ in outcome.reservations:
                    left = observed.workloads[key].uid in head.displaced
                    (self.came_back if left else self.overtaken).add((head.key, key))
        for key, uids in outcome.displaced.items():
            self.displaced.setdefault(key, set()).update(uids)
            self.waits_since[key] = self.place(key)
        self.forget_preemptors()

    def is_behind_the_first(self, key: ObjectKey) -> bool:
        """Whether a workload is not tried because its StrictFIFO queue has another first."""
        name = self.observed.waits_in(key)
        return name is not None and self.observed.is_strict(name) and key in self.in_order(name)[1:]

    def check_reservation(self, decided: ReserveQuota) -> None:
        """Whoever is admitted may be, and no check is forgotten."""
        observed, key = self.observed, decided.key
        workload, name = observed.workloads[key], decided.admission.cluster_queue
        law(decided.uid == workload.uid, "reserves for a former workload", decided)
        law(workload.active and not workload.finished, "S5: admits what is inactive or finished", decided)
        flavors = {flavor for part in decided.admission.pod_set_assignments for _, flavor in part.flavors}
        outstanding = observed.outstanding_checks(key, name, flavors)
        law(decided.admit == (not outstanding), "admits with checks outstanding", decided, outstanding)

    # --- at rest ----------------------------------------------------------------------------------

    def check_rest(self, draw: random.Random) -> None:
        """Nobody was forgotten, and what is settled is quiet.

        While admission waits for pods nobody is tried, so that nobody can be forgotten.
        """
        due = self.core.next_wakeup(self.now)
        law(due is None or due > self.now, "a settled world has something to do", due)
        second = None if self.halted else self.second_passes.next_at()
        law(second is None or (due is not None and due <= second), "nobody wakes for a second pass", second)
        if not self.halted and not self.observed.settings.requeue_batch_period:
            self.check_strict_heads_saw_all()
        quiet = self.tell(happened.CyclesRequested())
        law(not quiet, "R1: a settled world is not quiet", quiet)
        if draw.random() < 0.3:
            again = self.core.fork()
            again.retry_everything()
            found = decisions(again.handle(happened.CyclesRequested(), now=self.now))
            law(not any(map(self.is_new, found)), "L1: a lost wake-up", found)
        if draw.random() < 0.3 and not self.halted:
            self.check_nobody_is_forgotten()

    def check_nobody_is_forgotten(self) -> None:
        """By the model nobody who waits would be admitted, or could preempt, if he was tried again."""
        observed = self.observed
        tree = observed.tree()
        for name in sorted(observed.cluster_queues):
            if not observed.is_active(name) or tree.path(queue_node(name)) is None:
                continue
            shapes: set[object] = set()
            for key in self.to_be_tried(name):
                shape = self.shape(key)
                if shape not in shapes:
                    shapes.add(shape)
                    self.check_not_forgotten(name, key)

    def shape(self, key: ObjectKey) -> object:
        """What makes two workloads of a ClusterQueue the same for its decisions, or nearly so."""
        workload = self.observed.workloads[key]
        name = self.observed.waits_in(key)
        original = None if name is None else self.observed.original(key, name)
        return (
            workload.pod_sets,
            workload.priority,
            workload.reclaimable_pods,
            key.namespace,
            None if original is None else original.key,
            None if self.observed.settings.gates.scheduling_equivalence_hashing else key,
        )

    def is_new(self, decided: Instruction) -> bool:
        """Whether a decision of those who waited should have been taken before.

        Whoever found nobody to preempt is not tried again because others took quota, although those may be
        preempted (semantics, Events that retry inadmissible workloads). Whoever will fit once the victims of
        others have left waits for that; beside those who were tried in vain before, and keep capacity for the
        cycle in which they are tried again, it would look for victims of its own; so would whoever waits for
        victims. Who waits for victims that were found behind the first flavor might find others from that on.
        """
        if isinstance(decided, ReserveQuota):
            return self.is_let_in(decided.key)
        assert isinstance(decided, Preempt), decided
        if self.core.queries.parked_refusal(decided.preemptor) == OverlappingVictims(will_fit=True):
            return False
        if self.found_victims_further(decided.preemptor):
            return False
        name = self.observed.waits_in(decided.preemptor)
        if name is not None and not self.finds_more_victims(name, decided.preemptor):
            return False
        return self.tried_in.get((name, self.shape(decided.preemptor)), 0) > self.taken_in

    def finds_more_victims(self, name: str, key: ObjectKey) -> bool:
        """Whether who waits for victims finds more also where of others only those are tried who stand.

        What one who is parked keeps, for the one cycle in which he is tried in vain, may be what it lacks.
        """
        if not isinstance(self.core.queries.parked_refusal(key), WaitingForVictims):
            return True
        return self.tried_beside(name, key, self.keepers(name, standing=True)).preempts_for(key)

    def is_let_in(self, key: ObjectKey) -> bool:
        """Whether it is let in also where of others only those are tried who stand, if it stands itself.

        What one who is parked keeps, for the one cycle in which he is tried in vain, may beat it, so that it
        goes on with another flavor, or may beat who beats it.
        """
        name = self.observed.waits_in(key)
        if name is not None and not self.is_let_in_without_takers(name, key):
            return False
        if name is None or not isinstance(self.core.queries.parked_refusal(key), _STANDING):
            return True
        return self.tried_beside(name, key, self.keepers(name, standing=True)).lets_in(key)

    def is_let_in_without_takers(self, name: str, key: ObjectKey) -> bool:
        """Whether it would be let in also if nobody had taken quota since it was tried.

        Less quota may mean more for one who looks at another flavor then: there is nobody left to preempt for
        the first, or the first of his podsets leaves that to the second. But taking is not among the events
        that wake (semantics, Events that retry inadmissible workloads).
        """
        tried = self.tried_in.get((name, self.shape(key)))
        if tried is None or tried > self.taken_in:
            return True
        workloads = self.observed.workloads
        takers = {each for each in workloads if self.took_in.get(workloads[each].uid, 0) >= tried}
        return (
            Cycle(self.observed.without(takers), self.now, self.used).run([self.head(name, key)]).lets_in(key)
        )

    def found_victims_further(self, key: ObjectKey) -> bool:
        """Whether it waits for victims that were found behind the first flavor."""
        refusal = self.core.queries.parked_refusal(key)
        return key in self.began_further and isinstance(refusal, WaitingForVictims)

    def to_be_tried(self, name: str) -> list[ObjectKey]:
        """Who would be tried in a ClusterQueue if everything was tried again.

        Whoever waits for victims, or was beaten by one who does, is tried until that is over, and nobody
        behind him (semantics, Requeue after a cycle: immediate). A StrictFIFO queue is held up by its first
        also if its namespace is not selected, where what was found is that its checks have failed.
        """
        waiting = self.in_order(name)
        if self.observed.is_strict(name):
            return [] if self.is_held_up_by_checks(name) else waiting[:1]
        standing = [key for key in waiting if isinstance(self.core.queries.parked_refusal(key), _STANDING)]
        return standing[:1] or waiting

    def is_held_up_by_checks(self, name: str) -> bool:
        """Whether somebody was refused for his checks whose namespace is not selected."""
        return any(
            self.core.queries.parked_refusal(key) == AdmissionChecksFailed()
            for key in self.observed.workloads
            if self.observed.waits_in(key) == name and not self.observed.is_selected(key, name)
        )

    def check_not_forgotten(self, name: str, key: ObjectKey) -> None:
        """Not even beside those who keep capacity in every cycle, nor beside all who would be tried again.

        Whoever waits for victims that were found behind the first flavor might find others from that on; but
        it is woken when its own have left. Nothing wakes whoever is let in only because others took quota.
        """
        tried = self.tried_in.get((name, self.shape(key)), 0)
        seeks = not self.found_victims_further(key) and tried > self.taken_in
        for others in ([], self.keepers(name, standing=True), self.keepers(name)):
            outcome = self.tried_beside(name, key, others)
            if not outcome.lets_in(key) and not (seeks and outcome.preempts_for(key)):
                return
        if not self.is_let_in_without_takers(name, key):
            return
        raise LawBroken(f"L1: {key} waits in {name} for nothing")

    def tried_beside(self, name: str, key: ObjectKey, others: Iterable[Head]) -> Outcome:
        """What a cycle decides by the model that takes a workload and these."""
        return Cycle(self.observed, self.now, self.used).run([self.head(name, key), *others])

    def head(self, name: str, key: ObjectKey) -> Head:
        """A head whose scan starts anew."""
        workload = self.observed.workloads[key]
        is_preemptor = self.preemptors.get(name) == (workload.uid, workload.generation)
        return Head(name, key, {}, is_preemptor, self.displaced.get(key, ()))

    def keepers(self, name: str, *, standing: bool = False) -> list[Head]:
        """The first of other ClusterQueues, or only those who stand."""
        firsts = [
            self.head(other, keys[0])
            for other in sorted(self.observed.cluster_queues)
            if other != name and self.observed.is_active(other) and (keys := self.to_be_tried(other))
        ]
        if not standing:
            return firsts
        return [each for each in firsts if self.is_standing(each.queue, each.key)]

    def is_standing(self, name: str, key: ObjectKey) -> bool:
        """Whether the first of a ClusterQueue takes part in every cycle of its tree."""
        return self.observed.is_strict(name) or isinstance(self.core.queries.parked_refusal(key), _STANDING)

    # --- books ------------------------------------------------------------------------------------

    def check_refreshes(self) -> None:
        """A refresh is asked for whenever what is shown changed."""
        current: dict[object, object] = {}
        for name in QUEUES:
            current[RefreshClusterQueue(name)] = self.core.queries.cluster_queue_status(name)
        for key in LOCAL_QUEUES:
            current[RefreshLocalQueue(key)] = self.core.queries.local_queue_status(key)
        for name in COHORTS:
            current[RefreshCohort(name)] = self.core.queries.cohort_status(name)
        changed = {
            what for what, status in current.items() if status is not None and status != self.shown.get(what)
        }
        law(changed <= self.asked, "a status changed and nobody is told", changed - self.asked)
        self.shown = current
        self.asked.clear()

    def check_books(self) -> None:
        """The core's numbers against the model's."""
        observed = self.observed
        tree = observed.tree()
        waits_in = [observed.waits_in(key) for key in observed.workloads]
        for name, queue in observed.cluster_queues.items():
            status = self.core.queries.cluster_queue_status(name)
            assert status is not None, name
            law(status.active == observed.is_active(name), "S2: activity", name, status)
            law(status.pending == waits_in.count(name), "S3: how many wait", name, status)
            node = queue_node(name)
            for flavor, totals in status.flavors_reservation:
                for total in totals:
                    pair = FlavorResource(flavor, total.resource)
                    used = tree.usage(node, pair)
                    beyond = max(0, used - tree.nominal(node, pair)) if queue.cohort is not None else 0
                    law((total.total, total.borrowed) == (used, beyond), "S2: usage", name, total, used)
        for key, local_queue in observed.local_queues.items():
            if local_queue.cluster_queue not in observed.cluster_queues:
                status = self.core.queries.local_queue_status(key)
                assert status is not None, key
                counters = (status.pending, status.reserving, status.admitted)
                lists = (status.flavors_reservation, status.flavors_usage)
                law((*counters, *lists) == (0, 0, 0, None, None), "a queue without ClusterQueue counts", key)
        for name in sorted({node.name for node in tree.parents if node.cohort}):
            status = self.core.queries.cohort_status(name)
            assert status is not None, name
            if tree.path(cohort_node(name)) is None:
                continue
            for pair, subtree in status.subtree_quota:
                law(subtree == tree.subtree(cohort_node(name), pair), "S2: quota of a cohort", name, pair)
        self.check_nobody_counts_too_little()

    def check_nobody_counts_too_little(self) -> None:
        """What one who replaces another does not count with himself, those whom he replaces do."""
        observed = self.observed
        for key in observed.workloads:
            if observed.workloads[key].replaces is None:
                continue
            counted = Counter[FlavorResource]()
            for each in observed.line(key):
                counted.update(dict(self.core.queries.usage_of_workload(each)))
            assigned = observed.assigned(key)
            law(all(counted[pair] >= assigned[pair] for pair in assigned), "S1: too little", key, counted)

    def restart(self) -> None:
        """Go on beside a state restored from a dump, through text."""
        dumped = json.loads(json.dumps(self.core.to_dict()))
        law(not floats_in(dumped), "S6: a float is in a dump")
        self.twin = AdmissionState.from_dict(dumped)
        self.twin.validate()
        law(self.twin.to_dict() == dumped, "D1: a restored state dumps otherwise")

    # --- answers ----------------------------------------------------------------------------------

    def holding(self, which: Callable[[Workload], bool] = lambda _: True) -> list[ObjectKey]:
        """Workloads that are observed to hold quota."""
        return sorted(
            key
            for key, workload in self.observed.workloads.items()
            if workload.admission is not None and not workload.finished and which(workload)
        )

    def replaced(self) -> list[ObjectKey]:
        """Workloads that hold quota although another took their place, which is observed."""
        observed = self.observed
        heirs = {key: observed.heir(key) for key in self.holding()}
        return [key for key, heir in heirs.items() if heir and observed.workloads[heir].admission is not None]

    def give_back(self, key: ObjectKey) -> None:
        """What a workload that shrank was assigned for pods that it has no more is observed to be free."""
        workload = self.observed.workloads[key]
        assert workload.admission is not None, "it holds quota"
        counts = {each.name: each.count for each in workload.pod_sets}
        parts = tuple(
            part
            if (count := counts.get(part.name, 0)) >= part.count
            else replace(
                part,
                count=count,
                resource_usage=tuple(
                    (resource, amount * count // part.count) for resource, amount in part.resource_usage
                ),
            )
            for part in workload.admission.pod_set_assignments
        )
        self.put(workload, admission=replace(workload.admission, pod_set_assignments=parts))

    def write_reservation(self, key: ObjectKey) -> None:
        """A decided reservation is observed."""
        self.send(happened.WorkloadChanged(self.observed.answered(key)))

    def evict(self, key: ObjectKey) -> None:
        """A workload that was told to stop is observed to be evicted, if its reservation is."""
        workload = self.observed.workloads[key]
        if workload.admission is not None:
            self.told_to_stop.pop(key, None)
            evicted_at = self.now // SECOND * SECOND
            queued_at = self.queued_again_at(workload)
            self.put(workload, evicted=True, evicted_at=evicted_at, queued_at=queued_at)

    def queued_again_at(self, workload: Workload) -> Instant:
        """The queue-order timestamp of a victim (semantics, Ordering).

        Without priorities in the order of cycles, whoever was preempted while the preemptor borrows goes
        behind it, or would take back what was freed.
        """
        last = next((each for each in reversed(self.preemptions) if each.victim == workload.key), None)
        while_borrowing = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
        if self.observed.settings.gates.priority_sorting_within_cohort or last is None:
            return workload.queued_at
        return self.now + SECOND // 1000 if last.reason is while_borrowing else workload.queued_at

    def stop(self, key: ObjectKey) -> None:
        """The job of an evicted workload has stopped: it holds nothing any more."""
        self.put(self.observed.workloads[key], admission=None, admitted=False, reserved_at=0)

    def settle(self, draw: random.Random) -> None:
        """Without changes from outside everything that is asked for happens, until nothing is."""
        begin = len(self.preemptions)
        self.overtaken.clear()
        self.came_back.clear()
        self.back_first.clear()
        is_settled = self.answer_everything(draw)
        since = self.preemptions[begin:]
        law(is_settled or self.need_not_end(since[-12:]), "L3: preemptions do not end", since[-12:])
        for each in left_twice(since):
            law(self.may_leave_twice(each), "L3: left for it before, while it waited", each)

    def answer_everything(self, draw: random.Random) -> bool:
        """Have happen what is asked for; whether that came to an end."""
        for _ in range(60):
            self.run(None, draw)
            busy = bool(self.observed.assumed or self.told_to_stop)
            for key in sorted(self.observed.assumed):
                self.write_reservation(key)
            for key in sorted(self.told_to_stop):
                self.evict(key)
            for key in self.replaced():
                self.put(self.observed.workloads[key], finished=True)
                busy = True
            for key in self.holding(lambda workload: workload.evicted):
                self.stop(key)
                busy = True
            if not busy:
                return True
        return False

    def need_not_end(self, last: list[Preemption]) -> bool:
        """Whether these preemptions may go on for ever, as docs/internals/proof.md tells.

        Two preempt each other in turn, one of them for fewer pods than it gets then, or one of them by
        borrowing, from several of a ClusterQueue that is within nominal quota without the others. Or, where
        preemptors do not come first: there is fair sharing; somebody else takes what was freed for a
        preemptor, and is preempted by its victim; the victims of two take what was freed for the preemptor
        of the other; or a preemptor is beaten by what is kept for another, and its victim back. Or, in a
        StrictFIFO queue whose LocalQueues take turns, the victim's has its turn before the preemptor's.
        """
        pairs = {(each.preemptor, each.victim) for each in last}
        in_turn = {preemptor for preemptor, victim in pairs if (victim, preemptor) in pairs}
        pod_sets = [part for key in in_turn for part in self.observed.workloads[key].pod_sets]
        shrinks = any(part.min_count is not None for part in pod_sets)
        crossed = any(
            preemptor != behind and (preemptor, left) in pairs and (behind, other) in pairs
            for preemptor, other in self.overtaken
            for behind, left in self.overtaken
        )
        circles = bool(pairs & self.came_back) or any(
            (preemptor, victim) in pairs and (victim, other) in pairs
            for preemptor, other in self.overtaken
            for _, victim in pairs
        )
        fair = self.observed.settings.fair_sharing is not None
        return (
            shrinks
            or self.one_takes_back(last)
            or self.takes_its_turn_back(pairs)
            or (self.in_line and (fair or circles or crossed))
        )

    def takes_its_turn_back(self, pairs: Iterable[tuple[ObjectKey, ObjectKey]]) -> bool:
        """Whether a victim has its turn before its preemptor in the StrictFIFO queue of both."""
        cluster_queues = self.observed.cluster_queues
        return any(
            pair in self.back_first
            and (name := self.cluster_queue_of(pair[0])) is not None
            and self.share_a_queue(*pair)
            and cluster_queues[name].usage_based_admission
            for pair in pairs
        )

    def one_takes_back(self, last: list[Preemption]) -> bool:
        """Whether of several of a ClusterQueue who leave for those that borrow, one takes that back.

        It is preempted again by whom it preempted, or by one for whom that one was in the way.
        """
        reclaimed = {
            (each.victim, each.preemptor)
            for each in last
            if each.reason is PreemptionReason.IN_COHORT_RECLAMATION
        }
        made_room = {
            (each.preemptor, each.victim)
            for each in last
            if each.reason is PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
        }
        pairs = {(each.preemptor, each.victim) for each in last}
        return any(
            len({other for _, other in made_room if self.share_a_queue(victim, other)}) > 1
            and any((borrower, victim) in made_room for borrower in led_to(preemptor, pairs))
            for preemptor, victim in reclaimed
        )

    def share_a_queue(self, one: ObjectKey, other: ObjectKey) -> bool:
        """Whether two workloads are of one ClusterQueue."""
        return self.cluster_queue_of(one) == self.cluster_queue_of(other)

    def cluster_queue_of(self, key: ObjectKey) -> str | None:
        """The ClusterQueue that a workload's LocalQueue leads to."""
        name = ObjectKey(key.namespace, self.observed.workloads[key].queue_name)
        queue = self.observed.local_queues.get(name)
        return None if queue is None else queue.cluster_queue

    def may_leave_twice(self, again: Preemption) -> bool:
        """Whether somebody may have to leave twice for one who waits.

        It was beaten over what was freed, or not tried, behind the first of a StrictFIFO queue, when that was
        taken back.
        """
        if (again.preemptor, again.victim) in self.back_first:
            return True
        beaten = any(key == again.preemptor for key, _ in self.overtaken | self.came_back)
        return self.in_line and (beaten or self.observed.settings.fair_sharing is not None)

    @property
    def in_line(self) -> bool:
        """Whether preemptors wait for their turn like everybody else."""
        return not self.observed.settings.gates.prioritize_preemptor_workloads

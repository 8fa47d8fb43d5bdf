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
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.instructions import (
    Instruction,
    Preempt,
    PreemptionReason,
    RefreshLocalQueue,
    ReserveQuota,
)
from admitq.core.model import SECOND, Instant, ObjectKey, Workload
from admitq.core.settings import Settings
from admitq.core.state import AdmissionState
from tests.laws.comparison import check_second_passes, compare
from tests.laws.heads import taken_heads, used_by_local_queues
from tests.laws.law import REFRESHES, decisions, floats_in, has_refused_in_part, law, reordered, told
from tests.laws.reference.cycle import Cycle, Head, Outcome, Preemption
from tests.laws.reference.observed import Assumed, Observed
from tests.laws.reference.preemption import Used
from tests.laws.reference.second_pass import SecondPasses
from tests.laws.rest import AtRest
from tests.laws.statuses import StatusLaws
from tests.laws.strict_queues import StrictQueues
from tests.laws.termination import Termination, left_twice

MOST_CYCLES = 1000
"""Cycles after which a world that is not at rest is one that spins.

Two workloads that are woken once, and whose podsets go on to other flavors in turn, take more than 250.
"""


class Attempts:
    """When workloads were tried, and when they took quota."""

    def __init__(self) -> None:
        self.tried: dict[ObjectKey, tuple[str, dict[tuple[str, str], int]]] = {}
        self.tried_in: dict[object, int] = {}
        """By ClusterQueue and shape, the cycle in which one of it was last tried."""
        self.taken_in = 0
        """The cycle in which quota was last taken."""
        self.took_in: dict[str, int] = {}
        """By uid, the cycle in which a workload took quota."""
        self.began_further: set[ObjectKey] = set()
        """Workloads of which the last attempt began behind the first flavor."""
        self.lost: set[ObjectKey] = set()
        """Workloads that lost a flavor to another head since their scan of flavors began."""


class Player:
    """One history, being played."""

    def __init__(self, settings: Settings, *, crowded: bool, watches_statuses: bool) -> None:
        self.crowded = crowded
        self.watches_statuses = watches_statuses
        self.core = AdmissionState(settings)
        self.twin: AdmissionState | None = None
        self.refuse_alike = True
        """Whether the core and its twin refuse in the same calls: no refusals were refreshed in part."""
        self.observed = Observed(settings)
        self.now: Instant = 1000 * SECOND
        self.uids = 0
        self.told_to_stop: dict[ObjectKey, str] = {}
        """Preemptions that nobody has answered: the uid by workload."""
        self.preemptors: dict[str, tuple[str, int]] = {}
        """By ClusterQueue, uid and generation of who waits for victims."""
        self.displaced: dict[ObjectKey, set[str]] = {}
        """By workload, uids of those who were to leave for it since it began to wait."""
        self.waits_since: dict[ObjectKey, object] = {}
        """By workload that others were to leave for, where and as what it waited then."""
        self.told = 0
        self.before_batch: AdmissionState | None = None
        self.batch: list[tuple[Event, Instant]] = []
        self.preemptions: list[Preemption] = []
        self.used: Mapping[ObjectKey, Used] | None = None
        """What LocalQueues used when cycles were last asked for."""
        self.cycles = 0
        self.attempts = Attempts()
        self.termination = Termination(self)
        self.rest = AtRest(self)
        self.statuses = StatusLaws(self)
        self.strict = StrictQueues(self)
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
            otherwise = self.twin.handle(event, now=self.now)
            self.refuse_alike = self.refuse_alike and not self.has_refused_in_part()
            same = told(otherwise, with_refusals=self.refuse_alike)
            expected = told(instructions, with_refusals=self.refuse_alike)
            law(same == expected, "D1: a restored state decides otherwise", same, expected)
        law(not floats_in(instructions), "S6: a float is handed out", instructions)
        self.told += 1
        if self.watches_statuses:
            self.statuses.asked.update(each for each in instructions if isinstance(each, REFRESHES))
            # Every status is read each time, which is much.
            if self.told % 3 == 0:
                self.statuses.check_refreshes()
        return instructions

    def has_refused_in_part(self) -> bool:
        """Whether the core or its twin refreshed some of the outdated refusals and not yet all."""
        return any(has_refused_in_part(each) for each in (self.core, self.twin) if each is not None)

    def send(self, event: Event) -> None:
        """Something happened other than a request for cycles."""
        if self.before_batch is not None:
            self.batch.append((event, self.now))
        self.observed.observe(event, self.now)
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
            if not heads and (limit is not None or not self._is_cycle_due()):
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
            self.rest.check_rest(draw)

    def _is_cycle_due(self) -> bool:
        """Whether the core asks for a cycle at once: without heads, to go on refreshing refusals."""
        due = self.core.next_wakeup(self.now)
        return due is not None and due <= self.now

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
        self.strict.check_strict_heads(heads)
        self.cycles += 1
        for head in heads:
            self.check_head(head)
            if draw.random() < 0.1:
                self.check_nobody_is_overtaken(head)
        cycle = Cycle(self.observed, self.now, self.used)
        check_second_passes([(each, cycle.second_pass(each.key)) for each in turns], instructions)
        outcome = cycle.run(heads)
        self.halted = self.halted or "PodsNotReady" in outcome.refusals.values()
        compare(self.observed, outcome, instructions)
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
            self.rest.check_not_forgotten(head.queue, key)

    def check_head(self, head: Head) -> None:
        """Only who waits where he is taken is tried, and goes on where he stopped."""
        observed, key = self.observed, head.key
        law(observed.waits_in(key) == head.queue, "S3: a head does not wait there", head)
        law(not observed.is_kept_back(key, self.now), "a head is kept back", head)
        law(observed.is_active(head.queue), "a head of a ClusterQueue that is not active", head)
        uid, tried = self.attempts.tried.get(key, ("", {}))
        recorded = tried if uid == observed.workloads[key].uid else {}
        law(head.start in ({}, recorded), "a scan goes on where none stopped", head, recorded)

    def take_over(self, outcome: Outcome, instructions: list[Instruction], heads: list[Head]) -> None:
        """Count what was decided, and check it against what there was."""
        observed = self.observed
        held = observed.tree()
        taking = {each.key: each.uid for each in instructions if isinstance(each, ReserveQuota)}
        for preemptor, uids in self.displaced.items():
            back = {(preemptor, key) for key, uid in taking.items() if uid in uids}
            if back and self.is_behind_the_first(preemptor):
                self.termination.back_first |= back
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
                self.attempts.taken_in = self.attempts.took_in[each.uid] = self.cycles
                self.attempts.tried.pop(each.key, None)
            if isinstance(each, Preempt):
                law(observed.admission(each.key) is not None, "preempts one that holds nothing", each)
                law(each.uid == observed.workloads[each.key].uid, "preempts a former workload", each)
                observed.preempting.add(each.key)
                self.told_to_stop[each.key] = each.uid
                self.preemptions.append(Preemption(each.key, each.preemptor, each.reason))
        for head in heads:
            self.attempts.tried_in[head.queue, self.shape(head.key)] = self.cycles
            (self.attempts.began_further.add if head.start else self.attempts.began_further.discard)(head.key)
            uid = observed.workloads[head.key].uid
            if head.key in outcome.refusals:
                self.attempts.tried[head.key] = (uid, outcome.tried.get(head.key, {}))
            if head.key in outcome.waiting_for_victims:
                self.preemptors[head.queue] = (uid, observed.workloads[head.key].generation)
            if not head.start:
                self.attempts.lost.discard(head.key)
            if outcome.refusals.get(head.key) == "TakenInThisCycle":
                self.attempts.lost.add(head.key)
            if head.key in outcome.refusals and head.key in self.attempts.lost and head.displaced:
                for key, _ in outcome.reservations:
                    if any(each.key == key and each.is_preemptor for each in heads):
                        self.termination.lost_to_preemptor.add(head.key)
                    left = observed.workloads[key].uid in head.displaced
                    (self.termination.came_back if left else self.termination.overtaken).add((head.key, key))
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

    def restart(self) -> None:
        """Go on beside a state restored from a dump, through text."""
        dumped = json.loads(json.dumps(self.core.to_dict()))
        law(not floats_in(dumped), "S6: a float is in a dump")
        self.twin = AdmissionState.from_dict(dumped)
        self.refuse_alike = not self.has_refused_in_part()
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
        self.termination.overtaken.clear()
        self.termination.came_back.clear()
        self.termination.back_first.clear()
        self.termination.lost_to_preemptor.clear()
        is_settled = self.answer_everything(draw)
        since = self.preemptions[begin:]
        law(
            is_settled or self.termination.need_not_end(since[-12:]),
            "L3: preemptions do not end",
            since[-12:],
        )
        for each in left_twice(since):
            law(self.termination.may_leave_twice(each), "L3: left for it before, while it waited", each)

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

"""Send events to the core, to a twin restored from a dump, and to the model, and check the laws.

=====  ======================================================================================================
law    says
=====  ======================================================================================================
S1     a reservation takes no more than is available at any node; a replacement and its original together
       count with all that the replacement is assigned
S2     the core's accounts equal a recomputation from the observations (``validate``, and the model)
S3     a workload is in one place
S5     a finished or inactive workload is not admitted, nor one that holds quota already
S6     no instruction or dump contains a float
D1     a restored state, another order of events and cycles run one by one give the same decisions
C13    the first of a StrictFIFO queue is in every cycle of its tree, and in one after each reservation
Q1     the positions of pending workloads have the order in which their ClusterQueue gives its heads
A1     the explanation of a pending workload agrees with the model, and the end of a named holder frees quota
A2     changes that are named for a pending workload give it quota
A3     hypothetical events lead to the admissions that the answer names, and asking changes nothing
L1     no pending workload would be admitted, or could preempt, if it were retried
L2     a blocked queue blocks no other; this follows from L1
L3     without changes from outside preemptions end, and no victim is hit twice for one waiting workload
model  each cycle decides over its heads and second passes as the reference model does
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
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState
from tests.laws.comparison import check_second_passes, compare_cycle
from tests.laws.heads import local_queue_usage, record_cycles
from tests.laws.law import (
    REFRESHES,
    check_law,
    comparable_instructions,
    contains_float,
    has_partly_refreshed_refusals,
    select_decisions,
    shuffle_between_objects,
)
from tests.laws.reference.cycle import Cycle, Head, Outcome, Preemption
from tests.laws.reference.observed import Assumed, Observed
from tests.laws.reference.preemption import Used
from tests.laws.reference.second_pass import SecondPasses
from tests.laws.rest import AtRest
from tests.laws.statuses import StatusLaws
from tests.laws.strict_queues import StrictQueues
from tests.laws.termination import Termination, repeated_preemptions

MOST_CYCLES = 1000
"""If the core is not at rest after so many cycles, it spins.

Two workloads that are woken once, and whose podsets continue with other flavors in turn, take more than 250.
"""


class Attempts:
    """When workloads were evaluated, and when they reserved quota."""

    def __init__(self) -> None:
        self.tried: dict[ObjectKey, tuple[str, dict[tuple[str, str], int]]] = {}
        self.evaluated_in: dict[object, int] = {}
        """By ClusterQueue and scheduling key, the cycle that last evaluated a workload with it."""
        self.last_reservation_in = 0
        """The cycle of the last reservation."""
        self.reserved_in: dict[str, int] = {}
        """By uid, the cycle in which a workload reserved quota."""
        self.began_in_later_flavor: set[ObjectKey] = set()
        """Workloads with a last scan that began in a later flavor than the first."""
        self.lost: set[ObjectKey] = set()
        """Workloads that lost a flavor to another head since their scan of flavors began."""


class Player:
    """Plays one history."""

    def __init__(self, settings: CoreSettings, *, crowded: bool, watches_statuses: bool) -> None:
        self.crowded = crowded
        self.watches_statuses = watches_statuses
        self.core = AdmissionState(settings)
        self.twin: AdmissionState | None = None
        self.compares_refusals = True
        """Whether the core and its twin must refuse in the same calls: neither refreshed only a part of its
        refusals.
        """
        self.observed = Observed(settings)
        self.now: Instant = 1000 * SECOND
        self.uids = 0
        self.requested_preemptions: dict[ObjectKey, str] = {}
        """Preemptions without an answer: the uid by workload."""
        self.preemptors: dict[str, tuple[str, int]] = {}
        """By ClusterQueue, uid and generation of the workload that waits for preemption."""
        self.preempted_uids: dict[ObjectKey, set[str]] = {}
        """By workload, uids of the workloads that were preempted for it since it began to wait."""
        self.waiting_places: dict[ObjectKey, object] = {}
        """By preemptor, where and with which generation it waited when others were preempted for it."""
        self.handled_events = 0
        self.before_batch: AdmissionState | None = None
        self.batch: list[tuple[Event, Instant]] = []
        self.preemptions: list[Preemption] = []
        self.used: Mapping[ObjectKey, Used] | None = None
        """Past usage of LocalQueues in the last cycle."""
        self.cycles = 0
        self.attempts = Attempts()
        self.termination = Termination(self)
        self.rest = AtRest(self)
        self.statuses = StatusLaws(self)
        self.strict = StrictQueues(self)
        self.second_passes = SecondPasses()
        self.halted = False
        """Whether admission waits for ready pods: then no workload is evaluated, not even to preempt."""

    def uid(self) -> str:
        """Return a new uid. Uids are not in the order of creation."""
        self.uids += 1
        return f"{(self.uids * 7919) % 1000:03}-{self.uids}"

    # --- events -----------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Instruction]:
        """Pass an event to the core and its twin, and check that both return the same."""
        instructions = self.core.handle(event, now=self.now)
        if self.twin is not None:
            otherwise = self.twin.handle(event, now=self.now)
            self.compares_refusals = self.compares_refusals and not self.has_partly_refreshed_refusals()
            same = comparable_instructions(otherwise, with_refusals=self.compares_refusals)
            expected = comparable_instructions(instructions, with_refusals=self.compares_refusals)
            check_law(same == expected, "D1: a restored state decides something else", same, expected)
        check_law(not contains_float(instructions), "S6: an instruction contains a float", instructions)
        self.handled_events += 1
        if self.watches_statuses:
            self.statuses.refreshed.update(each for each in instructions if isinstance(each, REFRESHES))
            # The check reads every status, which is expensive.
            if self.handled_events % 3 == 0:
                self.statuses.check_refreshes()
        return instructions

    def has_partly_refreshed_refusals(self) -> bool:
        """Whether the core or its twin refreshed only a part of the outdated refusals."""
        return any(has_partly_refreshed_refusals(each) for each in (self.core, self.twin) if each is not None)

    def send(self, event: Event) -> None:
        """Send an event other than a request for cycles."""
        if self.before_batch is not None:
            self.batch.append((event, self.now))
        self.observed.observe(event, self.now)
        self.halted = self.halted and self.observed.waits_for_pods()
        instructions = self.handle(event)
        check_law(
            not any(isinstance(each, (ReserveQuota, Preempt)) for each in instructions),
            "decided without a cycle",
            instructions,
        )
        self.discard_outdated_preemptions()
        if isinstance(event, (happened.WorkloadChanged, happened.WorkloadDeleted)):
            self.second_passes.observe(self.observed, self.now)
        self.discard_outdated_preemptors()

    def observe_again(self, event: Event) -> None:
        """Check that a repeated observation returns nothing, except for past usage whose sampling is due."""
        due = self.core.next_wakeup(self.now)
        instructions = self.handle(event)
        if due is not None and due <= self.now and self.used is not None:
            instructions = [each for each in instructions if not isinstance(each, RefreshLocalQueue)]
        check_law(not instructions, "a repeated observation returns instructions", event, instructions)

    def discard_outdated_preemptions(self) -> None:
        """Discard requested preemptions of workloads that hold no quota any more."""
        for key, uid in list(self.requested_preemptions.items()):
            workload = self.observed.workloads.get(key)
            if workload is None or workload.uid != uid or self.observed.admission(key) is None:
                del self.requested_preemptions[key]

    def discard_outdated_preemptors(self) -> None:
        """Discard preemptors that left their queue."""
        observed = self.observed
        waiting = {(observed.waits_in(key), workload.uid) for key, workload in observed.workloads.items()}
        for name, (uid, _) in list(self.preemptors.items()):
            if (name, uid) not in waiting:
                del self.preemptors[name]
        for key in list(self.preempted_uids):
            if key not in observed.workloads or self.place(key) != self.waiting_places[key]:
                del self.preempted_uids[key]

    def place(self, key: ObjectKey) -> object:
        """Return where a workload waits, and with which uid and generation."""
        workload = self.observed.workloads[key]
        return (self.observed.waits_in(key), workload.queue_name, workload.uid, workload.generation)

    def observe_workload(self, workload: Workload, **changes: Any) -> None:
        """Send the change of a workload."""
        self.send(happened.WorkloadChanged(replace(workload, **changes)))

    # --- cycles -----------------------------------------------------------------------------------

    def run_cycles(self, limit: int | None, draw: random.Random) -> None:
        """Run cycles one by one, and compare each with the model."""
        apart = self.core.fork() if draw.random() < 0.15 else None  # before the first cycle
        other = self.before_batch
        decided: list[Instruction] = []
        for _ in range(MOST_CYCLES if limit is None else limit):
            heads, instructions = self.cycle(draw)
            decided += select_decisions(instructions)
            if not heads and (limit is not None or not self._is_cycle_due()):
                break
        else:
            check_law(limit is not None, f"R1: not at rest after {MOST_CYCLES} cycles")
        if apart is not None:
            together = select_decisions(apart.handle(happened.CyclesRequested(limit), now=self.now))
            check_law(
                sorted(map(repr, together)) == sorted(map(repr, decided)),
                "D1: several cycles in one call decide something else than one by one",
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
        """Whether the core asks for a cycle at once, without heads, to refresh further refusals."""
        due = self.core.next_wakeup(self.now)
        return due is not None and due <= self.now

    def check_other_order(
        self, other: AdmissionState, limit: int | None, decided: list[Instruction], seed: int
    ) -> None:
        """Check that the order of events on different objects between two calls does not matter."""
        instants = {id(event): at for event, at in self.batch}
        if len(set(instants.values())) > 1:
            return
        for event in shuffle_between_objects([event for event, _ in self.batch], seed):
            other.observe(event, now=instants[id(event)])
        otherwise = select_decisions(other.handle(happened.CyclesRequested(limit), now=self.now))
        check_law(
            sorted(map(repr, otherwise)) == sorted(map(repr, decided)),
            "D1: decisions depend on the order of events on different objects",
            otherwise,
            decided,
        )

    def cycle(self, draw: random.Random) -> tuple[list[Head], list[Instruction]]:
        """Run one cycle and compare it with the model."""
        turns = [] if self.halted else self.second_passes.take_due(self.now)
        with record_cycles(self.preemptors, self.preempted_uids) as cycles:
            instructions = self.handle(happened.CyclesRequested(1))
        heads, self.used = cycles[0] if cycles else ([], local_queue_usage(self.core))
        check_law(not (heads and self.halted), "evaluates heads while admission waits for pods", heads)
        self.strict.check_first_workloads_take_part(heads)
        self.cycles += 1
        for head in heads:
            self.check_head(head)
            if draw.random() < 0.1:
                self.check_not_overtaken(head)
        cycle = Cycle(self.observed, self.now, self.used)
        check_second_passes([(each, cycle.second_pass(each.key)) for each in turns], instructions)
        outcome = cycle.run(heads)
        self.halted = self.halted or "PodsNotReady" in outcome.refusals.values()
        compare_cycle(self.observed, outcome, instructions)
        self.apply_outcome(outcome, instructions, heads)
        return heads, instructions

    def candidates_in_order(self, name: str) -> list[ObjectKey]:
        """Return the workloads of a ClusterQueue that a cycle may evaluate, in queue order."""
        observed = self.observed
        waiting = observed.waiting(name, self.now)
        if self.used is not None and observed.cluster_queues[name].usage_based_admission:
            used = self.used
            waiting.sort(key=lambda key: used[ObjectKey(key.namespace, observed.workloads[key].queue_name)])
        return waiting

    def check_not_overtaken(self, head: Head) -> None:
        """Check that no workload before a head in its queue would get anything."""
        waiting = self.candidates_in_order(head.queue)
        if head.key not in waiting or head.is_preemptor:
            return
        before = waiting[: waiting.index(head.key)]
        check_law(
            not before or not self.observed.is_strict(head.queue),
            "a head overtakes in a StrictFIFO queue",
            head,
        )
        for key in {self.scheduling_key(key): key for key in before}.values():
            self.rest.check_not_missed(head.queue, key)

    def check_head(self, head: Head) -> None:
        """Check that a head may be evaluated, and that its scan continues where the last one stopped."""
        observed, key = self.observed, head.key
        check_law(observed.waits_in(key) == head.queue, "S3: a head does not wait in this ClusterQueue", head)
        check_law(not observed.is_held_back(key, self.now), "a head is held back", head)
        check_law(observed.is_active(head.queue), "a head of a ClusterQueue that is not active", head)
        uid, tried = self.attempts.tried.get(key, ("", {}))
        recorded = tried if uid == observed.workloads[key].uid else {}
        check_law(head.start in ({}, recorded), "a scan continues where none stopped", head, recorded)

    def apply_outcome(self, outcome: Outcome, instructions: list[Instruction], heads: list[Head]) -> None:
        """Record the decisions of a cycle, and check them against what was observed."""
        observed = self.observed
        held = observed.tree()
        taking = {each.key: each.uid for each in instructions if isinstance(each, ReserveQuota)}
        for preemptor, uids in self.preempted_uids.items():
            back = {(preemptor, key) for key, uid in taking.items() if uid in uids}
            if back and self.is_not_first_of_strict_queue(preemptor):
                self.termination.victim_returned_first |= back
        for each in instructions:
            if isinstance(each, ReserveQuota):
                self.check_reservation(each)
                observed.assumed[each.key] = Assumed(each.admission, self.now, each.admit)
                holder = observed.holder(each.key)
                assert holder is not None, "the workload holds quota now"
                check_law(held.fits(holder.queue, holder.usage), "S1: reserves more than is available", each)
                held.add(holder.queue, holder.usage)
                if observed.replacement(each.key) is not None:
                    held = observed.tree()  # The replacement uses less now.
                self.attempts.last_reservation_in = self.attempts.reserved_in[each.uid] = self.cycles
                self.attempts.tried.pop(each.key, None)
            if isinstance(each, Preempt):
                check_law(
                    observed.admission(each.key) is not None, "preempts a workload that holds nothing", each
                )
                check_law(each.uid == observed.workloads[each.key].uid, "preempts a former workload", each)
                observed.preempting.add(each.key)
                self.requested_preemptions[each.key] = each.uid
                self.preemptions.append(Preemption(each.key, each.preemptor, each.reason))
        for head in heads:
            self.attempts.evaluated_in[head.queue, self.scheduling_key(head.key)] = self.cycles
            (
                self.attempts.began_in_later_flavor.add
                if head.start
                else self.attempts.began_in_later_flavor.discard
            )(head.key)
            uid = observed.workloads[head.key].uid
            if head.key in outcome.refusals:
                self.attempts.tried[head.key] = (uid, outcome.tried.get(head.key, {}))
            if head.key in outcome.waiting_for_victims:
                self.preemptors[head.queue] = (uid, observed.workloads[head.key].generation)
            if not head.start:
                self.attempts.lost.discard(head.key)
            if outcome.refusals.get(head.key) == "QuotaTakenInCycle":
                self.attempts.lost.add(head.key)
            if head.key in outcome.refusals and head.key in self.attempts.lost and head.preempted_uids:
                for key, _ in outcome.reservations:
                    if any(each.key == key and each.is_preemptor for each in heads):
                        self.termination.lost_to_preemptor.add(head.key)
                    left = observed.workloads[key].uid in head.preempted_uids
                    (self.termination.victim_returned if left else self.termination.overtaken).add(
                        (head.key, key)
                    )
        for key, uids in outcome.preempted_uids.items():
            self.preempted_uids.setdefault(key, set()).update(uids)
            self.waiting_places[key] = self.place(key)
        self.discard_outdated_preemptors()

    def is_not_first_of_strict_queue(self, key: ObjectKey) -> bool:
        """Whether a workload is not evaluated because another is the first of its StrictFIFO queue."""
        name = self.observed.waits_in(key)
        return (
            name is not None and self.observed.is_strict(name) and key in self.candidates_in_order(name)[1:]
        )

    def check_reservation(self, decided: ReserveQuota) -> None:
        """Check that an admitted workload may be admitted, and that no admission check was skipped."""
        observed, key = self.observed, decided.key
        workload, name = observed.workloads[key], decided.admission.cluster_queue
        check_law(decided.uid == workload.uid, "reserves for a former workload", decided)
        check_law(
            workload.active and not workload.finished, "S5: admits an inactive or finished workload", decided
        )
        flavors = {flavor for part in decided.admission.pod_set_assignments for _, flavor in part.flavors}
        outstanding = observed.outstanding_checks(key, name, flavors)
        check_law(decided.admit == (not outstanding), "admits with checks outstanding", decided, outstanding)

    def scheduling_key(self, key: ObjectKey) -> object:
        """Return the scheduling key: workloads with the same key get nearly the same decisions."""
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
        """Restore a state from a dump, as text, and play on beside it."""
        dumped = json.loads(json.dumps(self.core.to_dict()))
        check_law(not contains_float(dumped), "S6: a dump contains a float")
        self.twin = AdmissionState.from_dict(dumped)
        self.compares_refusals = not self.has_partly_refreshed_refusals()
        self.twin.validate()
        check_law(self.twin.to_dict() == dumped, "D1: a restored state has another dump")

    # --- answers ----------------------------------------------------------------------------------

    def workloads_with_quota(self, which: Callable[[Workload], bool] = lambda _: True) -> list[ObjectKey]:
        """Return the workloads that are observed to hold quota."""
        return sorted(
            key
            for key, workload in self.observed.workloads.items()
            if workload.admission is not None and not workload.finished and which(workload)
        )

    def replaced_workloads(self) -> list[ObjectKey]:
        """Return workloads that hold quota although their replacement has an observed reservation."""
        observed = self.observed
        heirs = {key: observed.replacement(key) for key in self.workloads_with_quota()}
        return [key for key, heir in heirs.items() if heir and observed.workloads[heir].admission is not None]

    def observe_smaller_assignment(self, key: ObjectKey) -> None:
        """Observe that a workload's assignment lost the pods by which its job shrank."""
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
        self.observe_workload(workload, admission=replace(workload.admission, pod_set_assignments=parts))

    def write_reservation(self, key: ObjectKey) -> None:
        """Observe a decided reservation."""
        self.send(happened.WorkloadChanged(self.observed.answered(key)))

    def evict(self, key: ObjectKey) -> None:
        """Observe the eviction of a preempted workload, if its reservation was observed."""
        workload = self.observed.workloads[key]
        if workload.admission is not None:
            self.requested_preemptions.pop(key, None)
            evicted_at = self.now // SECOND * SECOND
            queued_at = self.queue_time_after_eviction(workload)
            self.observe_workload(workload, evicted=True, evicted_at=evicted_at, queued_at=queued_at)

    def queue_time_after_eviction(self, workload: Workload) -> Instant:
        """Return the queue-order timestamp of a victim (semantics, Ordering).

        If cycles ignore priorities between queues, a victim of a borrowing preemptor is queued behind it.
        Otherwise the victim would reserve again what it freed.
        """
        last = next((each for each in reversed(self.preemptions) if each.victim == workload.key), None)
        while_borrowing = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
        if self.observed.settings.gates.priority_sorting_within_cohort or last is None:
            return workload.queued_at
        return self.now + SECOND // 1000 if last.reason is while_borrowing else workload.queued_at

    def observe_stopped(self, key: ObjectKey) -> None:
        """Observe that the job of an evicted workload has stopped: it holds nothing any more."""
        self.observe_workload(self.observed.workloads[key], admission=None, admitted=False, reserved_at=0)

    def settle(self, draw: random.Random) -> None:
        """Carry out all requests of the core, without other changes, until it requests nothing."""
        begin = len(self.preemptions)
        self.termination.overtaken.clear()
        self.termination.victim_returned.clear()
        self.termination.victim_returned_first.clear()
        self.termination.lost_to_preemptor.clear()
        is_settled = self.answer_everything(draw)
        since = self.preemptions[begin:]
        check_law(
            is_settled or self.termination.may_continue(since[-12:]),
            "L3: preemptions do not end",
            since[-12:],
        )
        for each in repeated_preemptions(since):
            check_law(self.termination.may_repeat(each), "L3: preempted twice for one waiting workload", each)

    def answer_everything(self, draw: random.Random) -> bool:
        """Carry out all requests; return whether that came to an end."""
        for _ in range(60):
            self.run_cycles(None, draw)
            busy = bool(self.observed.assumed or self.requested_preemptions)
            for key in sorted(self.observed.assumed):
                self.write_reservation(key)
            for key in sorted(self.requested_preemptions):
                self.evict(key)
            for key in self.replaced_workloads():
                self.observe_workload(self.observed.workloads[key], finished=True)
                busy = True
            for key in self.workloads_with_quota(lambda workload: workload.evicted):
                self.observe_stopped(key)
                busy = True
            if not busy:
                return True
        return False

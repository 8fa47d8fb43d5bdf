"""Law A3: hypothetical events lead to the admissions that the answer names, and asking changes nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from admitq.core import events as happened
from admitq.core.asking.branch import copying_branch
from admitq.core.asking.execution import EndlessDecisionsError
from admitq.core.asking.what_if import what_if
from admitq.core.events import Event
from admitq.core.instructions import Instruction, Preempt, PreemptionReason, ReserveQuota
from admitq.core.model import (
    SECOND,
    Admission,
    CheckState,
    ClusterQueue,
    Instant,
    LocalQueue,
    ObjectKey,
    StopPolicy,
    Workload,
)
from admitq.core.state import AdmissionState
from tests.laws.drawing import COHORTS, FLAVORS, LOCAL_QUEUES, QUEUES, WORKLOADS, Draw
from tests.laws.law import check_law

if TYPE_CHECKING:
    from tests.laws.player import Player

MOST_ROUNDS = 200
"""How many times the manager of a check carries decisions out. Few histories come to no end."""

Admissions = dict[ObjectKey, Admission]


def check_what_if(player: "Player", draw: Draw) -> None:
    """Check the answer to a question about some hypothetical events."""
    core, now = player.core, player.now
    events = [event for _ in range(draw.randint(1, 3)) for event in _draw_change(player, draw)]
    dumped = core.to_dict()
    branch = copying_branch(core)
    try:
        found = branch(partial(what_if, events=events, now=now, branch=branch))
    except EndlessDecisionsError:
        found = None
    check_law(core.to_dict() == dumped, "A3: asking changes the state", *events)
    before, after = (_Manager(core.fork(), now).run(observed) for observed in ((), events))
    if found is None or before is None or after is None:
        check_law(found is None or before is None or after is None, "A3: decisions end nowhere", *events)
        return
    lost = before.keys() - after.keys()
    check_law(found.admitted == _only(after, after.keys() - before.keys()), "A3: others are admitted", found)
    check_law(
        {*found.stopped, *found.not_admitted} == lost and not set(found.stopped) & set(found.not_admitted),
        "A3: others lose their quota",
        found,
        lost,
    )
    changed = {
        key: (before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key]
    }
    check_law(found.reassigned == changed, "A3: others get another admission", found, changed)


def _only(admissions: Admissions, keys: Iterable[ObjectKey]) -> Admissions:
    return {key: admissions[key] for key in keys}


# --- hypothetical events --------------------------------------------------------------------------------


def _draw_change(player: "Player", draw: Draw) -> Sequence[Event]:
    """Return the events of one hypothetical change."""
    observed = player.observed
    queue = observed.cluster_queues.get(draw.choice(QUEUES))
    local_queue = observed.local_queues.get(draw.choice(LOCAL_QUEUES))
    key = draw.choice(WORKLOADS)
    workload = observed.workloads.get(key)
    created = happened.WorkloadChanged(draw.workload(key, f"hypothetical-{key.name}", player.now))
    choices: list[Sequence[Event]] = [[created] if workload is None else []]
    if workload is not None and not workload.finished:
        raised = replace(workload, priority=workload.priority + draw.choice((1, 2, -1)))
        choices += [[happened.WorkloadDeleted(key, workload.uid)], [happened.WorkloadChanged(raised)]]
    if queue is not None:
        fresh = draw.cluster_queue(queue.name, player.now)
        choices += [
            [happened.ClusterQueueChanged(replace(queue, **{part: getattr(fresh, part)}))]
            for part in ("resource_groups", "cohort", "preemption", "stop_policy", "fair_weight")
        ]
    if local_queue is not None:
        policy = draw.choice((StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN, StopPolicy.NONE))
        choices.append([happened.LocalQueueChanged(replace(local_queue, stop_policy=policy))])
    choices += [
        [happened.CohortChanged(draw.cohort(draw.choice(COHORTS)))],
        [happened.ResourceFlavorChanged(draw.flavor(draw.choice(FLAVORS)))],
        [happened.ResourceFlavorDeleted(draw.choice(FLAVORS))],
    ]
    return draw.choice(choices)


# --- the manager ----------------------------------------------------------------------------------------


class _Manager:
    """A manager whose writes succeed at once, with jobs that stop at once and pods that are ready at once.

    It is written without the code that answers questions.
    """

    def __init__(self, state: AdmissionState, now: Instant) -> None:
        self._state = state
        self._now = now
        self._changes_order = not state.queries.world.settings.gates.priority_sorting_within_cohort

    def run(self, events: Iterable[Event]) -> Admissions | None:
        """Observe events, and run cycles until nothing is decided.

        Returns:
            The admissions of the workloads that hold quota; None if the decisions do not end.
        """
        world = self._state.queries.world
        self._write_what_is_in_progress()
        for event in events:
            self._state.observe(event, now=self._now)
            match event:
                case happened.ClusterQueueChanged(queue) | happened.LocalQueueChanged(queue):
                    self._drain(queue)
                case _:
                    pass
        for _ in range(MOST_ROUNDS):
            due = self._state.next_wakeup(self._now)
            if due is None or due > self._now:
                break
            decisions = self._state.handle(happened.CyclesRequested(), now=self._now)
            if not sum(map(self._write, decisions)):
                break
        else:
            return None
        self._state.instructions()  # Those of observations request no decisions.
        self._state.validate()
        return {
            key: entry.workload.admission
            for key, entry in world.workloads.items()
            if entry.held is not None and entry.workload.admission is not None
        }

    def _write_what_is_in_progress(self) -> None:
        for entry in list(self._state.queries.world.workloads.values()):
            assumed = entry.assumed
            if assumed is not None and entry.workload.admission is None:
                self._change(
                    entry.workload,
                    admission=assumed.admission,
                    reserved_at=assumed.reserved_at,
                    evicted=False,
                    admitted=assumed.admit,
                    pods_ready=assumed.admit,
                )
            workload = entry.workload
            if (
                entry.admission is not None
                and not workload.finished
                and (workload.evicted or entry.is_leaving)
            ):
                self._evict(entry.workload, entry.preempting)

    def _write(self, decision: Instruction) -> bool:
        """Carry a decision out; return whether it is one."""
        workloads = self._state.queries.world.workloads
        match decision:
            case ReserveQuota():
                workload = self._change(
                    workloads[decision.key].workload,
                    admission=decision.admission,
                    reserved_at=self._now // SECOND * SECOND,
                    evicted=False,
                    admitted=decision.admit,
                    pods_ready=decision.admit,
                )
                if not decision.admit:
                    queue = self._state.queries.world.cluster_queues[decision.admission.cluster_queue].spec
                    ready = sorted((rule.name, CheckState.READY) for rule in queue.admission_checks)
                    self._change(workload, admission_checks=tuple(ready), admitted=True, pods_ready=True)
                if decision.replaces is not None and decision.replaces in workloads:
                    self._change(workloads[decision.replaces].workload, finished=True)
            case Preempt():
                self._evict(workloads[decision.key].workload, decision)
            case _:
                return False
        return True

    def _evict(self, workload: Workload, preemption: Preempt | None) -> None:
        evicted = self._change(workload, evicted=True, evicted_at=self._now // SECOND * SECOND)
        queued_at = workload.queued_at
        borrower = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
        if self._changes_order and preemption is not None and preemption.reason is borrower:
            queued_at = self._now // SECOND * SECOND + SECOND // 1000
        self._change(
            evicted,
            admission=None,
            reserved_at=0,
            admitted=False,
            pods_ready=False,
            admission_checks=(),
            queued_at=queued_at,
        )

    def _drain(self, queue: ClusterQueue | LocalQueue) -> None:
        """Stop the workloads of a stopped queue."""
        if queue.stop_policy is StopPolicy.NONE:
            return
        for entry in list(self._state.queries.world.workloads.values()):
            workload = entry.workload
            if entry.held is None or (queue.stop_policy is StopPolicy.HOLD and entry.is_admitted):
                continue
            if isinstance(queue, ClusterQueue):
                is_stopped = entry.held.cluster_queue == queue.name
            else:
                is_stopped = ObjectKey(workload.key.namespace, workload.queue_name) == queue.key
            if is_stopped:
                self._evict(workload, None)

    def _change(self, workload: Workload, **changes: object) -> Workload:
        changed = replace(workload, **changes)  # type: ignore[arg-type]
        self._state.observe(happened.WorkloadChanged(changed), now=self._now)
        return changed

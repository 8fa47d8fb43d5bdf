"""Carries out the decisions of a disposable state at once, as if every write succeeded without delay.

Reservations are written, admission checks are ready and pods are ready at once. Preempted workloads stop at
once and are queued again. So the state reaches the decisions to which a running manager comes later.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from admitq.core.asking import effects
from admitq.core.entries import WorkloadEntry
from admitq.core.events import (
    ClusterQueueChanged,
    CyclesRequested,
    Event,
    LocalQueueChanged,
    WorkloadChanged,
)
from admitq.core.instructions import (
    AssignTopology,
    EvictForNodeFailures,
    Preempt,
    ReportSecondPass,
    ReserveQuota,
)
from admitq.core.lifecycle import Phase
from admitq.core.model import Admission, ClusterQueue, Instant, StopPolicy, Workload
from admitq.core.state import AdmissionState
from admitq.core.world import DriverOptions, World

_CYCLES: Final = CyclesRequested()

_ROUNDS: Final = 1_000
"""The maximum number of rounds of decisions at one instant."""


Decision = ReserveQuota | AssignTopology | Preempt | EvictForNodeFailures | ReportSecondPass
"""A decision of a cycle on one workload."""


class EndlessDecisionsError(RuntimeError):
    """The core decides endlessly at one instant."""


def run_due_cycles(
    state: AdmissionState,
    now: Instant,
    carry_out: Callable[[Decision], None],
    *,
    rounds: int,
) -> Instant | None:
    """Run cycles and carry out their decisions, until no cycle is due now or cycles decide nothing more.

    Args:
        state: the state.
        now: the present instant.
        carry_out: carries out one instruction, and lets the state observe the effects.
        rounds: the maximum number of rounds.

    Returns:
        The instant at which cycles are due next; None without one.

    Raises:
        EndlessDecisionsError: the core still decides after the maximum number of rounds.
    """
    wake = state.next_wakeup(now)
    for _ in range(rounds):
        if wake != now:
            return wake
        decided = False
        for instruction in state.handle(_CYCLES, now=now):
            if isinstance(instruction, Decision):
                decided = True
                carry_out(instruction)
        wake = state.next_wakeup(now)
        if not decided:
            return wake
    raise EndlessDecisionsError(f"the core still decides after {rounds} rounds at one instant")


def _ignore(*_change: object) -> None:
    """Do nothing about a change of a workload."""


def _is_leaving(entry: WorkloadEntry) -> bool:
    """Whether a workload holds quota only until its job has stopped."""
    return entry.admission is not None and (entry.is_leaving or entry.phase is Phase.EVICTING)


@dataclass(slots=True, eq=False)
class Execution:
    """Carries out the decisions of a disposable state at once.

    Args:
        state: the state. It runs cycles from now on, whatever its options were.
        now: the present instant. Callers may advance it.
        on_reserved: called with each workload that got quota.
        on_stopped: called with each workload that lost its quota, with the preemption if there is one.
    """

    state: AdmissionState
    now: Instant
    on_reserved: Callable[[Workload], object] = _ignore
    on_stopped: Callable[[Workload, Preempt | None], object] = _ignore
    decisions: int = field(default=0, init=False)
    """The number of reservations and preemptions that were carried out."""

    @property
    def _world(self) -> World:
        return self.state.queries.world

    def begin(self) -> None:
        """Let the state decide alone, and end all writes and evictions that are in progress."""
        world = self._world
        world.driver = DriverOptions(writes_statuses=False, runs_cycles=True)
        for entry in list(world.workloads.values()):
            workload = entry.workload
            if entry.assumed is not None and workload.admission is None:
                workload = effects.reserve(
                    workload,
                    entry.assumed.admission,
                    entry.assumed.reserved_at,
                    admit=entry.assumed.admit,
                    pods_ready=True,
                )
                self._change(workload)
            if entry.assumed_places is not None:
                workload = self._assign_topology(workload, entry.assumed_places.admission)
            if _is_leaving(entry):
                self._leave(workload, entry.preempting)

    @property
    def is_at_rest(self) -> bool:
        """Whether no cycle is due, and no write or eviction is in progress."""
        wake = self.state.next_wakeup(self.now)
        return (wake is None or wake > self.now) and not any(
            entry.assumed is not None or _is_leaving(entry) for entry in self._world.workloads.values()
        )

    def observe(self, event: Event) -> None:
        """Let the state observe an event. If the event drains a queue, its workloads stop."""
        self.state.observe(event, now=self.now)
        if isinstance(event, (ClusterQueueChanged, LocalQueueChanged)):
            self._drain(event)

    def settle(self) -> Instant | None:
        """Run cycles and carry out their decisions, until there are no more.

        Returns:
            The instant at which cycles are due next; None without one.

        Raises:
            EndlessDecisionsError: the core decides endlessly at this instant.
        """
        wake = run_due_cycles(self.state, self.now, self._carry_out, rounds=_ROUNDS)
        self.state.instructions()  # Reports of refusals are not needed.
        return wake

    def finish(self, workload: Workload) -> None:
        """End a workload: it returns its quota."""
        self._change(effects.revise_workload(workload, finished=True))

    # --- decisions --------------------------------------------------------------------------------

    def _carry_out(self, instruction: Decision) -> None:
        workload = self._world.workloads[instruction.key].workload
        match instruction:
            case ReserveQuota():
                self._reserve(instruction)
            case AssignTopology():
                self._assign_topology(workload, instruction.admission)
            case Preempt():
                self._leave(workload, instruction)
            case EvictForNodeFailures():
                self._leave(workload, None)
            case _:
                pass  # Of a second pass without result: the core repeats it.
        self.decisions += 1

    def _assign_topology(self, workload: Workload, admission: Admission) -> Workload:
        workload = effects.assign_topology(workload, admission, pods_ready=True)
        self._change(workload)
        return workload

    def _reserve(self, instruction: ReserveQuota) -> None:
        entry = self._world.workloads[instruction.key]
        workload = effects.reserve(
            entry.workload, instruction.admission, self.now, admit=instruction.admit, pods_ready=True
        )
        self._change(workload)
        if not instruction.admit:
            # A topology assignment that it lacks would come with the nodes that its admission checks create.
            spec = self._world.cluster_queues[instruction.admission.cluster_queue].spec
            workload = effects.admit_after_checks(workload, spec, pods_ready=True)
            self._change(workload)
        original = None if instruction.replaces is None else self._world.workloads.get(instruction.replaces)
        if original is not None:
            self.finish(original.workload)
        self.on_reserved(workload)

    def _leave(self, workload: Workload, preemption: Preempt | None) -> None:
        """Evict a workload, and let its job stop."""
        evicted = effects.evict(workload, self.now)
        self._change(evicted)
        queued_at = workload.queued_at
        if preemption is not None:
            gates = self._world.settings.gates
            queued_at = effects.queued_at_after_preemption(workload, preemption.reason, self.now, gates)
        stopped = effects.stop(evicted, queued_at)
        self._change(stopped)
        self.on_stopped(stopped, preemption)

    def _drain(self, event: ClusterQueueChanged | LocalQueueChanged) -> None:
        """Let the workloads of a stopped queue leave as the manager's controllers do."""
        changed = event.cluster_queue if isinstance(event, ClusterQueueChanged) else event.local_queue
        if changed.stop_policy is StopPolicy.NONE:
            return
        for entry in list(self._world.workloads.values()):
            if entry.held is None:
                continue
            queue = entry.held.cluster_queue if isinstance(changed, ClusterQueue) else entry.local_queue
            name = changed.name if isinstance(changed, ClusterQueue) else changed.key
            # A queue that only holds keeps workloads that are admitted already.
            drains = changed.stop_policy is StopPolicy.HOLD_AND_DRAIN or not entry.is_admitted
            if queue == name and drains:
                self._leave(entry.workload, None)

    def _change(self, workload: Workload) -> None:
        self.state.observe(WorkloadChanged(workload), now=self.now)

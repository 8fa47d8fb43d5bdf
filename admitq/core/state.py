"""The decision core as one object: events in, instructions out.

A driver sends events to ``AdmissionState``. Drivers are the manager, the simulator and the shadow. The state
reads no clock and no random numbers: the same events at the same instants give the same instructions. A cycle
runs only when an event requests it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from admitq.core import charging, dump, invariants
from admitq.core.cohorts import Node
from admitq.core.cycle import refresh_outdated_refusals
from admitq.core.cycle.second_pass import next_second_pass_at
from admitq.core.entries import AssumedPlaces, Assumption
from admitq.core.events import CyclesRequested, Event
from admitq.core.handlers import HANDLERS
from admitq.core.handlers.cycles import requested_cycles
from admitq.core.instructions import AssignTopology, Instruction, ReserveQuota
from admitq.core.model import Instant, ObjectKey
from admitq.core.queries import StateQueries
from admitq.core.refreshes import discard_refreshes, take_refreshes
from admitq.core.settings import CoreSettings
from admitq.core.violations import InvariantViolated
from admitq.core.waiting.heads import Pause
from admitq.core.world import DriverOptions, World

__all__ = ["AdmissionState", "CycleInProgressError", "InvariantViolated"]


class CycleInProgressError(RuntimeError):
    """The state was used between two steps of a cycle, or after a cycle that did not end."""


class AdmissionState:
    """All queues, quotas and workloads, and the decisions on them.

    ``queries`` answers questions about the state. While a cycle runs in steps (``cycle_steps``), the answers
    include the assumptions of the cycle.

    Args:
        settings: the settings of the core.
        statuses: whether the driver writes statuses. If not, the state does less work: it returns no
            instructions that report refusals or refresh statuses.
        cycles: whether the state runs cycles. If another program decides, a request for cycles only does what
            is due by time.
    """

    def __init__(
        self, settings: CoreSettings | None = None, *, statuses: bool = True, cycles: bool = True
    ) -> None:
        driver = DriverOptions(writes_statuses=statuses, runs_cycles=cycles)
        self._world = World(settings if settings is not None else CoreSettings(), driver)
        self.queries = StateQueries(self._world)

    # --- events and instructions ------------------------------------------------------------------

    def handle(self, event: Event, *, now: Instant) -> list[Instruction]:
        """Observe an event and return the instructions: ``observe``, then ``instructions``."""
        self.observe(event, now=now)
        return self.instructions()

    def observe(self, event: Event, *, now: Instant) -> None:
        """Process an event. Run cycles if the event requests them.

        Args:
            event: what happened.
            now: the present instant, in nanoseconds since the Unix epoch.

        Raises:
            CycleInProgressError: a cycle that runs in steps has not ended.
        """
        self._settle_admissions(now)
        HANDLERS[type(event)](self._world, event, now)
        self._world.waiting.batches.date(now)

    def cycle_steps(self, request: CyclesRequested, *, now: Instant) -> Iterator[None]:
        """Run requested cycles in steps, for callers with other work to do between the steps.

        A step processes about one workload. Until the iterator is exhausted, callers may only use
        ``queries``. If a step raises, or a caller does not exhaust the iterator, the state remains unusable.

        Args:
            request: the number of cycles to run.
            now: the present instant, in nanoseconds since the Unix epoch.

        Raises:
            CycleInProgressError: another cycle that runs in steps has not ended.
        """
        self._settle_admissions(now)
        world = self._world
        world.is_in_cycle = True
        yield from requested_cycles(world, request, now)
        world.waiting.batches.date(now)
        world.is_in_cycle = False

    @property
    def is_in_cycle(self) -> bool:
        """Whether a cycle that runs in steps has not ended."""
        return self._world.is_in_cycle

    @property
    def _settled(self) -> World:
        """The world between cycles.

        Raises:
            CycleInProgressError: a cycle that runs in steps has not ended.
        """
        if self._world.is_in_cycle:
            raise CycleInProgressError("a cycle has not ended")
        return self._world

    def _settle_admissions(self, now: Instant) -> None:
        if self._settled.charging.seen_admitted:
            charging.settle_admissions(self._world, before=now)

    def instructions(self, *, refreshes: bool = True) -> list[Instruction]:
        """Return the instructions since the last call.

        After a burst of events, one call costs less than a call after each event.

        Args:
            refreshes: whether to return the statuses to refresh. If not, they stay for a later call. While a
                cycle is due, the numbers of the workloads that wait change for a moment only.

        Returns:
            Reservations, preemptions and other decisions of cycles, each kind in the order of decision. If
            the driver writes statuses, then refusals to report, at most one for each workload, and then
            statuses to refresh.
        """
        world = self._settled
        decisions = world.outbox.take_decisions()
        reports = world.outbox.take_reports()
        if not world.driver.writes_statuses:
            discard_refreshes(world)
            return decisions
        return [*decisions, *reports, *(take_refreshes(world) if refreshes else ())]

    def next_wakeup(self, now: Instant) -> Instant | None:
        """Return the earliest instant at which a request for cycles has work to do; None without one."""
        world = self._settled
        runs = world.driver.runs_cycles and not world.is_halted
        if runs and world.waiting.heads.has_any():
            return now
        refreshes = runs and world.driver.writes_statuses
        if world.charging.seen_admitted or (refreshes and world.waiting.has_outdated_refusals):
            return now
        second_pass = next_second_pass_at(world) if world.driver.runs_cycles else None
        batch = world.waiting.batches.next_at() if runs else None
        times = (world.waiting.timers.next_at(), second_pass, batch, charging.next_sample(world))
        due = [instant for instant in times if instant is not None]
        return max(now, min(due)) if due else None

    def retry_everything(self) -> None:
        """Evaluate all pending workloads again in the next cycles.

        Normal operation never needs this: every change ends the waiting of the lanes that it concerns. Tests
        call this method to check that it makes no difference. So does a safeguard of the manager.
        """
        self._settled.waiting.retry_all()

    def refresh_refusals(self) -> list[Instruction]:
        """Refresh all refusals that may be outdated. Cycles refresh only some of them at a time.

        Returns:
            The instructions, as ``handle`` does.
        """
        refresh_outdated_refusals(self._settled)
        return self.instructions()

    # --- after a defect ---------------------------------------------------------------------------

    @property
    def deciding(self) -> ObjectKey | None:
        """The workload on which a cycle was deciding when it raised; None if no cycle raised."""
        return self._world.deciding

    def trees(self) -> list[tuple[str, ...]]:
        """Return the names of the ClusterQueues of each cohort tree."""
        trees: dict[Node, list[str]] = {}
        for name, entry in sorted(self._world.cluster_queues.items()):
            trees.setdefault(entry.node.root, []).append(name)
        return [tuple(names) for names in trees.values()]

    def pause(self, pause: Pause) -> None:
        """Exclude these ClusterQueues from cycles, and include all others."""
        self._world.waiting.heads.paused = pause

    def empty(self) -> "AdmissionState":
        """Return an empty state with the same settings and options."""
        driver = self._world.driver
        return AdmissionState(
            self._world.settings, statuses=driver.writes_statuses, cycles=driver.runs_cycles
        )

    def replace_with(self, other: "AdmissionState") -> None:
        """Replace this state with another one, which callers must not use any more."""
        cycles, driver = self._world.cycle, self._world.driver
        self._world = self.queries.world = other._world  # noqa: SLF001 - of the same class
        self._world.cycle += cycles
        self._world.driver = driver

    def assume(self, instruction: ReserveQuota | AssignTopology, *, now: Instant) -> None:
        """Count a decision of an earlier state that is being written.

        This does nothing if the workload does not exist, has finished, or was observed with the decision or
        with another reservation.
        """
        world = self._settled
        entry = world.workloads.get(instruction.key)
        if entry is None or entry.workload.uid != instruction.uid or entry.workload.finished:
            return
        observed = entry.workload.admission
        if isinstance(instruction, AssignTopology):
            is_written = observed == instruction.admission
            if observed is not None and not is_written and observed.has_quota_of(instruction.admission):
                entry.assumed_places = AssumedPlaces(instruction.admission, observed)
                world.settle(entry, now)
            return
        if observed is not None:
            return
        entry.assumed = Assumption.decided(instruction.admission, now, admit=instruction.admit)
        world.settle(entry, now)
        charging.charge(world, entry, world.assigned(entry))

    # --- dump, restore, check ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON values. ``from_dict`` creates an equal state from them."""
        return cast("dict[str, Any]", dump.encode(self.to_dump()))

    def to_dump(self) -> dump.Dump:
        """Return the present state as an immutable value."""
        return dump.take(self._settled)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "AdmissionState":
        """Return a state that makes the same decisions as the dumped state.

        Raises:
            dump.DumpError: the dump has another version, or cannot be read.
        """
        return cls._restored(dump.decode(raw))

    def fork(self) -> "AdmissionState":
        """Return an independent copy, for example to try events on it."""
        state = self._restored(dump.take(self._settled))
        state.pause(self._world.waiting.heads.paused)
        return state

    def restarted(self) -> "AdmissionState":
        """Return a state that has only observed the present objects, as after a restart of the manager."""
        dumped = dump.take(self._settled)
        state = AdmissionState(dumped.settings)
        state._observe_again(dumped)
        state.pause(self._world.waiting.heads.paused)
        state.instructions()
        return state

    def _observe_again(self, dumped: dump.Dump) -> None:
        for event in dump.observations(dumped):
            HANDLERS[type(event)](self._world, event, 0)

    @classmethod
    def _restored(cls, dumped: object) -> "AdmissionState":
        if not isinstance(dumped, dump.Dump):
            raise dump.DumpError("not the dump of an AdmissionState")
        if dumped.version != dump.VERSION:
            raise dump.DumpError(f"a dump of version {dumped.version}; only {dump.VERSION} can be read")
        state = cls(dumped.settings)
        state._observe_again(dumped)
        dump.restore_unobserved(state._world, dumped)
        state._world.outbox.reservations.clear()
        state._world.outbox.preemptions.clear()
        state.instructions()
        return state

    def validate(self) -> None:
        """Check every invariant against a recomputation from scratch. Slow.

        Raises:
            InvariantViolated: an invariant does not hold, which is a defect of the core.
        """
        invariants.check(self._settled)

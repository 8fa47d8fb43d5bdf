"""The comparison of a core that observes the cluster with what the manager in charge does.

One ``AdmissionState`` observes the cluster and decides as if it were in charge. A decision that was not
observed yet is *expected*: it counts like a reservation that is being written. Cycles run after every
observation, so that the core decides in each state of the cluster.

Rules of this file

- If the manager in charge did what was expected (its *action*), both agree, in any order.
- The manager in charge observes changes a moment earlier or later, and writes while others write. So both
  agree on an action if the core would have done the same in any of these states:

  - as expected within the last moment (the *leeway*);
  - the state right before the action, without any expectations;
  - the same, without workloads that arrived within the leeway, or with workloads, queues or both as they
    were before it;
  - the state that a manager builds that starts at that moment, and knows only what the API has;
  - all of these again when the leeway is over, as if the action had not been done.

- An expectation that is not fulfilled is reported if it was expected for all of the *patience*, is still
  expected without other expectations, and is expected by a manager that starts at that moment.
- A difference is reported once. The shadow then continues from the action of the manager in charge. A
  workload that the manager leaves waiting stays expected, so that no other workload is expected in its place.
  If others get the quota meanwhile, they are judged as if that workload did not wait. It may be reported
  again when it has changed.
"""

from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.instructions import Preempt, ReserveQuota
from admitq.core.model import Admission, Instant, ObjectKey, QueueingStrategy, Workload
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState
from admitq.core.statuses import LocalQueueReason
from admitq.core.waiting.heads import Pause
from admitq.shadow.findings import (
    Agreement,
    Disagreement,
    DisagreementKind,
    Finding,
    ManagerAction,
    Obstacle,
    Opinion,
    Preempted,
    Reserved,
    StillWaiting,
)
from admitq.shadow.recent_changes import RecentChanges

_MAX_EVALUATED_AT_ONCE: Final = 5
"""The maximum number of actions that await their evaluation. Further actions are queued.

A manager that always decides differently must not stop the shadow from keeping up."""


class ComparisonFailed(Exception):
    """The core raised an exception that the observed event did not cause.

    Attributes:
        during: the name of the event that the core handled, or ``cycle``.
        workload: the workload that the core worked on; None if it is unknown.
        error: the exception.
    """

    def __init__(self, during: str, workload: ObjectKey | None, error: Exception) -> None:
        super().__init__(f"{during} failed: {error!r}")
        self.during = during
        self.workload = workload
        self.error = error


@contextmanager
def _failing(state: AdmissionState, during: str, workload: ObjectKey | None = None) -> Generator[None]:
    """Return a context manager that adds the workload of the current decision to exceptions.

    Raises:
        ComparisonFailed: the core raised in the context.
    """
    try:
        yield
    except ComparisonFailed:
        raise
    except Exception as error:
        raise ComparisonFailed(during, workload or state.deciding, error) from error


@dataclass(slots=True)
class _Expected:
    """Decisions that were not observed yet: reservations by workload, preemptions by victim."""

    reservations: dict[ObjectKey, ReserveQuota] = field(default_factory=dict[ObjectKey, ReserveQuota])
    preemptions: dict[ObjectKey, Preempt] = field(default_factory=dict[ObjectKey, Preempt])

    def add(self, state: AdmissionState, now: Instant) -> None:
        """Run cycles until they decide nothing more."""
        with _failing(state, "cycle"):
            instructions = state.handle(happened.CyclesRequested(), now=now)
        for instruction in instructions:
            if isinstance(instruction, ReserveQuota):
                self.reservations[instruction.key] = instruction
            elif isinstance(instruction, Preempt):
                self.preemptions[instruction.key] = instruction

    def victims_of(self, key: ObjectKey) -> tuple[ObjectKey, ...]:
        """Return the workloads that are to be preempted for a workload."""
        preemptions = self.preemptions.values()
        return tuple(sorted(preempt.key for preempt in preemptions if preempt.preemptor == key))

    def has(self, key: ObjectKey, action: ManagerAction) -> bool:
        """Whether the action was expected."""
        if isinstance(action, Preempted):
            return key in self.preemptions
        expected = self.reservations.get(key)
        return expected is not None and is_same(expected.admission, action.admission)


@dataclass(frozen=True, slots=True)
class _UnexplainedAction:
    """An action that the core would not have done when it was observed, with the former workload."""

    key: ObjectKey
    former: Workload
    action: ManagerAction
    at: Instant
    opinion: Opinion
    cluster_queue: str


def is_same(first: Admission, other: Admission) -> bool:
    """Whether two reservations give the same pods the same flavors, and so have the same usage."""
    return _choice(first) == _choice(other)


def _choice(admission: Admission) -> object:
    parts = sorted((part.name, part.count, part.flavors) for part in admission.pod_set_assignments)
    return admission.cluster_queue, parts


def find_action(former: Workload, workload: Workload, preemption: Preempted | None) -> ManagerAction | None:
    """Return what the manager in charge did to a workload; None if there is nothing to compare.

    Workloads in quarantine are not compared, since only their reservations are known.

    Args:
        former: the workload before the change.
        workload: the workload after the change.
        preemption: the preemption that its condition reports; None if no preemption evicted it.
    """
    if workload.finished or not (former.pod_sets and workload.pod_sets):
        return None
    if former.admission is None and workload.admission is not None:
        return Reserved(workload.admission)
    if former.admission is None or former.evicted or not workload.evicted:
        return None
    return preemption


class Shadow:
    """Compares the decisions of a core with those of the manager in charge.

    Args:
        settings: the settings of the core. Its requeue batch period is ignored: expectations arise at once.
        patience: nanoseconds that the manager in charge has to do what is expected.
        leeway: nanoseconds within which the order of changes does not matter.
    """

    def __init__(self, settings: CoreSettings, *, patience: Instant, leeway: Instant) -> None:
        self._settings = settings
        self._state = AdmissionState(replace(settings, requeue_batch_period=0), statuses=False)
        self._patience = patience
        self._leeway = min(leeway, patience)
        self._workloads: dict[ObjectKey, Workload] = {}
        self._expected = _Expected()
        self._since: dict[ObjectKey, Instant] = {}
        """Since when a waiting workload was expected to get quota, or to preempt others."""
        self._dropped: deque[tuple[Instant, _Expected]] = deque()
        """Expectations that ended within the leeway, and when; the latest last."""
        self._done: dict[ObjectKey, happened.WorkloadChanged] = {}
        """The events that undo what the manager in charge did within the leeway."""
        self._done_at: deque[tuple[Instant, ObjectKey]] = deque()
        self._arrivals: dict[ObjectKey, Instant] = {}
        """The workloads that began to wait within the leeway, and when; the latest last."""
        self._recent = RecentChanges()
        self._reported: set[ObjectKey] = set()
        """The workloads that were reported as left waiting."""
        self._unexplained: deque[_UnexplainedAction] = deque()
        """The latest last."""
        self._findings: list[Finding] = []
        self._is_following = False

    @property
    def state(self) -> AdmissionState:
        """The core; its state includes the expectations."""
        return self._state

    @property
    def is_following(self) -> bool:
        """Whether the comparison has started."""
        return self._is_following

    def trees(self) -> list[tuple[str, ...]]:
        """Return the names of the ClusterQueues of each cohort tree."""
        return self._state.trees()

    def pause(self, pause: Pause) -> None:
        """Exclude these ClusterQueues from expectations and comparison."""
        self._state.pause(pause)

    def empty(self) -> "Shadow":
        """Return a new shadow with the same settings and without observations."""
        return Shadow(self._settings, patience=self._patience, leeway=self._leeway)

    def replace_with(self, other: "Shadow") -> None:
        """Take over the observations of another shadow, which is not used afterwards.

        What was reported is not reported again, and expectations keep their age. Actions that await their
        evaluation are dropped, since the state before them is unknown.
        """
        self._state.replace_with(other.state)
        workloads = other._workloads  # noqa: SLF001 - of the same class
        continued = {
            "_state": self._state,
            "_since": self._since,
            "_reported": {
                key for key in self._reported & workloads.keys() if self._workloads.get(key) == workloads[key]
            },
            "_findings": self._findings,
            "_is_following": self._is_following,
        }
        vars(self).update({**vars(other), **continued})

    def follow(self, now: Instant) -> None:
        """Start the comparison, after all existing objects were observed.

        Raises:
            ComparisonFailed: the core failed.
        """
        self._is_following = True
        self._decide(now)

    def observe(self, event: Event, *, now: Instant, preemption: Preempted | None = None) -> None:
        """Observe an event.

        Args:
            event: the event.
            now: the present instant, in nanoseconds since the Unix epoch.
            preemption: the preemption that the Workload reports; None if no preemption evicted it.

        Raises:
            ComparisonFailed: the core failed, and the event is not the cause.
        """
        self._recent.note(event, now)
        self._drop_old_records(now)
        match event:
            case happened.WorkloadChanged(workload):
                self._workload_changed(workload, now, preemption)
            case happened.WorkloadDeleted(key, uid):
                known = self._workloads.get(key)
                if known is not None and known.uid == uid:
                    self._forget(key)
                self._state.observe(event, now=now)
            case _:
                self._state.observe(event, now=now)
        if self._is_following:
            self._decide(now)

    def evaluate_due(self, now: Instant) -> None:
        """Evaluate what is due: one action a call, because an evaluation takes long in a large cluster.

        Raises:
            ComparisonFailed: the core failed.
        """
        self._drop_old_records(now)
        if self._unexplained and self._unexplained[0].at <= now - self._leeway:
            self._conclude(self._unexplained.popleft(), now)
        self._decide(now)
        if self._overdue(now):
            self._report_left_waiting(now)

    def _drop_old_records(self, now: Instant) -> None:
        """Drop records that are older than the leeway and than the first action that awaits its evaluation.

        An evaluation may be late, since each waits for the one before. It needs the state before the action.
        """
        horizon = now - self._leeway
        if self._unexplained:
            horizon = min(horizon, self._unexplained[0].at)
        while self._dropped and self._dropped[0][0] < horizon:
            self._dropped.popleft()
        while self._done_at and self._done_at[0][0] < horizon:
            self._done.pop(self._done_at.popleft()[1], None)
        while self._arrivals and (first := next(iter(self._arrivals.items())))[1] < horizon:
            del self._arrivals[first[0]]
        self._recent.forget(horizon)

    def next_evaluation(self, now: Instant) -> Instant | None:
        """Return the earliest instant at which an evaluation may be due; None if it needs an event."""
        unreported = (at + self._patience for key, at in self._since.items() if key not in self._reported)
        suspected = (action.at + self._leeway for action in self._unexplained)
        times = [*unreported, *suspected]
        if (woken := self._state.next_wakeup(now)) is not None:
            times.append(woken)
        return max(now, min(times)) if times else None

    def findings(self) -> list[Finding]:
        """Return the findings since the last call."""
        findings, self._findings = self._findings, []
        return findings

    # --- observations -----------------------------------------------------------------------------

    def _workload_changed(self, workload: Workload, now: Instant, preemption: Preempted | None) -> None:
        key = workload.key
        former = self._workloads.get(key)
        if former is not None and former.uid != workload.uid:
            self._forget(key)
            former = None
        if former == workload:
            return
        if former is None or (former.admission is not None and workload.admission is None):
            self._arrivals.pop(key, None)
            self._arrivals[key] = now
        self._workloads[key] = workload
        self._reported.discard(key)
        action = (
            find_action(former, workload, preemption) if former is not None and self._is_following else None
        )
        if former is not None and action is not None:
            with _failing(self._state, "judgement"):
                self._judge(key, former, action, now)
            self._done.setdefault(key, happened.WorkloadChanged(former))
            self._done_at.append((now, key))
        self._withdraw(key, workload, now)
        self._state.observe(happened.WorkloadChanged(workload), now=now)

    def _withdraw(self, key: ObjectKey, workload: Workload, now: Instant) -> None:
        """Drop the expectations that the changed workload fulfils or contradicts."""
        expected = self._expected.reservations.pop(key, None)
        if expected is not None and workload.admission is None:
            # It changed while it waited. The manager in charge may have decided before the change.
            self._dropped.append((now, _Expected({key: expected})))
            with _failing(self._state, "ReservationDiscarded", key):
                self._state.observe(happened.ReservationDiscarded(key, expected.uid), now=now)
        if workload.evicted or workload.finished or workload.admission is None:
            self._expected.preemptions.pop(key, None)

    def _forget(self, key: ObjectKey) -> None:
        self._workloads.pop(key, None)
        self._arrivals.pop(key, None)
        self._reported.discard(key)
        self._expected.reservations.pop(key, None)
        self._expected.preemptions.pop(key, None)

    # --- expectations -----------------------------------------------------------------------------

    def _decide(self, now: Instant) -> None:
        if not self._is_following:
            return
        self._expected.add(self._state, now)
        preemptors = {preemption.preemptor for preemption in self._expected.preemptions.values()}
        waited_for = {*self._expected.reservations, *preemptors}
        self._since = {key: self._since.get(key, now) for key in sorted(waited_for)}

    def _drop_expectations(self, now: Instant) -> None:
        """Remove the expectations from the state, so that it holds only observations."""
        expected, self._expected = self._expected, _Expected()
        if not (expected.reservations or expected.preemptions):
            return
        self._dropped.append((now, expected))
        for reservation in expected.reservations.values():
            with _failing(self._state, "ReservationDiscarded", reservation.key):
                self._state.observe(happened.ReservationDiscarded(reservation.key, reservation.uid), now=now)
        for preemption in expected.preemptions.values():
            with _failing(self._state, "PreemptionFailed", preemption.key):
                self._state.observe(happened.PreemptionFailed(preemption.key, preemption.uid), now=now)

    # --- evaluation of actions --------------------------------------------------------------------

    def _judge(self, key: ObjectKey, former: Workload, action: ManagerAction, now: Instant) -> None:
        cluster_queue = self._cluster_queue_of(former, action)
        if self._state.queries.is_excluded(cluster_queue):
            return
        if self._expected.has(key, action):
            self._findings.append(Agreement(cluster_queue))
            return
        was_expected = any(expected.has(key, action) for _, expected in self._dropped)
        self._drop_expectations(now)
        self._expected.add(self._state, now)
        if was_expected or self._expected.has(key, action):
            self._findings.append(Agreement(cluster_queue))
            return
        opinion = self._opinion(_subject(self._workloads, key, action), now)
        self._drop_expectations(now)
        if len(self._unexplained) < _MAX_EVALUATED_AT_ONCE and self._is_explained(
            key, action, self._state, now
        ):
            self._findings.append(Agreement(cluster_queue))
            return
        self._unexplained.append(_UnexplainedAction(key, former, action, now, opinion, cluster_queue))

    def _conclude(self, unexplained: _UnexplainedAction, now: Instant) -> None:
        """Evaluate an action again after the leeway, with the changes that were observed since.

        The heads of a cycle depend on what was observed before it. The manager in charge may observe two
        changes between two cycles, while this state runs cycles after each change. This state then parks a
        head that the manager would retry in its next cycle, and tries another workload earlier. None of the
        compared states has those cycles. So an action that follows from them is reported as a difference,
        although both managers decided by the rules.
        """
        key, action = unexplained.key, unexplained.action
        self._drop_expectations(now)
        undone = self._state.fork()
        undone.observe(happened.WorkloadChanged(unexplained.former), now=now)
        if self._is_explained(key, action, undone, now):
            self._findings.append(Agreement(unexplained.cluster_queue))
            return
        kind = DisagreementKind.PREEMPTED
        if isinstance(action, Reserved):
            kind = (
                DisagreementKind.RESERVED
                if unexplained.opinion.admission is None
                else DisagreementKind.ASSIGNED
            )
        self._findings.append(Disagreement(kind, key, unexplained.cluster_queue, action, unexplained.opinion))

    def _is_explained(
        self, key: ObjectKey, action: ManagerAction, state: AdmissionState, now: Instant
    ) -> bool:
        """Whether the core would do it in this state, or a similar one, without expectations."""
        subjects = {key, _subject(self._workloads, key, action)}
        absences = self._absences(key, action, state)
        for copy in (AdmissionState.fork, AdmissionState.restarted):
            for absent, undone in product(absences, self._undoings(subjects)):
                expected = self._expected_of(copy(state), absent, undone, now)
                if expected.has(key, action):
                    # The manager in charge decided its other actions in the same state.
                    self._dropped.append((now, expected))
                    return True
        return False

    def _undoings(self, subjects: set[ObjectKey]) -> list[tuple[Event, ...]]:
        """Return the sets of recent changes that the manager in charge may not have observed.

        These are: none, those of workloads, all others, all; and what the manager in charge did itself, since
        it decides several actions at once, and they are observed one after the other.
        """
        actions = (event for event in self._done.values() if event.workload.key not in subjects)
        workloads: list[Event] = []
        others: list[Event] = []
        for event in self._recent.undoing():
            if not isinstance(event, happened.WorkloadChanged):
                others.append(event)
            elif event.workload.key not in subjects:
                workloads.append(event)
        return list(dict.fromkeys([(), (*actions,), tuple(workloads), tuple(others), (*workloads, *others)]))

    def _absences(
        self, key: ObjectKey, action: ManagerAction, state: AdmissionState
    ) -> list[frozenset[ObjectKey]]:
        """Return the sets of waiting workloads that the manager in charge may ignore or not have observed."""
        subject = _subject(self._workloads, key, action)
        subjects = {key, subject}
        reported = self._reported - subjects
        arrived = self._arrivals.keys() - subjects
        absences = [frozenset[ObjectKey](), frozenset(reported), frozenset(reported | arrived)]
        if isinstance(action, Preempted):
            # The heads of other queues show when they get quota. A preemption is for one workload alone.
            own = state.queries.cluster_queue_of(subject)
            pending = state.queries.pending_workloads()
            elsewhere = {waiting.workload for waiting in pending if waiting.cluster_queue != own}
            absences.append(frozenset(reported | arrived | elsewhere - subjects))
        return list(dict.fromkeys(absences))

    def _expected_of(
        self, state: AdmissionState, absent: Iterable[ObjectKey], undone: Iterable[Event], now: Instant
    ) -> _Expected:
        """Return what a state would decide without these waiting workloads and with these changes undone.

        A workload that arrived and got quota since then waits if its reservation is undone.
        """
        former: dict[ObjectKey, Workload] = {}
        for event in undone:
            state.observe(event, now=now)
            if isinstance(event, happened.WorkloadChanged):
                former[event.workload.key] = event.workload
        for key in sorted(absent):
            workload = former.get(key) or self._workloads.get(key)
            if workload is not None and workload.admission is None:
                state.observe(happened.WorkloadChanged(replace(workload, on_hold=True)), now=now)
        expected = _Expected()
        expected.add(state, now)
        return expected

    def _cluster_queue_of(self, workload: Workload, action: ManagerAction | None = None) -> str:
        if isinstance(action, Reserved):
            return action.admission.cluster_queue
        if workload.admission is not None:
            return workload.admission.cluster_queue
        return self._state.queries.cluster_queue_of(workload.key) or ""

    # --- workloads that are left waiting ----------------------------------------------------------

    def _overdue(self, now: Instant) -> list[ObjectKey]:
        return [
            key
            for key, since in self._since.items()
            if key not in self._reported and now - since >= self._patience
        ]

    def _report_left_waiting(self, now: Instant) -> None:
        """Report workloads that wait too long and that a newly started manager would not leave waiting.

        A newly started manager evaluates all workloads. A manager that has run for longer need not. A
        workload that found no victims is not retried because others reserved quota since, although it could
        preempt those now: a reservation is no event that retries (semantics, Events that retry inadmissible
        workloads). So until the next such event, it may be correct not to preempt.

        The shadow runs cycles after each observation, so it may evaluate a workload once the others hold
        quota. A manager that observed several changes at once may have evaluated it in the cycle of those
        reservations. The API does not show which workloads were evaluated when, so this too is reported as a
        difference.
        """
        self._drop_expectations(now)
        restarted = self._expected_of(self._state.restarted(), (), (), now)
        self._decide(now)
        for key in self._overdue(now):
            workload = self._workloads[key]
            queue = self._cluster_queue_of(workload)
            victims = restarted.victims_of(key)
            if key not in restarted.reservations and not victims:
                self._since[key] = now
                continue
            self._reported.add(key)
            if self._is_held_up(workload, queue):
                continue
            opinion = self._opinion(key, now)
            kind = DisagreementKind.SPARED if opinion.victims else DisagreementKind.WAITING
            waited = StillWaiting(now - self._since[key])
            self._findings.append(Disagreement(kind, key, queue, waited, opinion))

    def _is_held_up(self, workload: Workload, queue: str) -> bool:
        """Whether a strict queue is blocked by another workload that was reported already."""
        if self._state.queries.queueing_strategy(queue) is not QueueingStrategy.STRICT_FIFO:
            return False
        return any(
            self._cluster_queue_of(other) == queue
            for other in (self._workloads[key] for key in sorted(self._reported) if key != workload.key)
            if other.admission is None
        )

    # --- opinions ---------------------------------------------------------------------------------

    def _opinion(self, key: ObjectKey, now: Instant) -> Opinion:
        """Return what the core would do with a workload, and with others of its ClusterQueue."""
        state, expected = self._state, self._expected
        queue = state.queries.cluster_queue_of(key) or ""
        reserved = expected.reservations.get(key)
        refusal = state.queries.last_refusal(key) or state.queries.find_inadmissibility(key)
        behind = state.queries.blocking_head(queue)
        return Opinion(
            workload=key,
            admission=None if reserved is None else reserved.admission,
            victims=expected.victims_of(key),
            refusal=refusal,
            obstacle=None if refusal is not None else self._obstacle(key, now),
            phase=state.queries.workload_phase(key),
            instead=tuple(
                reservation.key
                for reservation in expected.reservations.values()
                if reservation.key != key and reservation.admission.cluster_queue == queue
            ),
            behind=None if behind == key else behind,
        )

    def _obstacle(self, key: ObjectKey, now: Instant) -> Obstacle:
        workload, queue = self._workloads[key], self._state.queries.cluster_queue_of(key)
        status = self._state.queries.local_queue_status(ObjectKey(key.namespace, workload.queue_name))
        if status is None or queue is None:
            return Obstacle.NO_LOCAL_QUEUE
        if status.reason is LocalQueueReason.STOPPED:
            return Obstacle.LOCAL_QUEUE_STOPPED
        if self._state.queries.queueing_strategy(queue) is None:
            return Obstacle.NO_CLUSTER_QUEUE
        if workload.requeue_blocked or (workload.requeue_at is not None and workload.requeue_at > now):
            return Obstacle.BACKOFF
        return Obstacle.TURN


def _subject(workloads: Mapping[ObjectKey, Workload], key: ObjectKey, action: ManagerAction) -> ObjectKey:
    """Return the workload that explains the action: of a preempted workload, its preemptor."""
    if isinstance(action, Reserved) or not action.preemptor_uid:
        return key
    return next((other.key for other in workloads.values() if other.uid == action.preemptor_uid), key)

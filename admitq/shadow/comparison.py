"""The comparison of a core that observes the cluster with what the manager in charge does.

One ``AdmissionState`` observes the cluster and decides as if it were in charge. A decision that was not
observed yet is *expected*: it counts like a reservation that is being written. Cycles run after every
observation, so that the core has an opinion about each state of the cluster.

Rules of this file

- If the manager in charge did what was expected (its *action*), both agree, in whatever order that is
  observed.
- The manager in charge observes changes a moment earlier or later, and writes while others write. So both
  agree on an action if the core would have done the same in any of these states:

  - as expected within the last moment (the *leeway*);
  - the state right before the action, without any expectations;
  - the same, without workloads that arrived within the leeway, or with workloads, queues or both as they
    were before it;
  - the state that a manager builds that starts at that moment, and knows only what the API has;
  - all of these once more when the leeway is over, as if the action had not been done.

- An expectation that is not fulfilled is reported if it was expected for all of the *patience*, is still
  expected without other expectations, and is expected by a manager that starts at that moment.
- A difference is reported once. The shadow then goes on from what the manager in charge did. A workload that
  the manager leaves waiting stays expected, so that no other workload is expected in its place. If others get
  the quota meanwhile, they are judged as if that workload did not wait. It may be reported again when it has
  changed.
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
from admitq.core.settings import Settings
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

_LOOKED_INTO_AT_ONCE: Final = 5
"""How many actions may await their conclusion while others are still looked into when they are observed: who
decides otherwise all the time must not keep the shadow from following."""


class ComparisonFailed(Exception):
    """The core raised, and not because it could not take in the event that was to be observed.

    Attributes:
        during: what the core did: the name of an event, or ``cycle``.
        workload: what it did that for; None if that is not known.
        error: what it raised.
    """

    def __init__(self, during: str, workload: ObjectKey | None, error: Exception) -> None:
        super().__init__(f"{during} failed: {error!r}")
        self.during = during
        self.workload = workload
        self.error = error


@contextmanager
def _failing(state: AdmissionState, during: str, workload: ObjectKey | None = None) -> Generator[None]:
    """Give a context whose exceptions name the workload that is given, or that a cycle decided over.

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
    """What was decided and has not been observed: reservations by workload, preemptions by victim."""

    reservations: dict[ObjectKey, ReserveQuota] = field(default_factory=dict[ObjectKey, ReserveQuota])
    preemptions: dict[ObjectKey, Preempt] = field(default_factory=dict[ObjectKey, Preempt])

    def add(self, state: AdmissionState, now: Instant) -> None:
        """Run cycles until nothing more is decided."""
        with _failing(state, "cycle"):
            instructions = state.handle(happened.CyclesRequested(), now=now)
        for instruction in instructions:
            if isinstance(instruction, ReserveQuota):
                self.reservations[instruction.key] = instruction
            elif isinstance(instruction, Preempt):
                self.preemptions[instruction.key] = instruction

    def victims_of(self, key: ObjectKey) -> tuple[ObjectKey, ...]:
        """Who is to be preempted for a workload."""
        return tuple(sorted(one.key for one in self.preemptions.values() if one.preemptor == key))

    def has(self, key: ObjectKey, action: ManagerAction) -> bool:
        """Whether the action is among it."""
        if isinstance(action, Preempted):
            return key in self.preemptions
        expected = self.reservations.get(key)
        return expected is not None and is_same(expected.admission, action.admission)


@dataclass(frozen=True, slots=True)
class _UnexplainedAction:
    """A action that no world explained when it was observed, and what stood there before it."""

    key: ObjectKey
    former: Workload
    action: ManagerAction
    at: Instant
    opinion: Opinion
    cluster_queue: str


def is_same(one: Admission, other: Admission) -> bool:
    """Whether two reservations give the same pods the same flavors. Usage follows from these."""
    return _choice(one) == _choice(other)


def _choice(admission: Admission) -> object:
    parts = sorted((part.name, part.count, part.flavors) for part in admission.pod_set_assignments)
    return admission.cluster_queue, parts


def find_action(former: Workload, workload: Workload, preemption: Preempted | None) -> ManagerAction | None:
    """What was done with a workload between two looks at it; None if it is nothing to compare.

    Nothing is compared of a workload that cannot be read, or is left out: only what it holds is known.

    Args:
        former: as it was.
        workload: as it is.
        preemption: what is told of its preemption; None if it is not evicted for that.
    """
    if workload.finished or not (former.pod_sets and workload.pod_sets):
        return None
    if former.admission is None and workload.admission is not None:
        return Reserved(workload.admission)
    if former.admission is None or former.evicted or not workload.evicted:
        return None
    return preemption


class Shadow:
    """Decides beside the manager in charge and compares.

    Args:
        settings: those of the core. Wakes are not collected here: who could be admitted is expected at once.
        patience: nanoseconds that the manager in charge has for what is expected of it.
        leeway: nanoseconds within which it does not matter what came first.
    """

    def __init__(self, settings: Settings, *, patience: Instant, leeway: Instant) -> None:
        self._settings = settings
        self._state = AdmissionState(replace(settings, requeue_batch_period=0), statuses=False)
        self._patience = patience
        self._leeway = min(leeway, patience)
        self._workloads: dict[ObjectKey, Workload] = {}
        self._expected = _Expected()
        self._since: dict[ObjectKey, Instant] = {}
        """Since when who waits was expected to get quota, or others to be preempted for it."""
        self._dropped: deque[tuple[Instant, _Expected]] = deque()
        """What was expected within the leeway, and when that ended; the latest last."""
        self._done: dict[ObjectKey, happened.WorkloadChanged] = {}
        """What undoes that which the manager in charge did within the leeway."""
        self._done_at: deque[tuple[Instant, ObjectKey]] = deque()
        self._arrivals: dict[ObjectKey, Instant] = {}
        """Who began to wait within the leeway, and when; the latest last."""
        self._recent = RecentChanges()
        self._told: set[ObjectKey] = set()
        """Who was told to be left waiting."""
        self._unexplained: deque[_UnexplainedAction] = deque()
        """The latest last."""
        self._findings: list[Finding] = []
        self._is_following = False

    @property
    def state(self) -> AdmissionState:
        """The core, with what is expected on its books."""
        return self._state

    @property
    def is_following(self) -> bool:
        """Whether it compares."""
        return self._is_following

    def trees(self) -> list[tuple[str, ...]]:
        """The names of the ClusterQueues of each cohort tree."""
        return self._state.trees()

    def pause(self, pause: Pause) -> None:
        """Expect nothing of these ClusterQueues, and compare nothing that is done there."""
        self._state.pause(pause)

    def empty(self) -> "Shadow":
        """Return a shadow that has observed nothing, with the same settings."""
        return Shadow(self._settings, patience=self._patience, leeway=self._leeway)

    def become(self, other: "Shadow") -> None:
        """Go on with what another has observed, which is not used any more.

        What was reported is not reported again, and what is expected goes on to be overdue. Deeds that await
        their conclusion are dropped: what they were decided from is not known any more.
        """
        self._state.become(other.state)
        workloads = other._workloads  # noqa: SLF001 - of the same class
        kept = {
            "_state": self._state,
            "_since": self._since,
            "_told": {
                key for key in self._told & workloads.keys() if self._workloads.get(key) == workloads[key]
            },
            "_findings": self._findings,
            "_is_following": self._is_following,
        }
        vars(self).update({**vars(other), **kept})

    def follow(self, now: Instant) -> None:
        """Begin to compare: all that is there was observed.

        Raises:
            ComparisonFailed: the core failed.
        """
        self._is_following = True
        self._decide(now)

    def observe(self, event: Event, *, now: Instant, preemption: Preempted | None = None) -> None:
        """Take in what happened.

        Args:
            event: an observation.
            now: the present instant, in nanoseconds since the Unix epoch.
            preemption: of a Workload, what is told of its preemption; None if it is not evicted for that.

        Raises:
            ComparisonFailed: the core failed on something else than the event.
        """
        self._recent.note(event, now)
        self._forget_what_was(now)
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

    def look(self, now: Instant) -> None:
        """Conclude what is due by now: of actions one at a time, since in a large cluster it takes a while.

        Raises:
            ComparisonFailed: the core failed.
        """
        self._forget_what_was(now)
        if self._unexplained and self._unexplained[0].at <= now - self._leeway:
            self._conclude(self._unexplained.popleft(), now)
        self._decide(now)
        if self._overdue(now):
            self._tell_who_waits(now)

    def _forget_what_was(self, now: Instant) -> None:
        """Remember nothing from before the leeway, and before the first action that awaits its conclusion.

        A conclusion may be late: of several that are due, each waits for the one before. What the action was
        decided from must still be known then.
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

    def next_look(self, now: Instant) -> Instant | None:
        """The earliest instant at which there may be something to conclude; None if it takes an event."""
        untold = (at + self._patience for key, at in self._since.items() if key not in self._told)
        suspected = (one.at + self._leeway for one in self._unexplained)
        times = [*untold, *suspected]
        if (woken := self._state.next_wakeup(now)) is not None:
            times.append(woken)
        return max(now, min(times)) if times else None

    def findings(self) -> list[Finding]:
        """What was concluded since this was last asked for."""
        found, self._findings = self._findings, []
        return found

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
        self._told.discard(key)
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
        """Expect nothing any more that the workload as it is now has done, or overruled."""
        expected = self._expected.reservations.pop(key, None)
        if expected is not None and workload.admission is None:
            # It changed while it waited. Whatever is thought of it now, one may have decided before that.
            self._dropped.append((now, _Expected({key: expected})))
            with _failing(self._state, "ReservationDiscarded", key):
                self._state.observe(happened.ReservationDiscarded(key, expected.uid), now=now)
        if workload.evicted or workload.finished or workload.admission is None:
            self._expected.preemptions.pop(key, None)

    def _forget(self, key: ObjectKey) -> None:
        self._workloads.pop(key, None)
        self._arrivals.pop(key, None)
        self._told.discard(key)
        self._expected.reservations.pop(key, None)
        self._expected.preemptions.pop(key, None)

    # --- what the core would do -------------------------------------------------------------------

    def _decide(self, now: Instant) -> None:
        if not self._is_following:
            return
        self._expected.add(self._state, now)
        preemptors = {one.preemptor for one in self._expected.preemptions.values()}
        waited_for = {*self._expected.reservations, *preemptors}
        self._since = {key: self._since.get(key, now) for key in sorted(waited_for)}

    def _drop_expectations(self, now: Instant) -> None:
        """Have the state hold what was observed alone."""
        expected, self._expected = self._expected, _Expected()
        if not (expected.reservations or expected.preemptions):
            return
        self._dropped.append((now, expected))
        for one in expected.reservations.values():
            with _failing(self._state, "ReservationDiscarded", one.key):
                self._state.observe(happened.ReservationDiscarded(one.key, one.uid), now=now)
        for one in expected.preemptions.values():
            with _failing(self._state, "PreemptionFailed", one.key):
                self._state.observe(happened.PreemptionFailed(one.key, one.uid), now=now)

    # --- judging what was done --------------------------------------------------------------------

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
        if len(self._unexplained) < _LOOKED_INTO_AT_ONCE and self._is_explained(
            key, action, self._state, now
        ):
            self._findings.append(Agreement(cluster_queue))
            return
        self._unexplained.append(_UnexplainedAction(key, former, action, now, opinion, cluster_queue))

    def _conclude(self, unexplained: _UnexplainedAction, now: Instant) -> None:
        """Look at a action again now that is known what came with it.

        Which heads meet in a cycle depends on what was observed before it. The manager in charge may have
        observed two changes between two cycles, and this state ran cycles after each: it then parked a head
        that would have been retried in the manager's next cycle, and another workload of that ClusterQueue
        was tried earlier. No world below has those cycles, so a action that follows from them is reported as
        a difference, although both decided by the rules.
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
        """Whether the core would do it in one of the worlds that are like this one, without expectations."""
        subjects = {key, _subject(self._workloads, key, action)}
        absences = self._absences(key, action, state)
        for copy in (AdmissionState.fork, AdmissionState.started_anew):
            for absent, undone in product(absences, self._undoings(subjects)):
                expected = self._expected_of(copy(state), absent, undone, now)
                if expected.has(key, action):
                    # What came with it was decided in the same world.
                    self._dropped.append((now, expected))
                    return True
        return False

    def _undoings(self, subjects: set[ObjectKey]) -> list[tuple[Event, ...]]:
        """What may be taken not to have changed yet.

        Nothing, workloads, all else, or everything; or what the manager in charge did: it decided on all of
        it at once, and one thing after the other is seen.
        """
        done = (one for one in self._done.values() if one.workload.key not in subjects)
        workloads: list[Event] = []
        others: list[Event] = []
        for event in self._recent.undoing():
            if not isinstance(event, happened.WorkloadChanged):
                others.append(event)
            elif event.workload.key not in subjects:
                workloads.append(event)
        return list(dict.fromkeys([(), tuple(done), tuple(workloads), tuple(others), (*workloads, *others)]))

    def _absences(
        self, key: ObjectKey, action: ManagerAction, state: AdmissionState
    ) -> list[frozenset[ObjectKey]]:
        """Who may be taken not to wait, whom the manager in charge does not count or had not seen."""
        subject = _subject(self._workloads, key, action)
        subjects = {key, subject}
        told = self._told - subjects
        arrived = self._arrivals.keys() - subjects
        absences = [frozenset[ObjectKey](), frozenset(told), frozenset(told | arrived)]
        if isinstance(action, Preempted):
            # Whose turn it was in other queues shows when they get something. A preemption is for one alone.
            own = state.queries.cluster_queue_of(subject)
            pending = state.queries.pending_workloads()
            elsewhere = {one.workload for one in pending if one.cluster_queue != own}
            absences.append(frozenset(told | arrived | elsewhere - subjects))
        return list(dict.fromkeys(absences))

    def _expected_of(
        self, state: AdmissionState, absent: Iterable[ObjectKey], undone: Iterable[Event], now: Instant
    ) -> _Expected:
        """What a state would do if these did not wait, and that had not changed.

        A workload that came and got quota since waits where its reservation is undone.
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

    # --- telling who is left waiting --------------------------------------------------------------

    def _overdue(self, now: Instant) -> list[ObjectKey]:
        return [
            key
            for key, since in self._since.items()
            if key not in self._told and now - since >= self._patience
        ]

    def _tell_who_waits(self, now: Instant) -> None:
        """Tell of those who are expected for too long, by a manager that is started just then as well.

        That one tries everybody. Who has been in charge for longer need not: whoever found nobody to preempt
        is not tried again because others took quota since, although it could preempt those now. Taking is not
        among the events that retry (semantics, Events that retry inadmissible workloads). So until the next
        such event it may be right to spare whom a new manager would preempt. The shadow decides after each
        observation, and may try a workload once those others hold quota; whoever saw several things at once
        may have tried it in the very cycle in which they took it. The API does not show who was tried when,
        so this is told as a difference, too.
        """
        self._drop_expectations(now)
        anew = self._expected_of(self._state.started_anew(), (), (), now)
        self._decide(now)
        for key in self._overdue(now):
            workload = self._workloads[key]
            queue = self._cluster_queue_of(workload)
            victims = anew.victims_of(key)
            if key not in anew.reservations and not victims:
                self._since[key] = now
                continue
            self._told.add(key)
            if self._is_held_up(workload, queue):
                continue
            opinion = self._opinion(key, now)
            kind = DisagreementKind.SPARED if opinion.victims else DisagreementKind.WAITING
            waited = StillWaiting(now - self._since[key])
            self._findings.append(Disagreement(kind, key, queue, waited, opinion))

    def _is_held_up(self, workload: Workload, queue: str) -> bool:
        """Whether it stands behind one of whom that was told already, in a queue that keeps the order."""
        if self._state.queries.queueing_strategy(queue) is not QueueingStrategy.STRICT_FIFO:
            return False
        return any(
            self._cluster_queue_of(other) == queue
            for other in (self._workloads[key] for key in sorted(self._told) if key != workload.key)
            if other.admission is None
        )

    # --- opinions ---------------------------------------------------------------------------------

    def _opinion(self, key: ObjectKey, now: Instant) -> Opinion:
        """What the core would do with a workload, with what it would do besides."""
        state, expected = self._state, self._expected
        queue = state.queries.cluster_queue_of(key) or ""
        reserved = expected.reservations.get(key)
        refusal = state.queries.parked_refusal(key) or state.queries.admissibility(key)
        behind = state.queries.held_up_by(queue)
        return Opinion(
            workload=key,
            admission=None if reserved is None else reserved.admission,
            victims=expected.victims_of(key),
            refusal=refusal,
            obstacle=None if refusal is not None else self._obstacle(key, now),
            phase=state.queries.workload_phase(key),
            instead=tuple(
                one.key
                for one in expected.reservations.values()
                if one.key != key and one.admission.cluster_queue == queue
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
    """The workload whose opinion says most: of a preempted workload, its preemptor."""
    if isinstance(action, Reserved) or not action.preemptor_uid:
        return key
    return next((each.key for each in workloads.values() if each.uid == action.preemptor_uid), key)

"""Recovery from defects of the core: builds a new state from the stores, without the object that failed.

An exception in the core leaves its state half changed, so no cycle uses this state any more. A new state
observes all objects and then replaces the old one. The object on which the core failed is quarantined until
it changes: the core treats it like an object that cannot be read. An event, a condition and metrics report
the quarantine.

If a cycle fails and the workload is not known, ``failing_queue_search`` finds the ClusterQueues with cycles
that fail. Recovery then quarantines these ClusterQueues.

A quarantined object must not let other workloads use more than the quota:

1. Workload: the quota that it holds still counts.
2. ClusterQueue: its stored cohort and quota still count, and so does the quota that its Workloads hold. The
   ClusterQueue is inactive: none of its Workloads gets quota, and none is preempted for another ClusterQueue.
   A quota that cannot be read counts as 0.
3. If the core fails on these values too, the usage of the cohort is unknown. Then no ClusterQueue of these
   cohort trees admits a Workload until the object changes:

   - for a ClusterQueue, the tree of its stored cohort;
   - for a Workload, the tree of the ClusterQueue in which it holds quota;
   - for a Cohort, its own tree and the tree of its stored parent, because one may have borrowed from the
     other.

   A ClusterQueue or Cohort without a parent shares its quota with no other tree, and pauses no tree.
"""

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from admitq.core.events import Event
from admitq.core.model import Instant, ObjectKey
from admitq.core.waiting.heads import Pause
from admitq.manager.failing_queue_search import FailingQueueSearch
from admitq.manager.guarded_writes import backoff_seconds
from admitq.manager.quarantine import Quarantine
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.runtime.resources import Resource
from admitq.translate.metadata import key_of
from admitq.translate.observations import READ_ERRORS, Observation, quarantined_event
from admitq_api.json_objects import FieldPath, value_at

log = logger(__name__)

INTERNAL_ERROR: Final = "InternalError"
"""Reason of the event about an object on which the core failed."""

CYCLE: Final = "cycle"
"""Value of the metric label ``during`` for failures in a cycle."""

_OBJECTS_PER_TURN: Final = 100
"""Objects that a new state observes before it yields to the event loop; 100 take a few milliseconds."""

ObjectId: TypeAlias = tuple[str, ObjectKey]
"""Plural of the resource, and key of the object."""


class Recoverable(Protocol):
    """A state that observes objects, decides, and can be rebuilt: the core, or a shadow."""

    def observe(self, event: Event, *, now: Instant) -> None:
        """Observe an event."""
        ...

    def trees(self) -> list[tuple[str, ...]]:
        """Return the names of the ClusterQueues of each cohort tree."""
        ...

    def pause(self, pause: Pause) -> None:
        """Exclude the heads of these ClusterQueues, and of no others, from cycles."""
        ...

    def empty(self) -> Self:
        """Return a state with the same settings that has observed nothing."""
        ...

    def replace_with(self, other: Self) -> None:
        """Take over everything that another state has observed; the other is not used any more."""
        ...


_State = TypeVar("_State", bound=Recoverable)


@dataclass
class Recovery(Generic[_State]):
    """Quarantines objects on which the core fails, and rebuilds its state.

    Args:
        state: the core, or a shadow.
        observations: how objects become events, by the plural of their resource.
        objects: returns all objects of the stores on which decisions depend.
        quarantine: the quarantined objects.
        metrics: counts failures.
        clock: wall time in nanoseconds.
        cluster_queues: the resource of ClusterQueues.
        add_unwritten_decisions: called with a new state after it has observed all objects, and before it
            decides. The function must not raise.
    """

    state: _State
    observations: Mapping[str, Observation]
    objects: Callable[[], Iterable[tuple[Resource, dict[str, Any]]]]
    quarantine: Quarantine
    metrics: Metrics
    clock: Callable[[], Instant]
    cluster_queues: Resource
    add_unwritten_decisions: Callable[[_State], None] = lambda _: None

    _failed_events: dict[ObjectId, Event] = field(default_factory=dict[ObjectId, Event])
    """Objects on which the core failed, each with the event of the version that failed."""
    _excluded: set[ObjectId] = field(default_factory=set[ObjectId])
    """Objects with a reduced version that failed, too; the core observes nothing of them."""
    _pauses: dict[ObjectId, Pause] = field(default_factory=dict[ObjectId, Pause])
    """The cohort trees with unknown usage, by the object that the core does not observe."""
    _new_state: _State | None = None
    """The state that is being built; None if none is needed."""
    _search: FailingQueueSearch = field(default_factory=FailingQueueSearch)
    _begins_search: bool = False
    """Whether a search begins after the rebuild."""
    _error: Exception | None = None
    """The error of the last cycle that failed without a known workload."""
    _retry_at: float = 0.0
    """When an inconclusive search retries the ClusterQueues that failed; by the event loop's clock."""
    _failures: int = 0
    """Consecutive failures, without a successful cycle in between."""

    @property
    def is_rebuild_due(self) -> bool:
        """Whether a new state must be built before the next cycle."""
        return self._new_state is not None

    @property
    def observing_state(self) -> _State:
        """The state that observes new events: the one that is being built, if any."""
        return self.state if self._new_state is None else self._new_state

    def record_cycle(self) -> None:
        """Record that a cycle succeeded."""
        self._failures = 0
        self._search.record_success()

    def continue_search(self) -> float | None:
        """Continue the search for ClusterQueues with failing cycles; to be called when no cycle is due.

        Returns:
            The seconds until the next call, 0 if a cycle may be due now; None if no search is in progress.
        """
        if not self._search.is_running:
            return None
        if self._search.is_inconclusive and _monotonic() >= self._retry_at:
            self._search.retry_failed_groups()
        failing = self._search.release_next_group()
        self._update_pause(self.state)
        if failing:
            self._quarantine_queues(failing)
            self._new_state = self.state.empty()
        return max(0.0, self._retry_at - _monotonic()) if self._search.is_inconclusive else 0.0

    def _quarantine_queues(self, names: Collection[str]) -> None:
        error = self._error or RuntimeError("cycles fail")
        for resource, obj in tuple(self.objects()):
            if resource == self.cluster_queues and key_of(obj).name in names:
                self._quarantine_object(resource, obj, error)

    def read_changed(self, resource: Resource, obj: dict[str, Any]) -> tuple[Event | None, bool]:
        """Read an object that was created or changed; quarantine it if it cannot be read.

        A quarantined object that has changed leaves the quarantine if it can be read.

        Returns:
            The event for the core, None if the core must not observe the object; and whether the event
            contains the whole object.
        """
        which = (resource.plural, key_of(obj))
        observation = self.observations[resource.plural]
        try:
            event = observation.changed(obj)
        except READ_ERRORS as error:
            self.quarantine.add_unreadable(resource, obj, error)
        else:
            if self._failed_events.get(which) != event:
                self._forget(which)
                self.quarantine.remove(*which)
                return event, True
        is_observed = which not in self._excluded
        event = quarantined_event(observation, obj) if is_observed else None
        if event is None or event == observation.deleted(obj):
            self._pauses[which] = uncertain_trees(resource.plural, obj)
            self._update_pause(self.state)
        return event, False

    def forget_deleted(self, resource: Resource, obj: dict[str, Any]) -> Event:
        """Forget a deleted object; return the event for the core."""
        which = (resource.plural, key_of(obj))
        self._forget(which)
        self.quarantine.remove(*which)
        return self.observations[resource.plural].deleted(obj)

    def _forget(self, which: ObjectId) -> None:
        self._failed_events.pop(which, None)
        self._excluded.discard(which)
        if self._pauses.pop(which, None) is not None:
            self._update_pause(self.state)

    def _update_pause(self, state: _State) -> None:
        """Exclude the ClusterQueues that the search pauses, and the cohort trees with unknown usage."""
        pauses = self._pauses.values()
        state.pause(
            Pause(
                self._search.paused_queues,
                cohorts=frozenset(name for pause in pauses for name in pause.cohorts),
                trees_of=frozenset(name for pause in pauses for name in pause.trees_of),
            )
        )

    @contextmanager
    def contain_failures(
        self, during: str, culprit: tuple[Resource, dict[str, Any]] | None
    ) -> Generator[None]:
        """Return a context that records its exceptions as failures of the core by ``record_failure``."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a failure on one object must not affect other objects
            self.record_failure(during, culprit, error)

    def record_failure(
        self, during: str, culprit: tuple[Resource, dict[str, Any]] | None, error: Exception
    ) -> None:
        """Record a failure of the core: quarantine the object, and request a new state.

        Args:
            during: the name of the event that the core observed, or ``cycle``; a label of the metric.
            culprit: the object on which the core failed; None if it is not known.
            error: the exception.
        """
        self._failures += 1
        key = None if culprit is None else key_of(culprit[1])
        log.error("core failed, rebuilding its state", during=during, object=str(key), exc_info=error)
        self.metrics.increment("core_failures_total", during=during)
        if culprit is not None:
            self._quarantine_object(*culprit, error)
        elif during == CYCLE:
            self._error, self._begins_search = error, not self._search.is_running
            self._search.record_failure()
            self._retry_at = _monotonic() + backoff_seconds(self._failures)
        self._new_state = self.state.empty()

    def _quarantine_object(self, resource: Resource, obj: dict[str, Any], error: Exception) -> None:
        which = (resource.plural, key_of(obj))
        try:
            event = self.observations[resource.plural].changed(obj)
        except READ_ERRORS:
            # The object is in quarantine already, so the core failed on its reduced version.
            self._excluded.add(which)
            return
        if self._failed_events.get(which) == event:
            self._excluded.add(which)
        self._failed_events[which] = event
        problem = f"internal error, the object is quarantined until it changes: {error!r}"
        self.quarantine.add(resource, obj, problem, INTERNAL_ERROR)

    async def rebuild_state(self) -> None:
        """Build a new state from the stores, and replace the old one.

        The delay before the build grows with each consecutive failure. During a search it does not grow,
        because ClusterQueues that do not fail must continue.
        """
        while (fresh := self._new_state) is not None:
            await asyncio.sleep(backoff_seconds(1 if self._search.is_running else self._failures))
            for number, (resource, obj) in enumerate(self.objects(), start=1):
                # No await between reading and observing: later events of the object must come after this one.
                if not self._observe_in_new_state(fresh, resource, obj):
                    break
                if number % _OBJECTS_PER_TURN == 0:
                    await asyncio.sleep(0)
            if self._new_state is fresh:
                self.add_unwritten_decisions(fresh)
            if self._new_state is fresh:
                self._new_state = None
                if self._begins_search:
                    self._begins_search = False
                    self._search.begin(fresh.trees())
                self._update_pause(fresh)
                self.state.replace_with(fresh)

    def _observe_in_new_state(self, fresh: _State, resource: Resource, obj: dict[str, Any]) -> bool:
        """Let the new state observe an object; return whether no failure has replaced that state."""
        event, _ = self.read_changed(resource, obj)
        if event is not None and self._new_state is fresh:
            with self.contain_failures(type(event).__name__, (resource, obj)):
                fresh.observe(event, now=self.clock())
        return self._new_state is fresh


def uncertain_trees(plural: str, obj: dict[str, Any]) -> Pause:
    """Return the cohort trees with unknown usage if the core does not observe an object."""
    match plural:
        case "clusterqueues":
            return Pause(cohorts=_names(obj, ("spec", "cohortName")))
        case "cohorts" if parent := _names(obj, ("spec", "parentName")):
            return Pause(cohorts=parent | {key_of(obj).name})
        case "workloads":
            return Pause(trees_of=_names(obj, ("status", "admission", "clusterQueue")))
        case _:
            return Pause()


def _names(obj: dict[str, Any], path: FieldPath) -> frozenset[str]:
    name = value_at(obj, path)
    return frozenset({name} if name and isinstance(name, str) else ())


def _monotonic() -> float:
    return asyncio.get_running_loop().time()

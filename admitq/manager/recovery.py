"""After a defect of the core: a new state is built from what the stores hold, without the object that failed.

A function of the core that raises leaves its state half changed. Nothing is decided with it any more. A new
state observes all objects and then takes the place of the old one. The object that the core failed on is
quarantined until it changes: the core goes on as if the object could not be read, and an event, a condition
and metrics report it. If a cycle fails and the workload is not known, ``failing_queue_search`` finds the
ClusterQueues whose cycles fail, and quarantines these.

A quarantined object must not let others admit more than the quota:

1. Of a Workload, what it holds still counts.
2. Of a ClusterQueue, its stored cohort and quota still count, and so does what its Workloads hold. It is
   inactive: none of its Workloads gets quota, and none is preempted for another ClusterQueue. A quota that
   cannot be read counts as none.
3. Where the core fails on that as well, it does not know what is used of the cohort. So no ClusterQueue of
   the cohort tree admits a Workload, until the object changes: the tree of the stored cohort of a
   ClusterQueue, the tree of the ClusterQueue in which a Workload holds quota, and the trees of a Cohort and
   of its stored parent, between which quota was borrowed. A ClusterQueue or Cohort that names no cohort above
   it shares its quota with no other tree, and pauses none.
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
from admitq.manager.quarantine import READ_ERRORS, Quarantine, quarantined_event
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.runtime.resources import Resource
from admitq.translate.metadata import key_of
from admitq.translate.observations import Observation
from admitq_api.json_objects import FieldPath, value_at

log = logger(__name__)

INTERNAL_ERROR: Final = "InternalError"
"""Reason of the event about an object that the core failed on."""

CYCLE: Final = "cycle"
"""What the core does when it decides, as failures are counted."""

_OBJECTS_PER_TURN: Final = 100
"""Objects that are observed before other tasks get their turn; so many take a few milliseconds."""

ObjectId: TypeAlias = tuple[str, ObjectKey]
"""An object by the plural of its resource, and its key."""


class Recoverable(Protocol):
    """What decides over objects that it observes, and can begin anew: the core, or a shadow."""

    def observe(self, event: Event, *, now: Instant) -> None:
        """Take in what happened."""
        ...

    def trees(self) -> list[tuple[str, ...]]:
        """Return the names of the ClusterQueues of each cohort tree."""
        ...

    def pause(self, pause: Pause) -> None:
        """Have the heads of these ClusterQueues, and of no others, take no part in cycles."""
        ...

    def empty(self) -> Self:
        """Return one that has observed nothing, with the same settings."""
        ...

    def become(self, other: Self) -> None:
        """Take the place of another, which is not used any more."""
        ...


_State = TypeVar("_State", bound=Recoverable)


@dataclass
class Recovery(Generic[_State]):
    """Keeps the state of the core reliable.

    Args:
        state: what decides.
        observations: how objects become events, by the plural of their resource.
        objects: all objects that decisions depend on, as the stores hold them.
        quarantine: reports objects that are left out.
        metrics: where failures are counted.
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
    """Objects that the core failed on, by the event that it failed to take in or to decide over."""
    _excluded: set[ObjectId] = field(default_factory=set[ObjectId])
    """Those of them of which the core cannot even take in what still counts."""
    _pauses: dict[ObjectId, Pause] = field(default_factory=dict[ObjectId, Pause])
    """The cohort trees whose usage is not known, by the object of which nothing counts."""
    _new_state: _State | None = None
    """The state that is being made."""
    _search: FailingQueueSearch = field(default_factory=FailingQueueSearch)
    _begins_search: bool = False
    """Whether a search begins with the new state."""
    _error: Exception | None = None
    """Of the last cycle that failed without a known culprit."""
    _retry_at: float = 0.0
    """When to retry ClusterQueues that failed while none is known to be sound; in seconds of the loop."""
    _failures: int = 0
    """Failures in a row, without a cycle in between that came to its end."""

    @property
    def is_rebuild_due(self) -> bool:
        """Whether a new state has to be made before anything is decided."""
        return self._new_state is not None

    @property
    def observing_state(self) -> _State:
        """The state that observes what happens now."""
        return self.state if self._new_state is None else self._new_state

    def record_cycle(self) -> None:
        """Note that the core decided without a failure."""
        self._failures = 0
        self._search.record_success()

    def continue_search(self) -> float | None:
        """Go on with the search for what makes cycles fail, as nothing is due to be decided.

        Returns:
            In how many seconds to call this again, 0 if something may be due now; None if no search goes on.
        """
        if not self._search.is_running:
            return None
        if self._search.is_inconclusive and _monotonic() >= self._retry_at:
            self._search.retry_failed_groups()
        culprits = self._search.release_next_group()
        self._update_pause(self.state)
        if culprits:
            self._quarantine_queues(culprits)
            self._new_state = self.state.empty()
        return max(0.0, self._retry_at - _monotonic()) if self._search.is_inconclusive else 0.0

    def _quarantine_queues(self, names: Collection[str]) -> None:
        error = self._error or RuntimeError("cycles fail")
        for resource, obj in tuple(self.objects()):
            if resource == self.cluster_queues and key_of(obj).name in names:
                self._quarantine_object(resource, obj, error)

    def read_changed(self, resource: Resource, obj: dict[str, Any]) -> tuple[Event | None, bool]:
        """Note that an object is as follows; it is reported if it cannot be read.

        Returns:
            What the core observes of the object, None if it cannot take in anything of it; and whether that
            is all of the object. An object that was left out and has changed is observed again.
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
        """Note that an object is gone; return what the core observes of that."""
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
        """Have those take no part in cycles that the search or an object of which nothing counts excludes."""
        pauses = self._pauses.values()
        state.pause(
            Pause(
                self._search.paused_queues,
                cohorts=frozenset(name for each in pauses for name in each.cohorts),
                trees_of=frozenset(name for each in pauses for name in each.trees_of),
            )
        )

    @contextmanager
    def contain_failures(
        self, during: str, culprit: tuple[Resource, dict[str, Any]] | None
    ) -> Generator[None]:
        """Give a context whose exceptions are failures of the core; the arguments are those of ``failed``."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - one object that the core fails on must not stop the others
            self.record_failure(during, culprit, error)

    def record_failure(
        self, during: str, culprit: tuple[Resource, dict[str, Any]] | None, error: Exception
    ) -> None:
        """Leave the state as it is and begin a new one.

        Args:
            during: what the core did, for the metric: the name of an event, or ``cycle``.
            culprit: the object that it failed on, as far as that is known.
            error: what it raised.
        """
        self._failures += 1
        key = None if culprit is None else key_of(culprit[1])
        log.error("the core failed and is started anew", during=during, object=str(key), exc_info=error)
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
            # It is known as malformed. The core failed on what is left of it.
            self._excluded.add(which)
            return
        if self._failed_events.get(which) == event:
            self._excluded.add(which)
        self._failed_events[which] = event
        problem = f"internal error, the object is quarantined until it changes: {error!r}"
        self.quarantine.add(resource, obj, problem, INTERNAL_ERROR)

    async def rebuild_state(self) -> None:
        """Make a new state of what the stores hold, and have it decide from now on.

        It begins later after each failure in a row, except in a search, in which others go on meanwhile.
        """
        while (fresh := self._new_state) is not None:
            await asyncio.sleep(backoff_seconds(1 if self._search.is_running else self._failures))
            for number, (resource, obj) in enumerate(self.objects(), start=1):
                # At once: what happens to the object from now on is observed after it.
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
                self.state.become(fresh)

    def _observe_in_new_state(self, fresh: _State, resource: Resource, obj: dict[str, Any]) -> bool:
        """Have an object observed; whether the state that is being made is still the same."""
        event, _ = self.read_changed(resource, obj)
        if event is not None and self._new_state is fresh:
            with self.contain_failures(type(event).__name__, (resource, obj)):
                fresh.observe(event, now=self.clock())
        return self._new_state is fresh


def uncertain_trees(plural: str, obj: dict[str, Any]) -> Pause:
    """The cohort trees whose usage the core does not know without an object."""
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

"""What changed a moment ago, and what it was before.

Watches of different resources do not wait for each other: one may know of a workload and not yet of its
queue's new quota, when another knows both.
"""

from dataclasses import dataclass, field

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.model import Instant

_Object = tuple[str, object]
"""A kind, and what tells an object of it from others."""


def _object_of(event: Event) -> tuple[_Object, Event | None]:
    """The object that an event tells of, and the event itself as long as the object is there."""
    match event:
        case happened.WorkloadChanged(value):
            return ("Workload", value.key), event
        case happened.WorkloadDeleted(key):
            return ("Workload", key), None
        case happened.ClusterQueueChanged(value):
            return ("ClusterQueue", value.name), event
        case happened.CohortChanged(value):
            return ("Cohort", value.name), event
        case happened.LocalQueueChanged(value):
            return ("LocalQueue", value.key), event
        case happened.ResourceFlavorChanged(value):
            return ("ResourceFlavor", value.name), event
        case happened.AdmissionCheckChanged(value):
            return ("AdmissionCheck", value.name), event
        case happened.TopologyChanged(name):
            return ("Topology", name), event
        case happened.NamespaceChanged(name):
            return ("Namespace", name), event
        case happened.LimitRangeChanged(key):
            return ("LimitRange", key), event
        case happened.RuntimeClassChanged(name):
            return ("RuntimeClass", name), event
        case happened.LocalQueueDeleted(key) | happened.LimitRangeDeleted(key):
            return (type(event).__name__.removesuffix("Deleted"), key), None
        case (
            happened.ClusterQueueDeleted(name)
            | happened.CohortDeleted(name)
            | happened.ResourceFlavorDeleted(name)
            | happened.AdmissionCheckDeleted(name)
            | happened.TopologyDeleted(name)
            | happened.NamespaceDeleted(name)
            | happened.RuntimeClassDeleted(name)
        ):
            return (type(event).__name__.removesuffix("Deleted"), name), None
        case _:
            raise TypeError(f"{type(event).__name__} tells of no object")


@dataclass(slots=True)
class RecentChanges:
    """All objects as they are, and those that changed a moment ago as they were."""

    _known: dict[_Object, Event] = field(default_factory=dict[_Object, Event])
    _former: dict[_Object, tuple[Instant, Event]] = field(
        default_factory=dict[_Object, tuple[Instant, Event]]
    )
    """The latest last."""

    def note(self, event: Event, now: Instant) -> None:
        """Take a change in. What an object was before the first of several in a row is remembered.

        That an object is new is not: who knows nothing of it decides nothing by it.
        """
        what, present = _object_of(event)
        former = self._known.get(what)
        if former == present:
            return
        if former is not None:
            first = self._former.pop(what, None)
            self._former[what] = (now, former if first is None else first[1])
        if present is None:
            self._known.pop(what, None)
        else:
            self._known[what] = present

    def forget(self, horizon: Instant) -> None:
        """Remember no more what changed before an instant."""
        while self._former and (first := next(iter(self._former.items())))[1][0] < horizon:
            del self._former[first[0]]

    def undoing(self) -> list[Event]:
        """Events that make everything what it was before the changes that are remembered."""
        return [event for _, event in self._former.values()]

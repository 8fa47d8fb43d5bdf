"""Objects that changed within the leeway, and their former values.

Watches of different resources do not wait for each other. So one observer may have a workload, but not yet
the new quota of its queue, while another observer has both.
"""

from dataclasses import dataclass, field

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.model import Instant

_Object = tuple[str, object]
"""A kind, and the identity of an object of that kind."""


def _object_of(event: Event) -> tuple[_Object, Event | None]:
    """Return the identity of the object in an event, and the event, or None if the object was deleted."""
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
            raise TypeError(f"{type(event).__name__} is not an event of an object")


@dataclass(slots=True)
class RecentChanges:
    """All objects, and the former values of those that changed within the leeway."""

    _known: dict[_Object, Event] = field(default_factory=dict[_Object, Event])
    _former: dict[_Object, tuple[Instant, Event]] = field(
        default_factory=dict[_Object, tuple[Instant, Event]]
    )
    """In the order of the changes."""

    def note(self, event: Event, now: Instant) -> None:
        """Record a change. Of several changes of one object, the value before the first is kept.

        The creation of an object is not kept, since nothing was decided by the object before.
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
        """Drop the changes before an instant."""
        while self._former and (first := next(iter(self._former.items())))[1][0] < horizon:
            del self._former[first[0]]

    def undoing(self) -> list[Event]:
        """Return the events that restore the values before the recorded changes."""
        return [event for _, event in self._former.values()]

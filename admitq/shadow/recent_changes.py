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
    kind = type(event).__name__.removesuffix("Changed").removesuffix("Deleted")
    match event:
        case happened.WorkloadChanged(value) | happened.LocalQueueChanged(value):
            return (kind, value.key), event
        case (
            happened.ClusterQueueChanged(value)
            | happened.CohortChanged(value)
            | happened.ResourceFlavorChanged(value)
            | happened.AdmissionCheckChanged(value)
            | happened.NodeChanged(value)
        ):
            return (kind, value.name), event
        case happened.LimitRangeChanged(what) | happened.PodOfOthersChanged(what):
            return (kind, what), event
        case (
            happened.TopologyChanged(what)
            | happened.NamespaceChanged(what)
            | happened.RuntimeClassChanged(what)
        ):
            return (kind, what), event
        case (
            happened.WorkloadDeleted(what)
            | happened.LocalQueueDeleted(what)
            | happened.LimitRangeDeleted(what)
            | happened.PodOfOthersDeleted(what)
        ):
            return (kind, what), None
        case (
            happened.ClusterQueueDeleted(what)
            | happened.CohortDeleted(what)
            | happened.ResourceFlavorDeleted(what)
            | happened.AdmissionCheckDeleted(what)
            | happened.TopologyDeleted(what)
            | happened.NodeDeleted(what)
            | happened.NamespaceDeleted(what)
            | happened.RuntimeClassDeleted(what)
        ):
            return (kind, what), None
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

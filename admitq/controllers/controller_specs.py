"""How controllers say what they are: records, which whoever runs them goes by."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from admitq.runtime.resources import Resource
from admitq.runtime.store import Change, Index, Key, Transform

MapToKeys = Callable[[Change], Iterable[Key]]
Reconcile = Callable[[Key], Awaitable[float | None]]


def _never(_: Change) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Watch:
    """A resource, and the keys that a change of one of its objects makes a controller look at.

    Keys of an ``urgent`` change come before all others in the controller's queue.
    """

    resource: Resource
    keys: MapToKeys
    urgent: Callable[[Change], bool] = _never


@dataclass(frozen=True, slots=True)
class ControllerSpec:
    """One controller: its reconcile function, its watches, its numbers of workers.

    ``urgent_workers`` work on keys of urgent changes alone.
    """

    name: str
    reconcile: Reconcile
    watches: tuple[Watch, ...]
    workers: int = 1
    urgent_workers: int = 0


def _none() -> Iterable[Key]:
    return ()


@dataclass(frozen=True, slots=True)
class FollowedResource:
    """A resource that is read for one controller alone, and what is kept of its objects."""

    resource: Resource
    transform: Transform | None = None


@dataclass(frozen=True, slots=True)
class StartCondition:
    """What makes a controller needed at all: something that changes of an always watched resource bring."""

    resource: Resource
    is_met: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class WhenServed:
    """A controller of a resource that a cluster may lack: it runs while the API server serves that.

    ``indexes`` are those of the resource's store, which must be there for as long as the watches of ``spec``
    are told of changes. ``known`` gives keys to look at when it begins, beside those of the resource.
    ``follows`` are resources that are read for it alone; one that is not served has no objects.
    ``label_selector`` and ``field_selector`` tell which objects are watched, ``transform`` what is kept of
    each. With ``wanted`` nothing is watched before it is so.
    """

    resource: Resource
    indexes: Mapping[str, Index]
    spec: ControllerSpec
    known: Callable[[], Iterable[Key]] = _none
    follows: tuple[FollowedResource, ...] = ()
    label_selector: str | None = None
    field_selector: str | None = None
    start_condition: StartCondition | None = None
    transform: Transform | None = None

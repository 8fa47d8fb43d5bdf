"""Records that describe controllers to the process that runs them: their watches and workers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from admitq.runtime.resources import Resource
from admitq.runtime.store import Index, Key, ObjectChange, Transform

MapToKeys = Callable[[ObjectChange], Iterable[Key]]
Reconcile = Callable[[Key], Awaitable[float | None]]


def _never(_: ObjectChange) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Watch:
    """A resource, and a function that maps a change of one of its objects to keys to reconcile.

    The work queue of the controller hands out keys of an ``urgent`` change before all others. A change that
    ``refreshes`` concerns only what the controller reports, so its keys are reconciled at a limited rate.
    """

    resource: Resource
    keys: MapToKeys
    urgent: Callable[[ObjectChange], bool] = _never
    refreshes: Callable[[ObjectChange], bool] = _never


@dataclass(frozen=True, slots=True)
class ControllerSpec:
    """A controller: its reconcile function, its watches, and its numbers of workers.

    ``urgent_workers`` handle keys of urgent changes only. ``refresh_interval`` is the minimum time, in
    seconds, between two reconciles of a key that only refresh its reports.
    """

    name: str
    reconcile: Reconcile
    watches: tuple[Watch, ...]
    workers: int = 1
    urgent_workers: int = 0
    refresh_interval: float = 0.0


def _none() -> Iterable[Key]:
    return ()


@dataclass(frozen=True, slots=True)
class FollowedResource:
    """A resource that is watched for one controller only, with a transform of its objects."""

    resource: Resource
    transform: Transform | None = None


@dataclass(frozen=True, slots=True)
class StartCondition:
    """A condition that must hold before a controller watches anything.

    Changes of ``resource``, which is always watched, can make the condition true.
    """

    resource: Resource
    is_met: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class WhenServed:
    """A controller of a resource that a cluster may lack. It runs while the API server serves the resource.

    ``indexes`` are those of the resource's store, which exists as long as the watches of ``spec`` run.
    ``known`` returns keys to reconcile at the start, besides those of the resource. ``follows`` are
    resources that are watched for this controller only; one that is not served has no objects.
    ``label_selector`` and ``field_selector`` select the objects to watch. ``transform`` reduces each
    object to what the store keeps. With a ``start_condition``, nothing is watched before the condition
    holds. The controllers ``beside`` have the same keys and the same stores.
    """

    resource: Resource
    indexes: Mapping[str, Index]
    spec: ControllerSpec
    beside: tuple[ControllerSpec, ...] = ()
    known: Callable[[], Iterable[Key]] = _none
    follows: tuple[FollowedResource, ...] = ()
    label_selector: str | None = None
    field_selector: str | None = None
    start_condition: StartCondition | None = None
    transform: Transform | None = None

    @property
    def specs(self) -> tuple[ControllerSpec, ...]:
        """All controllers that run while the resource is served."""
        return (self.spec, *self.beside)

"""A state of the core from the stored objects of a cluster, for programs that only ask.

Such a program runs beside the manager, or without one, and writes nothing. The state has observed every
object and has run the cycles that are due. So each pending workload has the verdict to which the manager
comes, too. What a cycle decided is assumed, as in the manager while its writes are in flight.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from admitq.core.asking.due_decisions import assume_due_decisions
from admitq.core.model import Instant
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState
from admitq.translate.metadata import key_of
from admitq.translate.observations import (
    READ_ERRORS,
    describe_read_error,
    observations,
    quarantined_event,
)
from admitq.translate.read_options import ReadOptions
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object that the core observes only in part, or not at all, as a manager would quarantine it."""

    plural: str
    namespace: str
    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """A state that has observed a cluster, and the objects that could not be read."""

    state: AdmissionState
    unreadable: tuple[UnreadableObject, ...] = ()


def observe_cluster(
    objects: Iterable[tuple[str, JsonObject]],
    names: Names,
    now: Instant,
    *,
    settings: CoreSettings,
    how: ReadOptions,
) -> ObservedCluster:
    """Return the state of a cluster.

    Args:
        objects: the stored objects that the core observes, each with the plural of its kind.
        names: the names of the API group.
        now: the present instant, in nanoseconds since the Unix epoch.
        settings: the settings of the core, which should be those of the manager.
        how: how Workloads are read.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    state = AdmissionState(settings, statuses=False)
    unreadable: list[UnreadableObject] = []
    by_plural = observations(names, how)
    for plural, obj in objects:
        observation = by_plural[plural]
        try:
            event = observation.changed(obj)
        except READ_ERRORS as error:
            key, problem = key_of(obj), describe_read_error(error)
            unreadable.append(UnreadableObject(plural, key.namespace, key.name, problem))
            event = quarantined_event(observation, dict(obj))
        state.observe(event, now=now)
    assume_due_decisions(state, now)
    return ObservedCluster(state, tuple(unreadable))

"""A law that does not hold, and what laws compare: events, decisions, values that are handed out."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.instructions import (
    Instruction,
    Preempt,
    RefreshClusterQueue,
    RefreshCohort,
    RefreshLocalQueue,
    ReportPending,
    ReserveQuota,
)
from admitq.core.state import AdmissionState

REFRESHES = (RefreshClusterQueue, RefreshLocalQueue, RefreshCohort)


class LawBroken(AssertionError):
    """The core does not do as it must."""


def law(holds: object, message: str, *details: object) -> None:
    """Raise if a law does not hold."""
    if not holds:
        raise LawBroken("\n  ".join([message, *map(str, details)]))


def floats_in(value: object) -> bool:
    """Whether a value handed out has a float anywhere in it."""
    if isinstance(value, float):
        return True
    if value is None or isinstance(value, (str, int, Fraction, Enum)):
        return False
    if is_dataclass(value):
        return any(floats_in(getattr(value, each.name)) for each in fields(value))
    if isinstance(value, dict):
        return any(floats_in(key) or floats_in(item) for key, item in value.items())
    assert isinstance(value, (list, tuple)), f"{value!r} is handed out"
    return any(floats_in(item) for item in value)


def object_of(event: Event) -> tuple[str, Any]:
    """The object that an event is about; events on one object keep their order."""
    kind = type(event).__name__
    for ending in ("Changed", "Deleted"):
        kind = kind.removesuffix(ending)
    match event:
        case (
            happened.WorkloadDeleted(key, _)
            | happened.ReservationFailed(key, _)
            | happened.ReservationDiscarded(key, _)
            | happened.PreemptionFailed(key, _)
        ):
            return ("Workload", key)
        case happened.WorkloadChanged(workload):
            return (kind, workload.key)
        case happened.ClusterQueueChanged(value) | happened.CohortChanged(value):
            return (kind, value.name)
        case happened.ResourceFlavorChanged(value) | happened.AdmissionCheckChanged(value):
            return (kind, value.name)
        case happened.LocalQueueChanged(value):
            return (kind, value.key)
        case (
            happened.LocalQueueDeleted(key)
            | happened.LimitRangeChanged(key)
            | happened.LimitRangeDeleted(key)
        ):
            return (kind, key)
        case happened.CyclesRequested():
            raise AssertionError(event)
        case _:
            return (kind, event.name)


def reordered(batch: Iterable[Event], seed: int) -> list[Event]:
    """Another order of the events in which those on one object keep theirs."""
    by_object: dict[tuple[str, Any], list[Event]] = {}
    for event in batch:
        by_object.setdefault(object_of(event), []).append(event)
    turns = [name for name, events in by_object.items() for _ in events]
    random.Random(seed).shuffle(turns)  # noqa: S311 an order, not a secret
    return [by_object[name].pop(0) for name in turns]


def decisions(instructions: Iterable[Instruction]) -> list[Instruction]:
    """Reservations and preemptions, in order."""
    return [each for each in instructions if isinstance(each, (ReserveQuota, Preempt))]


def told(instructions: Iterable[Instruction], *, with_refusals: bool) -> Sequence[Instruction]:
    """What a restored state must tell as well: decisions in order, then refusals in any order.

    Statuses may be refreshed without need.

    Args:
        instructions: what a state tells.
        with_refusals: whether refusals must be the same.
    """
    kept = [each for each in instructions if not isinstance(each, REFRESHES)]
    others = [each for each in kept if not isinstance(each, ReportPending)]
    if not with_refusals:
        return others
    refusals = sorted((each for each in kept if isinstance(each, ReportPending)), key=lambda each: each.key)
    return [*others, *refusals]


def has_refused_in_part(state: AdmissionState) -> bool:
    """Whether some outdated refusals were refreshed, and others will be in a later call.

    Refusals are refreshed in portions. A dump does not hold which of them belong to the portions that are to
    come, and a restored state begins with all. So the two may refresh a refusal in different calls, between
    which quota was taken.
    """
    waiting = state._world.waiting  # pyright: ignore[reportPrivateUsage]
    return waiting.has_outdated_refusals and not waiting.heads.exist()

"""How a law fails, and what laws compare: events, decisions and returned values."""

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
    """The core breaks a law."""


def check_law(holds: object, message: str, *details: object) -> None:
    """Raise if a law does not hold."""
    if not holds:
        raise LawBroken("\n  ".join([message, *map(str, details)]))


def contains_float(value: object) -> bool:
    """Whether a returned value contains a float at any depth."""
    if isinstance(value, float):
        return True
    if value is None or isinstance(value, (str, int, Fraction, Enum)):
        return False
    if is_dataclass(value):
        return any(contains_float(getattr(value, each.name)) for each in fields(value))
    if isinstance(value, dict):
        return any(contains_float(key) or contains_float(item) for key, item in value.items())
    assert isinstance(value, (list, tuple)), f"{value!r} is handed out"
    return any(contains_float(item) for item in value)


def changed_object(event: Event) -> tuple[str, Any]:
    """Return the object that an event changes. Events on one object must keep their order."""
    kind = type(event).__name__
    for ending in ("Changed", "Deleted"):
        kind = kind.removesuffix(ending)
    match event:
        case (
            happened.WorkloadDeleted(key, _)
            | happened.ReservationFailed(key, _)
            | happened.ReservationDiscarded(key, _)
            | happened.TopologyAssignmentFailed(key, _)
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
        case happened.NodeChanged(node):
            return (kind, node.name)
        case (
            happened.LocalQueueDeleted(key)
            | happened.LimitRangeChanged(key)
            | happened.LimitRangeDeleted(key)
            | happened.PodOfOthersChanged(key)
            | happened.PodOfOthersDeleted(key)
        ):
            return (kind, key)
        case happened.CyclesRequested():
            raise AssertionError(event)
        case _:
            return (kind, event.name)


def shuffle_between_objects(batch: Iterable[Event], seed: int) -> list[Event]:
    """Return the events in another order, in which events on one object keep theirs."""
    by_object: dict[tuple[str, Any], list[Event]] = {}
    for event in batch:
        by_object.setdefault(changed_object(event), []).append(event)
    turns = [name for name, events in by_object.items() for _ in events]
    random.Random(seed).shuffle(turns)  # noqa: S311 an order, not a secret
    return [by_object[name].pop(0) for name in turns]


def select_decisions(instructions: Iterable[Instruction]) -> list[Instruction]:
    """Return the reservations and preemptions, in order."""
    return [each for each in instructions if isinstance(each, (ReserveQuota, Preempt))]


def comparable_instructions(
    instructions: Iterable[Instruction], *, with_refusals: bool
) -> Sequence[Instruction]:
    """Return what a restored state must return as well: decisions in order, then refusals in any order.

    A restored state may refresh statuses without need.

    Args:
        instructions: what a state returned.
        with_refusals: whether refusals must be the same.
    """
    kept = [each for each in instructions if not isinstance(each, REFRESHES)]
    others = [each for each in kept if not isinstance(each, ReportPending)]
    if not with_refusals:
        return others
    refusals = sorted((each for each in kept if isinstance(each, ReportPending)), key=lambda each: each.key)
    return [*others, *refusals]


def has_partly_refreshed_refusals(state: AdmissionState) -> bool:
    """Whether the core refreshed some outdated refusals and will refresh others in a later call.

    The core refreshes refusals in portions. A dump does not contain the portions that are left, and a
    restored state begins with all. So the two may refresh a refusal in different calls, and quota may be
    reserved between them.
    """
    waiting = state._world.waiting  # pyright: ignore[reportPrivateUsage]
    return waiting.has_outdated_refusals and not waiting.heads.has_any()

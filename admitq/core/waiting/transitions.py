"""The types of the tables of wait states: events, causes, and states that constraints refer to.

A constraint defines its events and states in its own module. ``wait_states`` lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from admitq.core.model import Instant


class ImpossibleTransition(AssertionError):
    """The table has no such transition, which is a defect of the core."""


@dataclass(frozen=True, slots=True, eq=False)
class WaitEvent:
    """A row of a table: what happened, and the next state for each state in which it may happen."""

    name: str
    meaning: str
    next_kind: Mapping[type, type]


_S = TypeVar("_S")


def check_transition(event: WaitEvent, state: object, target: _S) -> _S:
    """Return the target of a transition, if the table has the transition.

    Raises:
        ImpossibleTransition: the table has no such transition.
    """
    if event.next_kind.get(type(state)) is not type(target):
        raise ImpossibleTransition(f"{event.name}: {type(state).__name__} does not become {target!r}")
    return target


class Cause(NamedTuple):
    """The name of something other than quota. When it changes, waiting for it ends.

    ``constraint`` names the constraint that depends on it. ``subject`` identifies it, for example by the name
    of a flavor, of a flavor and a topology, or of a namespace.
    """

    constraint: str
    subject: tuple[str, ...]


Causes: TypeAlias = tuple[Cause, ...]
"""Sorted."""


@dataclass(frozen=True, slots=True)
class Queued:
    """The workload is in the lane of its scheduling key, and waits as the lane does."""


@dataclass(frozen=True, slots=True)
class InCycle:
    """The workload is a head of the cycle that runs."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A state that holds one workload back out of the lanes.

    If an instant ends the state, the state has this instant in a field ``until``.
    """


def ends_at(state: object) -> Instant | None:
    """Return the instant that ends a state; None if only events end it."""
    return getattr(state, "until", None)


class HoldingBack(NamedTuple):
    """How a kind of state holds workloads back."""

    begins: WaitEvent
    ends: WaitEvent
    """The event that ends the state. If the state has an instant, the event is that this instant has come."""
    in_strict_queue: bool
    """Whether the state also holds workloads of StrictFIFO ClusterQueues back.

    If not, the workload becomes the blocking head there.
    """
    ends_with_change: bool
    """Whether any change of the workload ends the state.

    If not, only a change of its scheduling key or of its order does.
    """

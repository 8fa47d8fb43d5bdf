"""What the tables of wait states are made of: events, causes, and states that a constraint refers to.

A constraint defines its own in its own module, and ``wait_states`` lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from admitq.core.model import Instant


class ImpossibleTransition(AssertionError):
    """The table has no such transition, which is a defect of the core."""


@dataclass(frozen=True, slots=True, eq=False)
class WaitEvent:
    """A row of a table: what happened, and the next state by each state in which it may happen."""

    name: str
    meaning: str
    next_kind: Mapping[type, type]


_S = TypeVar("_S")


def check_transition(event: WaitEvent, state: object, target: _S) -> _S:
    """Return the target of a transition that the table has.

    Raises:
        ImpossibleTransition: the table has no such transition.
    """
    if event.next_kind.get(type(state)) is not type(target):
        raise ImpossibleTransition(f"{event.name}: {type(state).__name__} does not become {target!r}")
    return target


class Cause(NamedTuple):
    """Something other than quota that may end waiting by a change.

    ``constraint`` names the constraint that looks at it, ``subject`` says what it is: the name of a flavor,
    of a flavor and a topology, of a namespace.
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

    A state that an instant ends has it in a field ``until``.
    """


def ends_at(state: object) -> Instant | None:
    """Return the instant that ends a state; None if none does."""
    return getattr(state, "until", None)


class HoldingBack(NamedTuple):
    """How a kind of state holds workloads back."""

    begins: WaitEvent
    ends: WaitEvent
    """What ends it; where the state has an instant, that this has come."""
    in_strict_queue: bool
    """Whether it does so in a StrictFIFO ClusterQueue, too; if not, the workload stands as its head."""
    ends_with_change: bool
    """Whether any change of the workload ends it, and not only one of its scheduling key or its order."""

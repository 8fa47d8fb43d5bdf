"""Why a pending workload is not evaluated now, and what ends that: the table of wait states. Read this first.

A *lane* holds the pending workloads of one ClusterQueue that have the same scheduling key: what is found out
about one of them holds for all. Each lane has exactly one wait state, a frozen value with the data that ends
it. An *event* is a row of the table: it says for each state in which the event may occur what the next state
is. A transition that no row has raises ``ImpossibleTransition``.

The life of a lane. A cycle takes the head of each ClusterQueue from its ``Ready`` lanes, or from lanes whose
need is met. A head that gets nothing is requeued, and its lane takes the state that says why:

- ``WaitingForQuota``: quota does not suffice. The lane is *parked*: no cycle takes its workloads.
- ``RetryOnProgress``: the same, but a flavor was withheld for another head. The lane is parked.
- ``FirstOfStrictQueue``, ``WaitingForPreemption``, ``LostInCycle``: the head takes part in the cycles of its
  cohort tree that concern it (``cycle.standing_heads``), asks for none itself, and blocks the workloads
  behind it. Such a lane is *standing*.

What concerns a single workload, and not its scheduling key, holds that workload back out of the lanes. These
states and their table are at the end of this module.

To add a constraint, see docs/internals/add-a-constraint.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from admitq.core.amounts import FlavorResource
from admitq.core.model import Instant
from admitq.core.refusals import Refusal
from admitq.core.waiting.order import Position


class ImpossibleTransition(AssertionError):
    """The table has no such transition, which is a defect of the core."""


# --- states of lanes ------------------------------------------------------------------------------------


class QuotaNeed(NamedTuple):
    """An amount without which another attempt would be refused again, in the unit of the resource.

    ``cause`` names what the amount is of, as the ClusterQueue sees it: a (flavor, resource).
    """

    cause: FlavorResource
    amount: int


Needs: TypeAlias = tuple[QuotaNeed, ...]
"""Any one of these ends the waiting; none if no amount of quota does."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The head of the lane may be evaluated in the next cycle."""


@dataclass(frozen=True, slots=True)
class WaitingForQuota:
    """Quota does not suffice for any workload of the lane.

    ``refusal`` was found for a workload whose queue-order timestamp is ``refused_at``. Workloads that were
    queued earlier may preempt more and must be evaluated themselves. ``needs`` is None if more than quota
    decides, so that any return of quota to the cohort tree ends the waiting.
    """

    refusal: Refusal
    refused_at: Instant
    needs: Needs | None = None


@dataclass(frozen=True, slots=True)
class RetryOnProgress:
    """As ``WaitingForQuota``, and a flavor was withheld for another head when the lane was evaluated.

    Progress of any head of the cohort tree ends the waiting too, because that flavor may then be withheld no
    longer. Progress is a reservation, a preemption, or reserved capacity that is given up.
    """

    refusal: Refusal
    refused_at: Instant
    needs: Needs | None = None


@dataclass(frozen=True, slots=True)
class FirstOfStrictQueue:
    """The head of a StrictFIFO ClusterQueue was refused; workloads behind it must not overtake it."""

    head: Position
    needs: Needs | None = None


@dataclass(frozen=True, slots=True)
class WaitingForPreemption:
    """The head is a preemptor whose targets have not left; the cohort tree keeps its capacity for it."""

    head: Position
    needs: None = None


@dataclass(frozen=True, slots=True)
class LostInCycle:
    """Another head of the same cycle took, or holds, what the head needs."""

    head: Position
    needs: None = None


Parked: TypeAlias = WaitingForQuota | RetryOnProgress
Standing: TypeAlias = FirstOfStrictQueue | WaitingForPreemption | LostInCycle
LaneState: TypeAlias = Ready | Parked | Standing

READY: Final = Ready()
PARKED: Final = (WaitingForQuota, RetryOnProgress)
STANDING: Final = (FirstOfStrictQueue, WaitingForPreemption, LostInCycle)


# --- the table --------------------------------------------------------------------------------------------


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


def _each(kinds: tuple[type, ...]) -> dict[type, type]:
    return {kind: kind for kind in kinds}


def _all_to(kinds: tuple[type, ...], target: type) -> dict[type, type]:
    return dict.fromkeys(kinds, target)


# What becomes of a head that a cycle evaluated.
HEAD_REFUSED: Final = WaitEvent(
    "head refused", "No quota suffices for the head, and it can preempt nothing.", {Ready: WaitingForQuota}
)
HEAD_REFUSED_AFTER_LOSS: Final = WaitEvent(
    "head refused after a loss",
    "The same, and a flavor that it tried was withheld for another head.",
    {Ready: RetryOnProgress},
)
STRICT_HEAD_REFUSED: Final = WaitEvent(
    "head of a StrictFIFO queue refused", "Nothing suffices for it.", {Ready: FirstOfStrictQueue}
)
PREEMPTION_BEGUN: Final = WaitEvent(
    "preemption begun",
    "The head waits for targets to leave: its own, or those of another head.",
    {Ready: WaitingForPreemption},
)
HEAD_LOST: Final = WaitEvent(
    "head lost", "Another head of the cycle took or holds what it needs.", {Ready: LostInCycle}
)
NEEDS_KNOWN: Final = WaitEvent(
    "needs known",
    "At the end of the cycle, when nothing is withheld any more: the amounts that would end the waiting.",
    _each((*PARKED, FirstOfStrictQueue)),
)
REFUSAL_REFRESHED: Final = WaitEvent(
    "refusal refreshed", "Quota that came back does not suffice, but changes the message.", _each(PARKED)
)

# What ends the waiting.
NEED_MET: Final = WaitEvent(
    "need met",
    "A needed amount is available, and the head is the next of its ClusterQueue.",
    _all_to((*PARKED, FirstOfStrictQueue), Ready),
)
QUOTA_RETURNED: Final = WaitEvent(
    "quota returned",
    "Quota came back to the cohort tree, or other workloads may be preempted; ends waiting without needs.",
    _all_to((*PARKED, *STANDING), Ready),
)
PROGRESS_MADE: Final = WaitEvent(
    "progress made",
    "A head of the cohort tree reserved, preempted, or gave reserved capacity up.",
    {RetryOnProgress: Ready},
)
TREE_CYCLE_BEGUN: Final = WaitEvent(
    "cycle of the tree begun",
    "Another head of the cycle concerns the standing head, which takes part in it.",
    _all_to(STANDING, Ready),
)
CANDIDATE_LEAVES: Final = WaitEvent(
    "candidate leaves",
    "A workload that the standing head may preempt began to leave: it comes first among the candidates.",
    _all_to(STANDING, Ready),
)
HEAD_OVERTAKEN: Final = WaitEvent(
    "head overtaken", "A workload that comes before the standing head is evaluated.", _all_to(STANDING, Ready)
)
HEAD_CHANGED: Final = WaitEvent(
    "head changed", "The standing head left, was changed, or its namespace was.", _all_to(STANDING, Ready)
)
EARLIER_WORKLOAD_QUEUED: Final = WaitEvent(
    "earlier workload queued",
    "A workload that was queued before the refused one entered the lane.",
    _all_to(PARKED, Ready),
)
TREE_EDITED: Final = WaitEvent(
    "tree edited",
    "Quota, weights, limits or parents of the cohort tree changed.",
    _all_to((*PARKED, *STANDING), Ready),
)
CLUSTER_QUEUE_CHANGED: Final = WaitEvent(
    "ClusterQueue changed",
    "Its specification, a flavor of it, or whether it is active changed.",
    _all_to((*PARKED, *STANDING), Ready),
)
BATCH_DUE: Final = WaitEvent(
    "batch due",
    "The period is over in which causes of the cohort tree are collected (setting requeueBatchPeriod).",
    _all_to((*PARKED, *STANDING), Ready),
)
RETRY_REQUESTED: Final = WaitEvent(
    "retry requested", "A check that no cause was missed.", _all_to((*PARKED, *STANDING), Ready)
)
LANE_EMPTIED: Final = WaitEvent("lane emptied", "No workload has its scheduling key.", _all_to(PARKED, Ready))

LANE_EVENTS: Final = (
    HEAD_REFUSED,
    HEAD_REFUSED_AFTER_LOSS,
    STRICT_HEAD_REFUSED,
    PREEMPTION_BEGUN,
    HEAD_LOST,
    NEEDS_KNOWN,
    REFUSAL_REFRESHED,
    NEED_MET,
    QUOTA_RETURNED,
    PROGRESS_MADE,
    TREE_CYCLE_BEGUN,
    CANDIDATE_LEAVES,
    HEAD_OVERTAKEN,
    HEAD_CHANGED,
    EARLIER_WORKLOAD_QUEUED,
    TREE_EDITED,
    CLUSTER_QUEUE_CHANGED,
    BATCH_DUE,
    RETRY_REQUESTED,
    LANE_EMPTIED,
)
"""The table of lanes."""

EVENT_INTO: Final[Mapping[type, WaitEvent]] = {
    WaitingForQuota: HEAD_REFUSED,
    RetryOnProgress: HEAD_REFUSED_AFTER_LOSS,
    FirstOfStrictQueue: STRICT_HEAD_REFUSED,
    WaitingForPreemption: PREEMPTION_BEGUN,
    LostInCycle: HEAD_LOST,
}
"""By state, the event with which it begins."""

LANE_STATES: Final = (Ready, *PARKED, *STANDING)


# --- states of single workloads ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arriving:
    """The workload is about to enter its ClusterQueue."""


@dataclass(frozen=True, slots=True)
class Queued:
    """The workload is in the lane of its scheduling key, and waits as the lane does."""


@dataclass(frozen=True, slots=True)
class InCycle:
    """The workload is a head of the cycle that runs."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The workload must not be evaluated before an instant; None: before its Requeued condition is true."""

    until: Instant | None


@dataclass(frozen=True, slots=True)
class NamespaceNotSelected:
    """The ClusterQueue does not select the namespace of the workload."""


@dataclass(frozen=True, slots=True)
class InvalidWorkload:
    """The workload itself is refused: its resources are invalid, or an admission check failed."""


@dataclass(frozen=True, slots=True)
class QueueUnusable:
    """The cohort tree is cyclic, or too many admission checks apply to the flavors that the workload gets."""


@dataclass(frozen=True, slots=True)
class Departed:
    """The workload left its ClusterQueue: it reserved quota, ended, or moved to another one."""


HeldBack: TypeAlias = Backoff | NamespaceNotSelected | InvalidWorkload | QueueUnusable
WorkloadState: TypeAlias = Arriving | Queued | InCycle | HeldBack | Departed

ARRIVING: Final = Arriving()
QUEUED: Final = Queued()
IN_CYCLE: Final = InCycle()
DEPARTED: Final = Departed()
HELD_BACK: Final = (Backoff, NamespaceNotSelected, InvalidWorkload, QueueUnusable)

NOMINATED: Final = WaitEvent("nominated", "A cycle takes the workload as a head.", {Queued: InCycle})
REQUEUED: Final = WaitEvent("requeued", "The cycle gave the head nothing.", {InCycle: Queued})
ENQUEUED: Final = WaitEvent("enqueued", "The workload became pending.", {Arriving: Queued})
BACKOFF_SET: Final = WaitEvent(
    "backoff set",
    "The workload was evicted and must wait before its next attempt.",
    _all_to((Arriving, Queued, *HELD_BACK), Backoff),
)
NAMESPACE_REFUSED: Final = WaitEvent(
    "namespace refused", "A cycle found that the namespace is not selected.", {InCycle: NamespaceNotSelected}
)
WORKLOAD_REFUSED: Final = WaitEvent(
    "workload refused", "A cycle found that the workload is invalid.", {InCycle: InvalidWorkload}
)
QUEUE_REFUSED: Final = WaitEvent(
    "ClusterQueue refused", "A cycle found that the ClusterQueue cannot admit it.", {InCycle: QueueUnusable}
)
BACKOFF_ENDED: Final = WaitEvent("backoff ended", "The instant has come.", {Backoff: Queued})
WORKLOAD_CHANGED: Final = WaitEvent(
    "workload changed", "The workload was changed.", _all_to((Queued, *HELD_BACK), Queued)
)
REQUESTS_CHANGED: Final = WaitEvent(
    "requests changed",
    "A LimitRange, a RuntimeClass or the replaced workload changed what it asks for.",
    _all_to((Queued, InvalidWorkload), Queued),
)
NAMESPACE_SELECTED: Final = WaitEvent(
    "namespace selected", "Labels of the namespace or the selector changed.", {NamespaceNotSelected: Queued}
)
QUEUE_RECONSIDERED: Final = WaitEvent(
    "ClusterQueue reconsidered",
    "The cohort tree, the ClusterQueue or its quota changed.",
    {QueueUnusable: Queued},
)
STRATEGY_CHANGED: Final = WaitEvent(
    "strategy changed", "The queueing strategy of the ClusterQueue changed.", {InvalidWorkload: Queued}
)
ORDER_CHANGED: Final = WaitEvent(
    "order changed", "The workload is sorted anew among those that wait.", {Queued: Queued}
)
DEQUEUED: Final = WaitEvent(
    "dequeued",
    "The workload is not pending in this ClusterQueue any more.",
    _all_to((Arriving, Queued, InCycle, *HELD_BACK), Departed),
)

WORKLOAD_EVENTS: Final = (
    ENQUEUED,
    NOMINATED,
    REQUEUED,
    BACKOFF_SET,
    NAMESPACE_REFUSED,
    WORKLOAD_REFUSED,
    QUEUE_REFUSED,
    BACKOFF_ENDED,
    WORKLOAD_CHANGED,
    REQUESTS_CHANGED,
    NAMESPACE_SELECTED,
    QUEUE_RECONSIDERED,
    STRATEGY_CHANGED,
    ORDER_CHANGED,
    DEQUEUED,
)
"""The table of single workloads."""

HELD_BACK_BY: Final[Mapping[type, WaitEvent]] = {
    Backoff: BACKOFF_SET,
    NamespaceNotSelected: NAMESPACE_REFUSED,
    InvalidWorkload: WORKLOAD_REFUSED,
    QueueUnusable: QUEUE_REFUSED,
}
"""By state, the event with which it begins."""

WORKLOAD_STATES: Final = (Arriving, Queued, InCycle, *HELD_BACK, Departed)

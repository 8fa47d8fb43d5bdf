"""Whether cycles evaluate a pending workload, and what changes that: the table of wait states. Read first.

A *lane* holds the pending workloads of one ClusterQueue that have the same scheduling key: what is found out
about one of them holds for all. Each lane has exactly one wait state, a frozen value with the data that ends
it. An *event* is a row of the table: it says for each state in which the event may occur what the next state
is. A transition that no row has raises ``ImpossibleTransition``.

The life of a lane. A cycle takes one workload of each ClusterQueue, its *head*: the first workload of all
lanes that are ``Ready`` or whose need is met. The lane of the head becomes ``Ready``, if it is not. A head
that gets nothing is requeued, and its lane takes the state that says why:

- ``Ready``, if the next cycle may have another result. A *scan* is the attempts of a head from its first
  flavor on, over one cycle or several.

  - A head that lost to another head: any head of the cohort tree made progress since its scan began. Or it
    has flavors left and did not stand before (gate FlavorFungibilityPreserveScanProgress).
  - A head that flavors refused: it has flavors left, or the tree changed since its scan began.
  - Any head, if admission is halted.
- ``WaitingForQuota``: the head is refused by all flavors. The lane is *parked*: no cycle takes its workloads
  until the waiting ends or a need is met. Other lanes of the ClusterQueue go on.
- ``RetryOnProgress``: the remaining flavors refuse the head, and an earlier attempt of the scan lost to
  another head. The lane is parked.
- ``LostInCycle``, ``WaitingForPreemption``, ``FirstOfStrictQueue``: the head waits, and blocks all
  workloads behind it in its ClusterQueue, in whatever lane. Alone it starts no cycle. It joins cycles of
  its cohort tree whose heads may change what it looks at (``cycle.standing_heads``); a StrictFIFO head
  joins all cycles of its tree. Such a head and its lane are *standing*; a ClusterQueue has at most one.
  Workloads that come before the standing head overtake it, also those of its own lane. In a StrictFIFO
  queue, a head that all flavors refuse stands and is never parked.

*Progress* is a reservation, the preemption of a workload that was not leaving, or reserved capacity that is
given up, by any head of the cohort tree. *Reserved capacity* is withheld from other heads of a cycle for a
head that gets nothing yet. It is given up when all flavors refuse that head, or when it stands no more.

Constraints other than quota have *causes*: names of what they look at. The state of a lane that such a
constraint refused has its causes. A change of any of them ends the waiting, and so does any return of quota.

A reason that applies to one workload, and not to all with its scheduling key, holds that workload back out of
the lanes. These states and their table are at the end of this module. In a StrictFIFO ClusterQueue,
``InvalidWorkload`` and ``QueueUnusable`` do not hold back: the workload becomes the standing head instead.
Too many admission checks for the flavors of one workload are the exception.

To add a constraint, see docs/internals/add-a-constraint.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from admitq.core.amounts import FlavorResource
from admitq.core.model import Instant
from admitq.core.refusals import Refusal
from admitq.core.waiting.order import Position
from admitq.core.waiting.transitions import Causes, HeldBack, HoldingBack, InCycle, Queued, WaitEvent

# --- states of lanes ------------------------------------------------------------------------------------


class QuotaNeed(NamedTuple):
    """An amount of a (flavor, resource) without which another attempt would be refused again.

    ``amount`` is in the unit of the resource.
    """

    pair: FlavorResource
    amount: int


Needs: TypeAlias = tuple[QuotaNeed, ...]
"""What return of quota ends the waiting of a lane.

- Amounts: the return that makes any one of them available.
- None of them, ``()``: no return of quota.
- ``None`` instead: any return of quota to the cohort tree.
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """The head of the lane may be evaluated in the next cycle."""


@dataclass(frozen=True, slots=True)
class WaitingForQuota:
    """All flavors refuse the head: for quota, for another constraint, or for a closed preemption gate.

    ``refusal`` was found for a workload whose queue-order timestamp is ``refused_at``. It holds for the
    workloads of the lane that were queued no earlier: those before them may preempt more. ``needs`` is None
    if more than unused quota decides: the ClusterQueue may preempt, the workload may run with fewer pods or
    replaces another one, or there are causes. ``causes`` end the waiting, too.
    """

    refusal: Refusal
    refused_at: Instant
    needs: Needs | None = None
    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class RetryOnProgress:
    """As ``WaitingForQuota``, but the head lost one of the flavors to another head, and may get it later.

    Progress in the cohort tree ends the waiting, too.
    """

    refusal: Refusal
    refused_at: Instant
    needs: Needs | None = None
    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class FirstOfStrictQueue:
    """The head of a StrictFIFO ClusterQueue was refused; workloads behind it must not overtake it.

    ``needs`` and ``causes`` are as in ``WaitingForQuota``.
    """

    head: Position
    needs: Needs | None = None
    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class WaitingForPreemption:
    """The head fits once targets have left, its own or those of another head; its capacity is reserved.

    Any return of quota ends the waiting.
    """

    head: Position
    needs: None = None
    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class LostInCycle:
    """The head needs capacity that is reserved for another head, or the same targets, and more than these.

    Had any head of the cohort tree made progress since the scan of flavors began, this lane would be
    ``Ready``. Any return of quota ends the waiting.
    """

    head: Position
    needs: None = None
    causes: Causes = ()


Parked: TypeAlias = WaitingForQuota | RetryOnProgress
Blocking: TypeAlias = FirstOfStrictQueue | WaitingForPreemption | LostInCycle
LaneState: TypeAlias = Ready | Parked | Blocking

READY: Final = Ready()
PARKED: Final = (WaitingForQuota, RetryOnProgress)
BLOCKING: Final = (FirstOfStrictQueue, WaitingForPreemption, LostInCycle)


# --- the table --------------------------------------------------------------------------------------------


def _each(kinds: tuple[type, ...]) -> dict[type, type]:
    return {kind: kind for kind in kinds}


def _all_to(kinds: tuple[type, ...], target: type) -> dict[type, type]:
    return dict.fromkeys(kinds, target)


# What becomes of a head that a cycle evaluated.
HEAD_REFUSED: Final = WaitEvent("head refused", "All flavors refuse the head.", {Ready: WaitingForQuota})
HEAD_REFUSED_AFTER_LOSS: Final = WaitEvent(
    "head refused after a loss",
    "The remaining flavors refuse the head, and an earlier attempt of the scan lost to another head.",
    {Ready: RetryOnProgress},
)
STRICT_HEAD_REFUSED: Final = WaitEvent(
    "head of a StrictFIFO queue refused",
    "All flavors refuse the head, or a reason that holds nothing back in a StrictFIFO queue.",
    {Ready: FirstOfStrictQueue},
)
PREEMPTION_BEGUN: Final = WaitEvent(
    "preemption begun",
    "The head preempts targets, or it fits once those of another head have left.",
    {Ready: WaitingForPreemption},
)
HEAD_LOST: Final = WaitEvent(
    "head lost",
    "Another head of the cycle holds what the head needs, and the next cycle would not differ.",
    {Ready: LostInCycle},
)
NEEDS_KNOWN: Final = WaitEvent(
    "needs known",
    "At the end of the cycle: only unused quota decides, and from now on these amounts end the waiting.",
    _each((*PARKED, FirstOfStrictQueue)),
)
REFUSAL_REFRESHED: Final = WaitEvent(
    "refusal refreshed", "Quota that returned does not suffice, but changes the message.", _each(PARKED)
)

# What ends the waiting.
NEED_MET: Final = WaitEvent(
    "need met",
    "A needed amount is available, and a cycle takes the first workload of the lane as a head.",
    _all_to((*PARKED, FirstOfStrictQueue), Ready),
)
QUOTA_RETURNED: Final = WaitEvent(
    "quota returned",
    "Quota returned to the cohort tree, or other workloads may be preempted. Lanes with needs go on waiting.",
    _all_to((*PARKED, *BLOCKING), Ready),
)
PROGRESS_MADE: Final = WaitEvent(
    "progress made",
    "A head of the cohort tree reserved, preempted, or gave up reserved capacity.",
    {RetryOnProgress: Ready},
)
TREE_CYCLE_BEGUN: Final = WaitEvent(
    "cycle of the tree begun",
    "Another head of the cycle concerns the standing head, which takes part in it.",
    _all_to(BLOCKING, Ready),
)
CANDIDATE_LEAVES: Final = WaitEvent(
    "candidate leaves",
    "A workload that the standing head may preempt began to leave: it comes first among the candidates.",
    _all_to(BLOCKING, Ready),
)
HEAD_OVERTAKEN: Final = WaitEvent(
    "head overtaken", "A workload that comes before the standing head is evaluated.", _all_to(BLOCKING, Ready)
)
HEAD_CHANGED: Final = WaitEvent(
    "head changed",
    "The standing head left, or it was changed, or labels of its namespace were.",
    _all_to(BLOCKING, Ready),
)
EARLIER_WORKLOAD_QUEUED: Final = WaitEvent(
    "earlier workload queued",
    "A workload that was queued before the refused one entered the lane.",
    _all_to(PARKED, Ready),
)
TREE_EDITED: Final = WaitEvent(
    "tree edited",
    "Quota, weights, limits or parents of the cohort tree changed.",
    _all_to((*PARKED, *BLOCKING), Ready),
)
CLUSTER_QUEUE_CHANGED: Final = WaitEvent(
    "ClusterQueue changed",
    "Its specification, a flavor of it, or whether it is active changed.",
    _all_to((*PARKED, *BLOCKING), Ready),
)
CONSTRAINT_CHANGED: Final = WaitEvent(
    "constraint changed",
    "What a constraint other than quota looks at changed. Lanes that it did not refuse go on waiting.",
    _all_to((*PARKED, *BLOCKING), Ready),
)
BATCH_DUE: Final = WaitEvent(
    "batch due",
    "The period is over in which causes of the cohort tree are collected (setting requeueBatchPeriod).",
    _all_to((*PARKED, *BLOCKING), Ready),
)
RETRY_REQUESTED: Final = WaitEvent(
    "retry requested",
    "A check wants all workloads evaluated; in operation, nothing does.",
    _all_to((*PARKED, *BLOCKING), Ready),
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
    CONSTRAINT_CHANGED,
    BATCH_DUE,
    RETRY_REQUESTED,
    LANE_EMPTIED,
)
"""The table of lanes."""

EVENT_INTO_LANE_STATE: Final[Mapping[type, WaitEvent]] = {
    WaitingForQuota: HEAD_REFUSED,
    RetryOnProgress: HEAD_REFUSED_AFTER_LOSS,
    FirstOfStrictQueue: STRICT_HEAD_REFUSED,
    WaitingForPreemption: PREEMPTION_BEGUN,
    LostInCycle: HEAD_LOST,
}
"""By state, the event with which it begins."""

LANE_STATES: Final = (Ready, *PARKED, *BLOCKING)


# --- states of single workloads ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arriving:
    """The workload is about to enter its ClusterQueue."""


@dataclass(frozen=True, slots=True)
class Backoff(HeldBack):
    """The workload must not be evaluated before an instant; None: before its Requeued condition is true.

    That condition is a change of the workload.
    """

    until: Instant | None


@dataclass(frozen=True, slots=True)
class NamespaceNotSelected(HeldBack):
    """The ClusterQueue does not select the namespace of the workload.

    Found when a cycle takes the workload. A workload in a parked lane is not checked and stays there.
    """


@dataclass(frozen=True, slots=True)
class InvalidWorkload(HeldBack):
    """The workload itself is refused: its resources are invalid, or an admission check failed."""


@dataclass(frozen=True, slots=True)
class QueueUnusable(HeldBack):
    """The ClusterQueue cannot admit the workload, whatever quota there is.

    It is inactive, or its cohort tree is cyclic. Or it is a StrictFIFO queue, and too many admission checks
    apply to the flavors that this workload gets; ``causes`` may give it others.
    """

    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class Departed:
    """The workload left its ClusterQueue: it reserved quota, ended, or moved to another one."""


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
    "The workload was evicted, or its reservation could not be written, and must wait for its next attempt.",
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
BACKOFF_ENDED: Final = WaitEvent("backoff ended", "The instant of the backoff has come.", {Backoff: Queued})
WORKLOAD_CHANGED: Final = WaitEvent(
    "workload changed",
    "The workload was changed; *backoff set* follows if it must still wait.",
    _all_to((Queued, *HELD_BACK), Queued),
)
REQUESTS_CHANGED: Final = WaitEvent(
    "requests changed",
    "A LimitRange, a RuntimeClass, or the workload that it replaces changed what it requests.",
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
    "order changed", "The workload gets another position among those that wait.", {Queued: Queued}
)
DEQUEUED: Final = WaitEvent(
    "dequeued",
    "The workload is not pending in this ClusterQueue any more.",
    _all_to((Arriving, Queued, InCycle, *HELD_BACK), Departed),
)

HOLDING_BACK: Final[Mapping[type, HoldingBack]] = {
    Backoff: HoldingBack(BACKOFF_SET, BACKOFF_ENDED, in_strict_queue=True, ends_with_change=True),
    NamespaceNotSelected: HoldingBack(
        NAMESPACE_REFUSED, NAMESPACE_SELECTED, in_strict_queue=True, ends_with_change=False
    ),
    InvalidWorkload: HoldingBack(
        WORKLOAD_REFUSED, REQUESTS_CHANGED, in_strict_queue=False, ends_with_change=True
    ),
    QueueUnusable: HoldingBack(
        QUEUE_REFUSED, QUEUE_RECONSIDERED, in_strict_queue=False, ends_with_change=False
    ),
}
"""The table of states that hold a workload back; ``HELD_BACK`` has the same states."""

WORKLOAD_EVENTS: Final = (
    ENQUEUED,
    NOMINATED,
    REQUEUED,
    *(row.begins for row in HOLDING_BACK.values()),
    *(row.ends for row in HOLDING_BACK.values()),
    WORKLOAD_CHANGED,
    STRATEGY_CHANGED,
    ORDER_CHANGED,
    DEQUEUED,
)
"""The table of single workloads."""

WORKLOAD_STATES: Final = (Arriving, Queued, InCycle, *HELD_BACK, Departed)

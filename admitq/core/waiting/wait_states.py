"""The wait states of pending workloads, and the table of their transitions. Read this module first.

A *lane* holds the pending workloads of one ClusterQueue that have the same scheduling key. What a cycle finds
out about one of these workloads holds for all of them. Each lane has exactly one wait state: a frozen value
with the data that decides what ends the state. An *event* is a row of the table. It maps each state in which
the event may occur to the next state. A transition that no row has raises ``ImpossibleTransition``.

A cycle takes one workload of each ClusterQueue, its *head*: the first workload of all lanes that are
``Ready`` or have a met need. The lane of the head becomes ``Ready``, if it is not. A head that gets nothing
is requeued, and its lane takes one of these states. A *scan* is the attempts of a head from its first flavor
on, over one cycle or several.

- ``Ready``: the next cycle may have another result. This is so in three cases:

  - The head lost to another head. Either a head of the cohort tree made progress since the scan began. Or the
    head has flavors left, and did not block its ClusterQueue before (gate
    FlavorFungibilityPreserveScanProgress).
  - Flavors refused the head. It has flavors left, or the tree changed since the scan began.
  - Admission is halted.
- ``WaitingForQuota``: all flavors refuse the head. The lane is *parked*: no cycle takes its workloads until
  the waiting ends or a need is met. Cycles still evaluate other lanes of the ClusterQueue.
- ``RetryOnProgress``: the remaining flavors refuse the head, and an earlier attempt of the scan lost to
  another head. The lane is parked.
- ``LostInCycle``, ``WaitingForPreemption``, ``FirstOfStrictQueue``: the head is a *blocking head*. It waits,
  and blocks all workloads behind it in its ClusterQueue, of whatever lane.

A blocking head does not start a cycle. It joins cycles of its cohort tree with heads that may change its
result (``cycle.blocking_heads``). The blocking head of a StrictFIFO ClusterQueue joins all cycles of its
tree. A ClusterQueue has at most one blocking head. Workloads that come before the blocking head overtake it,
also workloads of its own lane. A StrictFIFO queue has no parked head: if all flavors refuse its head, the
head blocks.

*Progress* is made when a head of the cohort tree reserves quota, preempts a workload that was not leaving, or
gives up reserved capacity. *Reserved capacity* is withheld from other heads of a cycle for a head that gets
nothing yet. The head gives it up when all flavors refuse the head, or when it no longer blocks.

Constraints other than quota have *causes*: names of the things on which they decide. If such a constraint
refused a lane, the state of the lane has its causes. A change of one of these causes ends the waiting. So
does any return of quota, unless the lane only lacks room in topologies.

Some reasons apply to one workload, and not to all with its scheduling key. They hold the workload back out of
the lanes. These states and their table are at the end of this module. In a StrictFIFO ClusterQueue,
``InvalidWorkload`` and ``QueueUnusable`` do not hold the workload back: it becomes the blocking head instead.
There is one exception: the flavors of one workload have too many admission checks.

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
    """An amount of a (flavor, resource). Another attempt is refused again while this amount is not available.

    ``amount`` is in the unit of the resource.
    """

    pair: FlavorResource
    amount: int


Needs: TypeAlias = tuple[QuotaNeed, ...]
"""Which return of quota ends the waiting of a lane.

- Amounts: a return that makes one of the amounts available.
- No amount, ``()``: no return of quota.
- ``None``: any return of quota to the cohort tree.
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """The head of the lane may be evaluated in the next cycle."""


@dataclass(frozen=True, slots=True)
class WaitingForQuota:
    """All flavors refuse the head: for quota, for another constraint, or for a closed preemption gate.

    ``refusal`` was found for a workload with queue-order timestamp ``refused_at``. It holds for workloads of
    the lane that were queued at this instant or later. Workloads that were queued earlier may preempt more.
    ``needs`` is None if more than unused quota decides: the ClusterQueue may preempt, the workload may run
    with fewer pods, it replaces another workload, or there are causes. If the lane has quota in all flavors
    and only lacks room in their topologies, no return of quota helps. A change of a cause ends the waiting,
    too.
    """

    refusal: Refusal
    refused_at: Instant
    needs: Needs | None = None
    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class RetryOnProgress:
    """As ``WaitingForQuota``, but the head lost a flavor to another head, and may get this flavor later.

    Progress in the cohort tree ends the waiting, too.
    """

    refusal: Refusal
    refused_at: Instant
    needs: Needs | None = None
    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class FirstOfStrictQueue:
    """The head of a StrictFIFO ClusterQueue was refused. Workloads behind the head must not overtake it.

    ``needs`` and ``causes`` are as in ``WaitingForQuota``.
    """

    head: Position
    needs: Needs | None = None
    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class WaitingForPreemption:
    """The head fits once its targets, or the targets of another head, have left. Its capacity is reserved.

    Any return of quota ends the waiting.
    """

    head: Position
    needs: None = None
    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class LostInCycle:
    """Another head holds capacity or targets that this head needs, and frees too little for both.

    No head of the cohort tree made progress since the scan of flavors began: else the lane would be
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


# Results of the evaluation of a head.
HEAD_REFUSED: Final = WaitEvent("head refused", "All flavors refuse the head.", {Ready: WaitingForQuota})
HEAD_REFUSED_AFTER_LOSS: Final = WaitEvent(
    "head refused after a loss",
    "The remaining flavors refuse the head, and an earlier attempt of the scan lost to another head.",
    {Ready: RetryOnProgress},
)
STRICT_HEAD_REFUSED: Final = WaitEvent(
    "head of a StrictFIFO queue refused",
    "The head is refused, and the reason does not hold workloads of a StrictFIFO queue back.",
    {Ready: FirstOfStrictQueue},
)
PREEMPTION_BEGUN: Final = WaitEvent(
    "preemption begun",
    "The head preempts targets, or it fits once the targets of another head have left.",
    {Ready: WaitingForPreemption},
)
HEAD_LOST: Final = WaitEvent(
    "head lost",
    "Another head of the cycle holds what the head needs, and the next cycle would have the same result.",
    {Ready: LostInCycle},
)
NEEDS_KNOWN: Final = WaitEvent(
    "needs known",
    "Only unused quota decides. At the end of the cycle, the needed amounts are known; they end the waiting.",
    _each((*PARKED, FirstOfStrictQueue)),
)
REFUSAL_REFRESHED: Final = WaitEvent(
    "refusal refreshed", "The quota that returned is not enough, but it changes the message.", _each(PARKED)
)

# What ends the waiting.
NEED_MET: Final = WaitEvent(
    "need met",
    "A needed amount is available, and a cycle takes the first workload of the lane as a head.",
    _all_to((*PARKED, FirstOfStrictQueue), Ready),
)
QUOTA_RETURNED: Final = WaitEvent(
    "quota returned",
    "Quota returned to the cohort tree, or other workloads may be preempted. Lanes with needs still wait.",
    _all_to((*PARKED, *BLOCKING), Ready),
)
PROGRESS_MADE: Final = WaitEvent(
    "progress made",
    "A head of the cohort tree reserved, preempted, or gave up reserved capacity.",
    {RetryOnProgress: Ready},
)
TREE_CYCLE_BEGUN: Final = WaitEvent(
    "cycle of the tree begun",
    "The blocking head joins the cycle, because another head of the cycle may change its result.",
    _all_to(BLOCKING, Ready),
)
CANDIDATE_LEAVES: Final = WaitEvent(
    "candidate leaves",
    "A workload that the blocking head may preempt began to leave: it comes first among the candidates.",
    _all_to(BLOCKING, Ready),
)
HEAD_OVERTAKEN: Final = WaitEvent(
    "head overtaken",
    "A cycle evaluates a workload that comes before the blocking head.",
    _all_to(BLOCKING, Ready),
)
HEAD_CHANGED: Final = WaitEvent(
    "head changed",
    "The blocking head left or changed, or the labels of its namespace changed.",
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
    "The specification of the ClusterQueue, one of its flavors, or whether it is active changed.",
    _all_to((*PARKED, *BLOCKING), Ready),
)
CONSTRAINT_CHANGED: Final = WaitEvent(
    "constraint changed",
    "A cause of a constraint other than quota changed. Lanes without this cause still wait.",
    _all_to((*PARKED, *BLOCKING), Ready),
)
BATCH_DUE: Final = WaitEvent(
    "batch due",
    "The period for collecting changes of the cohort tree has ended (setting requeueBatchPeriod).",
    _all_to((*PARKED, *BLOCKING), Ready),
)
RETRY_REQUESTED: Final = WaitEvent(
    "retry requested",
    "A test or a safeguard has all workloads evaluated again. Normal operation never needs this.",
    _all_to((*PARKED, *BLOCKING), Ready),
)
LANE_EMPTIED: Final = WaitEvent(
    "lane emptied", "No workload has the scheduling key of the lane.", _all_to(PARKED, Ready)
)

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
"""For each state, the event that begins it."""

LANE_STATES: Final = (Ready, *PARKED, *BLOCKING)


# --- states of single workloads ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arriving:
    """The workload is about to enter its ClusterQueue."""


@dataclass(frozen=True, slots=True)
class Backoff(HeldBack):
    """The workload must not be evaluated before an instant.

    None: not before its condition Requeued is True. The condition changes with the workload.
    """

    until: Instant | None


@dataclass(frozen=True, slots=True)
class NamespaceNotSelected(HeldBack):
    """The ClusterQueue does not select the namespace of the workload.

    A cycle finds this out when it takes the workload. Workloads of parked lanes are not checked, and stay
    there.
    """


@dataclass(frozen=True, slots=True)
class InvalidWorkload(HeldBack):
    """The workload is refused for itself: its resources are invalid, or an admission check failed."""


@dataclass(frozen=True, slots=True)
class QueueUnusable(HeldBack):
    """The ClusterQueue cannot admit the workload, whatever quota there is.

    The ClusterQueue is inactive, or its cohort tree is cyclic. Or it is a StrictFIFO queue, and too many
    admission checks apply to the flavors of this workload. With a change of ``causes``, the workload may get
    other flavors.
    """

    causes: Causes = ()


@dataclass(frozen=True, slots=True)
class Departed:
    """The workload left its ClusterQueue: it reserved quota, ended, or moved to another ClusterQueue."""


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
    "The workload was evicted, or its reservation could not be written. Its next attempt must wait.",
    _all_to((Arriving, Queued, *HELD_BACK), Backoff),
)
NAMESPACE_REFUSED: Final = WaitEvent(
    "namespace refused", "A cycle found that the namespace is not selected.", {InCycle: NamespaceNotSelected}
)
WORKLOAD_REFUSED: Final = WaitEvent(
    "workload refused", "A cycle found that the workload is invalid.", {InCycle: InvalidWorkload}
)
QUEUE_REFUSED: Final = WaitEvent(
    "ClusterQueue refused",
    "A cycle found that the ClusterQueue cannot admit the workload.",
    {InCycle: QueueUnusable},
)
BACKOFF_ENDED: Final = WaitEvent("backoff ended", "The backoff is over.", {Backoff: Queued})
WORKLOAD_CHANGED: Final = WaitEvent(
    "workload changed",
    "The workload changed. If it must still wait, *backoff set* follows.",
    _all_to((Queued, *HELD_BACK), Queued),
)
REQUESTS_CHANGED: Final = WaitEvent(
    "requests changed",
    "A LimitRange, a RuntimeClass, or the workload that this one replaces changed its requests.",
    _all_to((Queued, InvalidWorkload), Queued),
)
NAMESPACE_SELECTED: Final = WaitEvent(
    "namespace selected",
    "The labels of the namespace or the selector changed.",
    {NamespaceNotSelected: Queued},
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
    "order changed", "The workload gets another position in its ClusterQueue.", {Queued: Queued}
)
DEQUEUED: Final = WaitEvent(
    "dequeued",
    "The workload is no longer pending in this ClusterQueue.",
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

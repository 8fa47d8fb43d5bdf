"""Explanations of pending workloads, as values. ``explain`` creates them; ``admitq.translate`` words them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from admitq.core.activity import InactiveCause
from admitq.core.lifecycle import Phase
from admitq.core.model import CheckState, Instant, ObjectKey
from admitq.core.refusals import FlavorRefusal, Refusal
from admitq.core.topology.rooms import TopologyRoom
from admitq.core.waiting.queue_positions import QueuedWorkload

# --- what a workload waits for --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WaitingForLocalQueue:
    """Its LocalQueue does not exist (``exists`` is false), or is stopped or terminating."""

    local_queue: ObjectKey
    exists: bool


@dataclass(frozen=True, slots=True)
class WaitingForClusterQueue:
    """The ClusterQueue of its LocalQueue does not exist or admits no workloads.

    ``causes`` are the causes why it is inactive. They are empty if it does not exist, or if it is excluded
    from cycles after a defect.
    """

    cluster_queue: str
    exists: bool
    causes: tuple[InactiveCause, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingForActivation:
    """A user or a limit deactivated it."""


@dataclass(frozen=True, slots=True)
class WaitingForRelease:
    """It is not queued yet: it has admission gates, is on hold, waits for pods, or is being deleted."""

    admission_gates: tuple[str, ...]
    on_hold: bool
    waits_for_replacement_pods: bool
    deleting: bool


@dataclass(frozen=True, slots=True)
class WaitingForBackoff:
    """It must not be evaluated before an instant; None: before its condition Requeued is True."""

    until: Instant | None


@dataclass(frozen=True, slots=True)
class WaitingForChange:
    """It is refused for itself or for its ClusterQueue, whatever quota there is.

    ``refusal`` is None if the workload was not evaluated since a restart.
    """

    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class WaitingForPodsReady:
    """Admission is halted until the pods of admitted workloads are ready. ``more`` are not listed."""

    workloads: tuple[ObjectKey, ...]
    more: int


@dataclass(frozen=True, slots=True)
class WaitingForTurn:
    """The next cycles take the workloads before it; the first cycle without such a workload takes it."""


@dataclass(frozen=True, slots=True)
class WaitingBehindHead:
    """The blocking head of its ClusterQueue comes before it."""

    head: ObjectKey


@dataclass(frozen=True, slots=True)
class WaitingForUnusedQuota:
    """All flavors refuse it or an equivalent workload. ``retries_on_progress``: also progress retries it."""

    refusal: Refusal | None
    retries_on_progress: bool = False


@dataclass(frozen=True, slots=True)
class WaitingForOpenPreemptionGate:
    """It fits only with preemption, and its preemption gate is closed."""


@dataclass(frozen=True, slots=True)
class WaitingForTargetsToLeave:
    """It fits once workloads have left: its own targets, or those of another head if there are none."""

    targets: tuple[ObjectKey, ...]


@dataclass(frozen=True, slots=True)
class WaitingForOtherHeads:
    """Other heads of its cohort tree took or hold what it needs."""

    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class WaitingForChecks:
    """It holds quota. These admission checks are not ready; a state of None is not reported yet."""

    checks: tuple[tuple[str, CheckState | None], ...]


@dataclass(frozen=True, slots=True)
class WaitingForJobToStop:
    """It is evicted. It is queued again when its job has stopped."""


WaitCause = (
    WaitingForLocalQueue
    | WaitingForClusterQueue
    | WaitingForActivation
    | WaitingForRelease
    | WaitingForBackoff
    | WaitingForChange
    | WaitingForPodsReady
    | WaitingForTurn
    | WaitingBehindHead
    | WaitingForUnusedQuota
    | WaitingForOpenPreemptionGate
    | WaitingForTargetsToLeave
    | WaitingForOtherHeads
    | WaitingForChecks
    | WaitingForJobToStop
)

# --- quota ----------------------------------------------------------------------------------------------


class BindingLimit(StrEnum):
    """What limits the available amount at a node: all quota of the tree, or a borrowing limit."""

    QUOTA = "Quota"
    BORROWING_LIMIT = "BorrowingLimit"


class BindingNode(NamedTuple):
    """The node of the cohort tree that limits the available amount."""

    name: str
    is_cohort: bool
    limit: BindingLimit


class QuotaHolding(NamedTuple):
    """A workload that holds quota which another workload lacks.

    Attributes:
        workload: the workload.
        cluster_queue: the ClusterQueue in which it holds quota.
        amount: the amount that it holds, in the unit of the resource.
        freed: the amount that its end makes available for the other workload. It is less than ``amount`` if a
            part comes from quota that its ClusterQueue or cohort does not lend.
        priority: its effective priority.
        since: the instant of its reservation; 0 if not known.
        is_leaving: whether it holds the quota only until its job has stopped.
    """

    workload: ObjectKey
    cluster_queue: str
    amount: int
    freed: int
    priority: int
    since: Instant
    is_leaving: bool


class QuotaHoldings(NamedTuple):
    """The largest holdings, largest first. ``more`` others hold ``more_amount`` together."""

    listed: tuple[QuotaHolding, ...] = ()
    more: int = 0
    more_amount: int = 0


@dataclass(frozen=True, slots=True)
class ResourceConstraint:
    """The quota of one resource in a flavor, for podsets that are assigned together.

    Attributes:
        resource: the resource. All amounts are in its unit.
        requested: the amount that the podsets request.
        earlier: the amount that earlier podsets of the workload request, if they get the same flavor.
        free: the amount that is available now.
        maximum: the amount that would be available without any usage.
        short_by: the amount that is missing now; 0 if the request fits.
        binding: the node that limits ``free``, or ``maximum`` if the request exceeds it; None if the request
            fits.
        holdings: the workloads that would free quota for the request by their end. Empty if the request fits
            or exceeds ``maximum``.
    """

    resource: str
    requested: int
    earlier: int
    free: int
    maximum: int
    short_by: int
    binding: BindingNode | None
    holdings: QuotaHoldings


@dataclass(frozen=True, slots=True)
class FlavorVerdict:
    """Whether podsets that are assigned together could get a flavor.

    ``refusal`` is set if the flavor can never be assigned to them. An empty flavor stands for a resource that
    the ClusterQueue does not cover. ``room`` is that of the topology of the flavor. It is None without a
    topology, if pods get their places later, or if the topology cannot satisfy the request.
    """

    pod_sets: tuple[str, ...]
    flavor: str
    refusal: FlavorRefusal | None
    resources: tuple[ResourceConstraint, ...]
    room: TopologyRoom | None = None

    @property
    def fits(self) -> bool:
        """Whether the podsets fit into unused quota of the flavor, and have a place in its topology."""
        has_quota = self.refusal is None and not any(each.short_by for each in self.resources)
        return has_quota and (self.room is None or self.room.fits)


@dataclass(frozen=True, slots=True)
class WorkloadExplanation:
    """Why a workload is not admitted.

    ``waits_for`` is None if it is admitted or finished. ``refusal`` is the last refusal that a cycle found.
    ``flavors`` is empty if it holds quota, is finished, or is in no ClusterQueue.
    """

    workload: ObjectKey
    phase: Phase
    priority: int
    local_queue: ObjectKey
    cluster_queue: str | None
    position: QueuedWorkload | None
    waits_for: WaitCause | None
    refusal: Refusal | None
    flavors: tuple[FlavorVerdict, ...]


@dataclass(frozen=True, slots=True)
class RefusalExplanation:
    """Why a cycle refused a pending workload, and the quota that it lacks now.

    ``refusal`` is that of the workload or of its lane. ``flavors`` are as in ``WorkloadExplanation``, without
    holdings and rooms.
    """

    cluster_queue: str
    refusal: Refusal
    flavors: tuple[FlavorVerdict, ...]

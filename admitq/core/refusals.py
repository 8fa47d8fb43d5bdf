"""Why a workload was not admitted, as values: each names what binds it.

``admitq.translate.messages`` turns them into condition reasons and messages; nothing else writes prose.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from admitq.core.model import ResourceProblem


@dataclass(frozen=True, slots=True)
class ClusterQueueInactive:
    """The ClusterQueue does not admit now."""

    cluster_queue: str


@dataclass(frozen=True, slots=True)
class ClusterQueueNotFound:
    """The ClusterQueue exists, but is not part of this cycle (its cohort tree has a cycle)."""

    cluster_queue: str


@dataclass(frozen=True, slots=True)
class NamespaceMismatch:
    """The workload's namespace is unknown or not selected by the ClusterQueue."""


@dataclass(frozen=True, slots=True)
class AdmissionChecksFailed:
    """A check of the workload is in state Retry or Rejected."""


@dataclass(frozen=True, slots=True)
class TooManyChecks:
    """More admission checks of the ClusterQueue apply than the status of a workload can list.

    ``flavors`` are those that the workload would be assigned; empty if so many checks apply to every flavor.
    """

    cluster_queue: str
    count: int
    maximum: int
    flavors: tuple[str, ...] = ()


class Bound(StrEnum):
    """What bounds a request: the limit beside it, or the LimitRanges of its namespace."""

    LIMIT = "Limit"
    MAXIMUM = "Maximum"
    MINIMUM = "Minimum"


class OutOfBounds(NamedTuple):
    """A request beyond its bound, both in the resource's own unit (cores, bytes). ``field`` is its place."""

    bound: Bound
    field: str
    resource: str
    requested: Fraction
    allowed: Fraction


@dataclass(frozen=True, slots=True)
class InvalidResources:
    """The pod templates ask for what can never be given.

    All problems are of one kind: what cannot be read, or else what is above its limits, or else what the
    LimitRanges of the namespace forbid.
    """

    problems: tuple[ResourceProblem | OutOfBounds, ...]


@dataclass(frozen=True, slots=True)
class ResourceNotCovered:
    """The ClusterQueue has no quota for a requested resource in any flavor."""

    resource: str


@dataclass(frozen=True, slots=True)
class FlavorNotFound:
    """The ClusterQueue names a flavor that does not exist."""

    flavor: str


@dataclass(frozen=True, slots=True)
class UntoleratedTaint:
    """The first taint of the flavor that neither the pods nor the flavor tolerate."""

    flavor: str
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeAffinityMismatch:
    """Node selector or required affinity exclude the flavor."""

    flavor: str


@dataclass(frozen=True, slots=True)
class OriginalHasOtherFlavor:
    """The workload replaces one that was assigned another flavor."""

    flavor: str
    original: str


@dataclass(frozen=True, slots=True)
class ExceedsMaxQuota:
    """More than this ClusterQueue could ever have of the flavor, borrowing included."""

    flavor: str
    resource: str
    previously: int
    requested: int
    maximum: int


@dataclass(frozen=True, slots=True)
class InsufficientQuota:
    """Not enough unused quota now: ``missing`` more is needed."""

    flavor: str
    resource: str
    missing: int


@dataclass(frozen=True, slots=True)
class TopologyUnsupported:
    """Pods are to be placed in a topology, and the flavor has none."""

    flavor: str


@dataclass(frozen=True, slots=True)
class TopologyMissing:
    """Pods are to be placed in the flavor's topology, of which nothing is known."""

    flavor: str


FlavorRefusal = (
    ResourceNotCovered
    | FlavorNotFound
    | UntoleratedTaint
    | NodeAffinityMismatch
    | OriginalHasOtherFlavor
    | ExceedsMaxQuota
    | InsufficientQuota
    | TopologyUnsupported
    | TopologyMissing
)


class PodSetRefusals(NamedTuple):
    """Why a podset does not fit, one refusal for each thing that was tried."""

    pod_set: str
    refusals: tuple[FlavorRefusal, ...]


class NoFitReason(StrEnum):
    """Why no flavor fits a workload, from the least severe reason to the most severe one.

    Time may change the first, other quota the second, and other flavors the third.
    """

    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"


@dataclass(frozen=True, slots=True)
class NoFlavorFits:
    """Podsets do not fit into unused quota. ``reason`` sums their refusals up."""

    parts: tuple[PodSetRefusals, ...]
    reason: NoFitReason


@dataclass(frozen=True, slots=True)
class QuotaTakenInCycle:
    """It would have fitted, but another workload of the same cycle took the quota first."""


@dataclass(frozen=True, slots=True)
class WaitingForTargets:
    """It fits once the workloads that were preempted for it have stopped.

    ``victims`` counts them; ``refused`` is why it did not fit without them.
    """

    victims: int
    refused: NoFlavorFits


@dataclass(frozen=True, slots=True)
class PreemptionsFailed:
    """None of the preemptions could be written; they are tried again."""

    victims: int
    refused: NoFlavorFits


@dataclass(frozen=True, slots=True)
class NoPreemptionTargets:
    """It would have to preempt, and there is nobody whose quota would suffice."""

    refused: NoFlavorFits


@dataclass(frozen=True, slots=True)
class PreemptionGated:
    """It would have to preempt, and its preemption gate is closed."""


@dataclass(frozen=True, slots=True)
class OverlappingTargets:
    """Another workload of the same cycle preempts some of those whom it would have to preempt.

    ``will_fit`` tells that the other's preemptions free enough for both.
    """

    will_fit: bool


@dataclass(frozen=True, slots=True)
class PodsNotReady:
    """Admission is blocked until the pods of all admitted workloads are ready (waitForPodsReady)."""


Refusal = (
    ClusterQueueInactive
    | ClusterQueueNotFound
    | NamespaceMismatch
    | AdmissionChecksFailed
    | TooManyChecks
    | InvalidResources
    | NoFlavorFits
    | QuotaTakenInCycle
    | WaitingForTargets
    | PreemptionsFailed
    | NoPreemptionTargets
    | PreemptionGated
    | OverlappingTargets
    | PodsNotReady
)

"""Refusals: why a workload was not admitted, as values.

Only ``admitq.translate.messages`` turns them into the reasons and messages of conditions.
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
    """The bound that a request violates: its own limit, or one of the LimitRanges of its namespace."""

    LIMIT = "Limit"
    MAXIMUM = "Maximum"
    MINIMUM = "Minimum"


class OutOfBounds(NamedTuple):
    """A request beyond its bound, in the resource's unit (cores, bytes). ``field`` is its path."""

    bound: Bound
    field: str
    resource: str
    requested: Fraction
    allowed: Fraction


@dataclass(frozen=True, slots=True)
class InvalidResources:
    """The requests of the pod templates are invalid.

    All problems are of the first kind that occurs: unreadable requests, requests above their limits, or
    violations of the LimitRanges of the namespace.
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
    """The request is more than the ClusterQueue could have of the flavor if nothing was in use."""

    flavor: str
    resource: str
    previously: int
    requested: int
    maximum: int


@dataclass(frozen=True, slots=True)
class InsufficientQuota:
    """There is not enough unused quota now: ``missing`` more is needed."""

    flavor: str
    resource: str
    missing: int


@dataclass(frozen=True, slots=True)
class TopologyUnsupported:
    """The pods need a topology assignment, and the flavor has no topology."""

    flavor: str


@dataclass(frozen=True, slots=True)
class TopologyMissing:
    """The pods need a topology assignment, and the flavor's topology is not known."""

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
    """Why a podset does not fit: one refusal for each flavor or resource."""

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
    """The workload fitted at nomination, but another head of the cycle took the quota."""


@dataclass(frozen=True, slots=True)
class WaitingForTargets:
    """The workload fits once its preemption targets have left.

    ``victims`` is their number; ``refused`` is why the workload does not fit now.
    """

    victims: int
    refused: NoFlavorFits


@dataclass(frozen=True, slots=True)
class PreemptionsFailed:
    """None of the preemptions could be written; they are retried."""

    victims: int
    refused: NoFlavorFits


@dataclass(frozen=True, slots=True)
class NoPreemptionTargets:
    """The workload fits only with preemption, and no targets would free enough quota."""

    refused: NoFlavorFits


@dataclass(frozen=True, slots=True)
class PreemptionGated:
    """The workload fits only with preemption, and its preemption gate is closed."""


@dataclass(frozen=True, slots=True)
class OverlappingTargets:
    """Another head of the cycle preempts some of the targets of the workload.

    ``will_fit``: whether the preemptions of the other head free enough for both.
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

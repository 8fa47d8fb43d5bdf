"""Refusals: the reasons why the core gives a workload nothing, as values.

Only ``admitq.translate.messages`` turns them into the reasons and messages of conditions.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from admitq.core.model import ResourceProblem
from admitq.core.topology.refusals import TopologyRefusal


@dataclass(frozen=True, slots=True)
class ClusterQueueInactive:
    """The ClusterQueue is inactive."""

    cluster_queue: str


@dataclass(frozen=True, slots=True)
class ClusterQueueNotFound:
    """The ClusterQueue exists, but takes no part in cycles, because its cohorts form a circle."""

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

    ``flavors`` are the flavors that the workload would get. It is empty if too many checks apply to all
    flavors.
    """

    cluster_queue: str
    count: int
    maximum: int
    flavors: tuple[str, ...] = ()


class Bound(StrEnum):
    """The bound that a request violates: its own limit, or a bound of the LimitRanges of its namespace."""

    LIMIT = "Limit"
    MAXIMUM = "Maximum"
    MINIMUM = "Minimum"


class OutOfBounds(NamedTuple):
    """A request beyond its bound, in the unit of the resource (cores, bytes). ``field`` is its path."""

    bound: Bound
    field: str
    resource: str
    requested: Fraction
    allowed: Fraction


@dataclass(frozen=True, slots=True)
class InvalidResources:
    """The requests of the pod templates are invalid.

    There are three kinds of problems: unreadable requests, requests above their limits, and violations of
    LimitRanges. ``problems`` has all problems of the first of these kinds that occurs.
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
    """The node selector or required node affinity of the pods excludes the nodes of the flavor."""

    flavor: str


@dataclass(frozen=True, slots=True)
class OriginalHasOtherFlavor:
    """The workload replaces an original that was assigned another flavor."""

    flavor: str
    original: str


@dataclass(frozen=True, slots=True)
class ExceedsMaxQuota:
    """The request exceeds the amount that the ClusterQueue could have of the flavor without any usage."""

    flavor: str
    resource: str
    previously: int
    requested: int
    maximum: int


@dataclass(frozen=True, slots=True)
class InsufficientQuota:
    """Unused quota is not enough now. ``missing`` is the amount that is missing."""

    flavor: str
    resource: str
    missing: int


@dataclass(frozen=True, slots=True)
class TopologyUnsupported:
    """The pods need a topology assignment, and the flavor has no topology."""

    flavor: str


@dataclass(frozen=True, slots=True)
class TopologyMissing:
    """The pods need a topology assignment, and the topology of the flavor is not known."""

    flavor: str


@dataclass(frozen=True, slots=True)
class TopologyOnly:
    """The flavor has a topology, and the pods request no topology."""

    flavor: str


@dataclass(frozen=True, slots=True)
class RequestedLevelMissing:
    """The topology of the flavor does not have a level that the pods request."""

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
    | TopologyOnly
    | RequestedLevelMissing
    | TopologyRefusal
)


class PodSetRefusals(NamedTuple):
    """The refusals of a podset that does not fit: one for each flavor or resource."""

    pod_set: str
    refusals: tuple[FlavorRefusal, ...]


class NoFitReason(StrEnum):
    """Why no flavor fits a workload, from the least severe reason to the most severe one.

    The first may end with time. The second needs more quota, and the third other flavors.
    """

    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"


@dataclass(frozen=True, slots=True)
class NoFlavorFits:
    """Podsets do not fit into unused quota. ``reason`` summarizes their refusals."""

    parts: tuple[PodSetRefusals, ...]
    reason: NoFitReason


@dataclass(frozen=True, slots=True)
class QuotaTakenInCycle:
    """The workload fitted at nomination, but another head of the cycle took the quota."""


@dataclass(frozen=True, slots=True)
class WaitingForTargets:
    """The workload fits once its preemption targets have left.

    ``victims`` is the number of targets. ``refused`` is the reason why the workload does not fit now.
    """

    victims: int
    refused: NoFlavorFits


@dataclass(frozen=True, slots=True)
class PreemptionsFailed:
    """No preemption of the workload's targets could be written. The preemptions are retried."""

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

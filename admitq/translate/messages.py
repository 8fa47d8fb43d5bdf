"""Reasons and messages of conditions and events about decisions.

All texts about decisions are in this module. They are part of the API: users and tools match on them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from admitq.core.activity import ActiveReason, InactiveCause
from admitq.core.instructions import ConsideredFlavor, FitMode, Preempt, PreemptionReason
from admitq.core.model import SECOND, Instant, ResourceProblem
from admitq.core.refusals import (
    AdmissionChecksFailed,
    Bound,
    ClusterQueueInactive,
    ClusterQueueNotFound,
    ExceedsMaxQuota,
    FlavorNotFound,
    FlavorRefusal,
    InsufficientQuota,
    InvalidResources,
    NamespaceMismatch,
    NodeAffinityMismatch,
    NoFlavorFits,
    NoPreemptionTargets,
    OriginalHasOtherFlavor,
    OutOfBounds,
    OverlappingTargets,
    PodsNotReady,
    PreemptionGated,
    PreemptionsFailed,
    QuotaTakenInCycle,
    Refusal,
    RequestedLevelMissing,
    ResourceNotCovered,
    TooManyChecks,
    TopologyMissing,
    TopologyOnly,
    TopologyUnsupported,
    UntoleratedTaint,
    WaitingForTargets,
)
from admitq.core.requests import rounded_up
from admitq.core.statuses import ClusterQueueStatus, LocalQueueReason, LocalQueueStatus
from admitq.translate.topology_messages import TOPOLOGY_TEXTS
from admitq_api.conditions import Reason, format_time
from admitq_api.quantity import format_amount


class Explanation(NamedTuple):
    """Reason and message of a condition."""

    reason: str
    message: str


class ActiveCondition(NamedTuple):
    """An Active condition: whether it is true, its reason and its message."""

    status: bool
    reason: str
    message: str


# --- refusals of flavors -----------------------------------------------------------------------------------

_FLAVOR_TEXTS: Final[Mapping[type[FlavorRefusal], Callable[[Any], str]]] = {
    ResourceNotCovered: lambda of: f"resource {of.resource} unavailable in ClusterQueue",
    FlavorNotFound: lambda of: f"flavor {of.flavor} not found",
    UntoleratedTaint: lambda of: (
        f"untolerated taint {{{of.key} {of.value} {of.effect} <nil>}} in flavor {of.flavor}"
    ),
    OriginalHasOtherFlavor: lambda of: (
        f"could not assign {of.flavor} flavor since the original workload is assigned: {of.original}"
    ),
    NodeAffinityMismatch: lambda of: f"flavor {of.flavor} doesn't match node affinity",
    ExceedsMaxQuota: lambda of: (
        f"insufficient quota for {of.resource} in flavor {of.flavor}, "
        f"previously considered podsets requests ({format_amount(of.resource, of.previously)})"
        f" + current podset request ({format_amount(of.resource, of.requested)})"
        f" > maximum capacity ({format_amount(of.resource, of.maximum)})"
    ),
    TopologyUnsupported: lambda of: f'Flavor "{of.flavor}" does not support TopologyAwareScheduling',
    TopologyMissing: lambda of: f'Flavor "{of.flavor}" information missing in TAS cache',
    InsufficientQuota: lambda of: (
        f"insufficient unused quota for {of.resource} in flavor {of.flavor}, "
        f"{format_amount(of.resource, of.missing)} more needed"
    ),
    TopologyOnly: lambda of: f'Flavor "{of.flavor}" supports only TopologyAwareScheduling',
    RequestedLevelMissing: lambda of: f'Flavor "{of.flavor}" does not contain the requested level',
    **TOPOLOGY_TEXTS,
}


def flavor_refusal_message(refusal: FlavorRefusal) -> str:
    """Return why a flavor, or every flavor, was refused."""
    return _FLAVOR_TEXTS[type(refusal)](refusal)


_MODE_TEXTS: Final[Mapping[FitMode, str]] = {
    FitMode.FIT: "Fit",
    FitMode.NO_FIT: "NoFit",
    FitMode.NO_PREEMPTION_CANDIDATES: "preemptionMode=NoPreemptionCandidates",
    FitMode.PREEMPT: "preemptionMode=Preempt",
    FitMode.RECLAIM: "preemptionMode=Reclaim",
}


def flavors_considered(considered_flavors: Iterable[ConsideredFlavor]) -> str:
    """Return the considered flavors that did not fit without borrowing; empty if there are none.

    The format for each podset is ``name: flavor(mode[;borrow=level][;reason…]), …``, separated by `` | ``. If
    preemption was necessary, the mode names the candidates: ``preemptionMode=Preempt`` are workloads of the
    same ClusterQueue, ``Reclaim`` are workloads of other ClusterQueues, ``NoPreemptionCandidates`` are none.
    """
    by_pod_set: dict[str, list[str]] = {}
    for considered in considered_flavors:
        if considered.mode is FitMode.FIT and not considered.borrow_level:
            continue
        details = [_MODE_TEXTS[considered.mode]]
        if considered.borrow_level:
            details.append(f"borrow={considered.borrow_level}")
        details.extend(flavor_refusal_message(reason) for reason in considered.reasons)
        by_pod_set.setdefault(considered.pod_set, []).append(f"{considered.flavor}({';'.join(details)})")
    return " | ".join(f"{name}: {', '.join(flavors)}" for name, flavors in by_pod_set.items())


# --- why a workload waits -------------------------------------------------------------------------------


_BOUND_TEXTS: Final[Mapping[Bound, tuple[str, str]]] = {
    Bound.LIMIT: (">", "requests must not exceed its limits"),
    Bound.MAXIMUM: (">", "requests must not be above the limitRange max"),
    Bound.MINIMUM: ("<", "requests must not be below the limitRange min"),
}


def _problem(problem: ResourceProblem | OutOfBounds) -> str:
    if isinstance(problem, ResourceProblem):
        return f"{problem.field}: Invalid value: {problem.detail}"
    than, rule = _BOUND_TEXTS[problem.bound]
    requested, allowed = (
        format_amount(problem.resource, rounded_up(problem.resource, amount))
        for amount in (problem.requested, problem.allowed)
    )
    return f"{problem.field}: Invalid value: {requested} {than} {allowed}: {rule}"


def _invalid_resources(refusal: Any) -> Explanation:
    texts = list(dict.fromkeys(map(_problem, refusal.problems)))
    problems = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    first = refusal.problems[0]
    if isinstance(first, OutOfBounds) and first.bound is not Bound.LIMIT:
        what = "resources didn't satisfy LimitRange constraints"
    else:
        what = "resources validation failed"
    return Explanation(Reason.MISCONFIGURED, f"{what}: {problems}")


def _no_flavor_fits(refusal: NoFlavorFits) -> str:
    texts: list[str] = []
    for pod_set, refusals in refusal.parts:
        reasons = sorted({flavor_refusal_message(flavor_refusal) for flavor_refusal in refusals})
        texts.append(f"couldn't assign flavors to pod set {pod_set}: {', '.join(reasons)}")
    return "; ".join(texts)


def _too_many_checks(refusal: Any) -> Explanation:
    which = f"flavors {', '.join(refusal.flavors)}" if refusal.flavors else "every flavor"
    return Explanation(
        Reason.MISCONFIGURED,
        f"{refusal.count} AdmissionChecks of ClusterQueue {refusal.cluster_queue} apply to {which}, "
        f"and a Workload can have at most {refusal.maximum}: remove some from "
        "spec.admissionChecksStrategy.admissionChecks, or limit them to other flavors by onFlavors",
    )


_OVERLAP: Final = "Workload has overlapping preemption targets with another workload"

_PENDING_TEXTS: Final[Mapping[type[Refusal], Callable[[Any], Explanation]]] = {
    ClusterQueueInactive: lambda of: Explanation(
        Reason.SUSPENDED, f"ClusterQueue {of.cluster_queue} is inactive"
    ),
    ClusterQueueNotFound: lambda of: Explanation(
        Reason.MISCONFIGURED, f"ClusterQueue {of.cluster_queue} not found"
    ),
    NamespaceMismatch: lambda _: Explanation(
        Reason.MISCONFIGURED, "workload namespace doesn't match ClusterQueue selector"
    ),
    AdmissionChecksFailed: lambda _: Explanation(
        Reason.PENDING_EVALUATION, "The workload has failed admission checks"
    ),
    TooManyChecks: _too_many_checks,
    InvalidResources: _invalid_resources,
    NoFlavorFits: lambda of: Explanation(of.reason, _no_flavor_fits(of)),
    QuotaTakenInCycle: lambda _: Explanation(
        Reason.WAITING_FOR_QUOTA, "Workload no longer fits after processing another workload"
    ),
    WaitingForTargets: lambda of: Explanation(
        Reason.WAITING_FOR_PREEMPTED_WORKLOADS,
        f"{_no_flavor_fits(of.refused)}. Pending the preemption of {of.victims} workload(s)",
    ),
    PreemptionsFailed: lambda of: Explanation(
        Reason.WAITING_FOR_QUOTA,
        f"{_no_flavor_fits(of.refused)}. Preempting {of.victims} workload(s) failed, will retry.",
    ),
    NoPreemptionTargets: lambda of: Explanation(Reason.WAITING_FOR_QUOTA, _no_flavor_fits(of.refused)),
    PreemptionGated: lambda _: Explanation(
        Reason.ADMISSION_GATED, "Workload requires preemption, but it's gated"
    ),
    OverlappingTargets: lambda of: (
        Explanation(
            Reason.WAITING_FOR_PREEMPTED_WORKLOADS,
            f"{_OVERLAP}, but will fit after these preemptions complete",
        )
        if of.will_fit
        else Explanation(Reason.WAITING_FOR_QUOTA, _OVERLAP)
    ),
    PodsNotReady: lambda _: Explanation(
        Reason.WAITING_FOR_PODS_READY, "waiting for all admitted workloads to be in PodsReady condition"
    ),
}


def pending_condition(refusal: Refusal) -> Explanation:
    """Return reason and message of QuotaReserved=False for a refusal."""
    return _PENDING_TEXTS[type(refusal)](refusal)


def bypassed_condition(refusal: Refusal) -> Explanation:
    """Return reason and message for a workload that is parked because an equivalent one was refused."""
    return Explanation(
        _PENDING_TEXTS[type(refusal)](refusal).reason,
        "Bypassed scheduling evaluation because an equivalent workload recently failed",
    )


_UNWRITTEN_PREFIX: Final = "The reservation in ClusterQueue "


def unwritten_reservation(
    cluster_queue: str, error: str, at: Instant, retry_delay: Instant | None = None
) -> Explanation:
    """Return reason and message of QuotaReserved=False for a reservation that cannot be written.

    Args:
        cluster_queue: the ClusterQueue of the reservation.
        error: the error of the API server or of the connection.
        at: the time of the error; it makes each such message unique.
        retry_delay: nanoseconds until the Workload is evaluated again; None if it is not known.
    """
    failure = f"could not be written at {format_time(at)}: {error}; it is retried"
    after = "" if retry_delay is None else f" after {retry_delay / SECOND:g}s"
    return Explanation(Reason.PENDING_EVALUATION, f"{_UNWRITTEN_PREFIX}{cluster_queue} {failure}{after}")


def is_unwritten_reservation(message: str) -> bool:
    """Whether a message of QuotaReserved=False is about a reservation that could not be written."""
    return message.startswith(_UNWRITTEN_PREFIX)


# --- preemption -----------------------------------------------------------------------------------------

_PREEMPTION_TEXTS: Final[Mapping[PreemptionReason, str]] = {
    PreemptionReason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptionReason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptionReason.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}

_UNKNOWN: Final = "UNKNOWN"


class EffectivePriority(NamedTuple):
    """The effective priority: the sum of the base priority and the boost."""

    base: int
    boost: int

    def __str__(self) -> str:
        return f"{self.base + self.boost} (base: {self.base}, boost: {self.boost})"


def preempted_message(preempt: Preempt, job_uid: str) -> str:
    """Return the preemptor of a workload and the reason; ``job_uid`` is the UID of the preemptor's job."""
    return (
        f"Preempted to accommodate a workload (UID: {preempt.preemptor_uid or _UNKNOWN}, "
        f"JobUID: {job_uid or _UNKNOWN}) due to {_PREEMPTION_TEXTS[preempt.reason]}; "
        f"preemptor path: {_path(preempt.preemptor_path)}; preemptee path: {_path(preempt.victim_path)}"
    )


def replaced_message(uid: str, job_uid: str) -> str:
    """Return which slice of its job has replaced a Workload; ``job_uid`` is the UID of the job."""
    return (
        f"Replaced to accommodate a workload (UID: {uid or _UNKNOWN}, JobUID: {job_uid or _UNKNOWN}) "
        "due to workload slice aggregation"
    )


def _path(names: Sequence[str]) -> str:
    return f"/{'/'.join(names)}" if names else _UNKNOWN


def priorities_message(preemptor: EffectivePriority, preemptee: EffectivePriority) -> str:
    """Return the two priorities as text for events about a preemption."""
    return f"preemptor effective priority: {preemptor}; preemptee effective priority: {preemptee}"


# --- whether queues admit -------------------------------------------------------------------------------


def _names_in(text: str) -> Callable[[InactiveCause], str]:
    return lambda cause: text.format(",".join(cause.names))


def _topologies(cause: InactiveCause) -> str:
    pairs = zip(cause.names[::2], cause.names[1::2], strict=True)
    return ", ".join(
        f'there is no Topology "{topology}" for TAS flavor "{flavor}"' for topology, flavor in pairs
    )


_ACTIVE_TEXTS: Final[Mapping[ActiveReason, Callable[[InactiveCause], str]]] = {
    ActiveReason.UNKNOWN: lambda _: "is quarantined",
    ActiveReason.TERMINATING: lambda _: "is terminating",
    ActiveReason.STOPPED: lambda _: "is stopped",
    ActiveReason.FLAVOR_NOT_FOUND: _names_in("references missing ResourceFlavor(s): {}"),
    ActiveReason.ADMISSION_CHECK_NOT_FOUND: _names_in("references missing AdmissionCheck(s): {}"),
    ActiveReason.ADMISSION_CHECK_INACTIVE: _names_in("references inactive AdmissionCheck(s): {}"),
    ActiveReason.MULTIPLE_MULTIKUEUE: _names_in(
        "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {}"
    ),
    ActiveReason.MULTIKUEUE_PER_FLAVOR: _names_in(
        "Cannot specify MultiKueue AdmissionCheck per flavor, found: {}"
    ),
    ActiveReason.MULTIKUEUE_WITH_PROVISIONING: lambda cause: (
        "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, "
        f"found: {', '.join(cause.names)}"
    ),
    ActiveReason.TOPOLOGY_NOT_FOUND: _topologies,
}


def inactive_cause_message(cause: InactiveCause) -> str:
    """Return a cause why a ClusterQueue is inactive, to be read after its name or "it"."""
    return _ACTIVE_TEXTS[cause.reason](cause)


def cluster_queue_active(status: ClusterQueueStatus) -> ActiveCondition:
    """Return the Active condition of a ClusterQueue."""
    if status.active:
        return ActiveCondition(status=True, reason=status.reason, message="Can admit new workloads")
    if status.reason is ActiveReason.TERMINATING:
        message = "Can't admit new workloads; clusterQueue is terminating"
    else:
        parts = ", ".join(map(inactive_cause_message, status.causes))
        message = f"Can't admit new workloads: {parts}."
    return ActiveCondition(status=False, reason=status.reason, message=message)


_LOCAL_QUEUE_TEXTS: Final[Mapping[LocalQueueReason, str]] = {
    LocalQueueReason.READY: "Can submit new workloads to localQueue",
    LocalQueueReason.STOPPED: "LocalQueue is stopped",
    LocalQueueReason.CLUSTER_QUEUE_DOES_NOT_EXIST: "Can't submit new workloads to clusterQueue",
    LocalQueueReason.CLUSTER_QUEUE_IS_INACTIVE: "Can't submit new workloads to clusterQueue",
}


def local_queue_active(status: LocalQueueStatus) -> ActiveCondition:
    """Return the Active condition of a LocalQueue."""
    return ActiveCondition(status.active, status.reason, _LOCAL_QUEUE_TEXTS[status.reason])

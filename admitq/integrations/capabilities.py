"""Capabilities of each job kind, for the command line and the reference."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from admitq.integrations.base import Integration, return_none


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability that only some job kinds have.

    ``key`` is its name in JSON, ``title`` is the heading of its column.
    """

    key: str
    title: str
    meaning: str
    is_supported_by: Callable[[Integration], bool]
    is_implemented: bool = True
    """Whether a controller of admitq makes use of what the kinds declare."""


CAPABILITIES: Final[tuple[Capability, ...]] = (
    Capability(
        "partialAdmission",
        "partial",
        "A job with a minimum number of pods is admitted with fewer pods if there is no quota for all.",
        lambda kind: kind.scaling.with_pod_counts is not None,
    ),
    Capability(
        "elastic",
        "elastic",
        "An elastic job is scaled while it runs: up when there is quota for more pods, down at once.",
        lambda kind: kind.scaling.can_be_elastic,
    ),
    Capability(
        "reclaimablePods",
        "reclaimable",
        "Quota of ended pods without a successor is released while the other pods run.",
        lambda kind: kind.scaling.count_reclaimable_pods is not return_none,
    ),
    Capability(
        "prebuiltWorkload",
        "prebuilt",
        "A job can use an existing Workload instead of a new one.",
        lambda kind: kind.delegation.adopts_prebuilt_workload,
    ),
    Capability(
        "otherClusters",
        "other clusters",
        "A job has a field that names the controller that runs it (`managedBy`), so that the job can run in "
        "another cluster. No controller of admitq dispatches jobs to other clusters yet.",
        lambda kind: kind.delegation.managed_by_path is not None,
        is_implemented=False,
    ),
    Capability(
        "ownPriorityClass",
        "priority class",
        "A job can name a PriorityClass for all of its pods.",
        lambda kind: kind.templates.find_priority_class is not return_none,
    ),
)


def describe_kind(kind: Integration) -> dict[str, Any]:
    """Return a kind and its capabilities as JSON."""
    return {
        "framework": kind.framework,
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "gate": None if kind.gate is None else str(kind.gate),
        **{ability.key: ability.is_implemented and ability.is_supported_by(kind) for ability in CAPABILITIES},
    }

"""How v1beta1 and v1beta2 differ, kind by kind. What is not here is the same in both.

Source: semantics, Appendix G.1.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from admitq_api.labels import Names as GroupNames
from admitq_api.syntax import dns_subdomain
from admitq_api.v1beta1.changes import (
    Change,
    Dropped,
    Gathered,
    Names,
    Newer,
    Placement,
    Reference,
    Renamed,
    Values,
)

if TYPE_CHECKING:
    from admitq_api.schema import Part

_ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

PLURALS: Final[Mapping[str, str]] = {
    "AdmissionCheck": "admissionchecks",
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "MultiKueueCluster": "multikueueclusters",
    "MultiKueueConfig": "multikueueconfigs",
    "ProvisioningRequestConfig": "provisioningrequestconfigs",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
    "Workload": "workloads",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
"""Every kind that is served in both versions, without the declarations, which processes need not read."""


def definitions(names: GroupNames) -> tuple[str, ...]:
    """Return the names of the CustomResourceDefinitions that ask for conversion; none for one version."""
    return tuple(names.crd_name(plural) for plural in PLURALS.values()) if names.older_version else ()


def _is_policy(value: Any) -> bool:
    from admitq_api.kinds.cluster_queue import ClusterQueueSpec  # noqa: PLC0415 seldom asked, slow to import

    return _has(ClusterQueueSpec, "concurrentAdmissionPolicy", value)


def _are_constraints(value: Any) -> bool:
    from admitq_api.kinds.workload import TopologyRequest  # noqa: PLC0415 seldom asked, slow to import

    return _has(TopologyRequest, "podsetSliceRequiredTopologyConstraints", value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and dns_subdomain(value) is None


def _has(part: "type[Part]", field: str, value: Any) -> bool:
    """Whether a part of the API may have this value in a field, all others of which are optional."""
    try:
        part.model_validate_json(orjson.dumps({field: value}), strict=True)
    except ValueError:
        return False
    return True


@cache
def changes(names: GroupNames) -> Mapping[str, tuple[Change, ...]]:
    """Return the differences of every kind, in the order in which they are applied."""
    return {
        **dict.fromkeys(PLURALS, ()),
        "AdmissionCheck": (
            Dropped(
                "spec",
                "retryDelayMinutes",
                {
                    "type": "integer",
                    "format": "int64",
                    "description": "Means nothing any more, and is not kept.",
                },
            ),
        ),
        "ClusterQueue": (
            Renamed("spec", "cohort", "cohortName"),
            Names("spec", "admissionChecks", "admissionChecksStrategy", "admissionChecks"),
            Values("spec.flavorFungibility", "whenCanBorrow", ("Borrow",), "MayStopSearch"),
            Values("spec.flavorFungibility", "whenCanPreempt", ("Preempt",), "MayStopSearch"),
            Newer("spec", "concurrentAdmissionPolicy", _is_policy),
            Dropped(
                "status",
                "pendingWorkloadsStatus",
                {**_ANY_OBJECT, "description": "Means nothing any more, and is not kept."},
            ),
        ),
        "LocalQueue": (
            Renamed("status", "flavorUsage", "flavorsUsage"),
            Dropped(
                "status",
                "flavors",
                {
                    "type": "array",
                    "items": _ANY_OBJECT,
                    "x-kubernetes-list-type": "atomic",
                    "description": "Means nothing any more, and is not kept.",
                },
            ),
        ),
        "MultiKueueCluster": (Gathered("spec", ("kubeConfig", "clusterProfileRef"), "clusterSource"),),
        "MultiKueueConfig": (
            Newer("spec", "quotaManagement", ("Manual", "Automated").__contains__, "Manual"),
        ),
        "Workload": (
            Reference(
                "spec",
                "priorityClassSource",
                "priorityClassName",
                "priorityClassRef",
                {
                    f"{names.group}/workloadpriorityclass": (names.group, "WorkloadPriorityClass"),
                    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
                },
                _is_name,
            ),
            Newer(
                "spec.podSets[].topologyRequest", "podsetSliceRequiredTopologyConstraints", _are_constraints
            ),
            Placement("status.admission.podSetAssignments[]", "topologyAssignment", "domains", "slices"),
            Renamed(
                "status",
                # As v1beta1 spells it.
                "accumulatedPastExexcutionTimeSeconds",
                "accumulatedPastExecutionTimeSeconds",
            ),
        ),
    }

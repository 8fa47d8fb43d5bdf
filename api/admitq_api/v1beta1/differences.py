"""The differences between v1beta1 and v1beta2, by kind. All other fields are the same in both.

Source: semantics, Appendix G.1.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from admitq_api.labels import Names as GroupNames
from admitq_api.syntax import check_dns_subdomain
from admitq_api.v1beta1.field_differences import (
    AddedField,
    DroppedField,
    FieldDifference,
    GroupedFields,
    MergedValues,
    NameList,
    RenamedField,
    SplitReference,
    TopologyEncoding,
)

if TYPE_CHECKING:
    from admitq_api.schema import ApiModel

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
"""The plurals of all kinds that are served in both versions. Processes need not import the declarations."""


def list_converted_crds(names: GroupNames) -> tuple[str, ...]:
    """Return the names of the CustomResourceDefinitions with a conversion webhook; none for one version."""
    return tuple(names.crd_name(plural) for plural in PLURALS.values()) if names.older_version else ()


def _is_policy(value: Any) -> bool:
    from admitq_api.kinds.cluster_queue import ClusterQueueSpec  # noqa: PLC0415 seldom asked, slow to import

    return _is_valid_field(ClusterQueueSpec, "concurrentAdmissionPolicy", value)


def _are_constraints(value: Any) -> bool:
    from admitq_api.kinds.workload import TopologyRequest  # noqa: PLC0415 seldom asked, slow to import

    return _is_valid_field(TopologyRequest, "podsetSliceRequiredTopologyConstraints", value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and check_dns_subdomain(value) is None


def _is_valid_field(part: "type[ApiModel]", field: str, value: Any) -> bool:
    """Whether a value is valid in a field of a model in which other fields are optional."""
    try:
        part.model_validate_json(orjson.dumps({field: value}), strict=True)
    except ValueError:
        return False
    return True


@cache
def list_differences(names: GroupNames) -> Mapping[str, tuple[FieldDifference, ...]]:
    """Return the differences of each kind, in the order in which they are applied."""
    return {
        **dict.fromkeys(PLURALS, ()),
        "AdmissionCheck": (
            DroppedField(
                "spec",
                "retryDelayMinutes",
                {
                    "type": "integer",
                    "format": "int64",
                    "description": "This field has no effect and is not stored.",
                },
            ),
        ),
        "ClusterQueue": (
            RenamedField("spec", "cohort", "cohortName"),
            NameList("spec", "admissionChecks", "admissionChecksStrategy", "admissionChecks"),
            MergedValues("spec.flavorFungibility", "whenCanBorrow", ("Borrow",), "MayStopSearch"),
            MergedValues("spec.flavorFungibility", "whenCanPreempt", ("Preempt",), "MayStopSearch"),
            AddedField("spec", "concurrentAdmissionPolicy", _is_policy),
            DroppedField(
                "status",
                "pendingWorkloadsStatus",
                {**_ANY_OBJECT, "description": "This field has no effect and is not stored."},
            ),
        ),
        "LocalQueue": (
            RenamedField("status", "flavorUsage", "flavorsUsage"),
            DroppedField(
                "status",
                "flavors",
                {
                    "type": "array",
                    "items": _ANY_OBJECT,
                    "x-kubernetes-list-type": "atomic",
                    "description": "This field has no effect and is not stored.",
                },
            ),
        ),
        "MultiKueueCluster": (GroupedFields("spec", ("kubeConfig", "clusterProfileRef"), "clusterSource"),),
        "MultiKueueConfig": (
            AddedField("spec", "quotaManagement", ("Manual", "Automated").__contains__, "Manual"),
        ),
        "Workload": (
            SplitReference(
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
            AddedField(
                "spec.podSets[].topologyRequest", "podsetSliceRequiredTopologyConstraints", _are_constraints
            ),
            TopologyEncoding(
                "status.admission.podSetAssignments[]", "topologyAssignment", "domains", "slices"
            ),
            RenamedField(
                "status",
                # This is the spelling of v1beta1.
                "accumulatedPastExexcutionTimeSeconds",
                "accumulatedPastExecutionTimeSeconds",
            ),
        ),
    }

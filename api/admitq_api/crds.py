"""The CustomResourceDefinitions, made from the declarations of the kinds."""

from typing import Any

from admitq_api.kinds.admission_check import AdmissionCheck
from admitq_api.kinds.cluster_queue import ClusterQueue
from admitq_api.kinds.cohort import Cohort
from admitq_api.kinds.local_queue import LocalQueue
from admitq_api.kinds.multikueue_cluster import MultiKueueCluster
from admitq_api.kinds.multikueue_config import MultiKueueConfig
from admitq_api.kinds.provisioning_request_config import ProvisioningRequestConfig
from admitq_api.kinds.resource_flavor import ResourceFlavor
from admitq_api.kinds.topology import Topology
from admitq_api.kinds.workload import Workload
from admitq_api.kinds.workload_priority_class import WorkloadPriorityClass
from admitq_api.labels import DEFAULT_GROUP, Names, names_for
from admitq_api.schema import Kind, filled, schema_of

KINDS: tuple[type[Kind], ...] = (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
"""Every kind, in alphabetical order."""


def crds(group: str = DEFAULT_GROUP) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of all kinds under an API group.

    Install them by create or server-side apply: client-side apply would copy them into an
    annotation that is too small for them.

    Raises:
        ValueError: the group is none that admitq can serve.
    """
    names = names_for(group)
    return [_crd(kind, names) for kind in KINDS]


def _crd(kind: type[Kind], names: Names) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": names.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": filled(schema_of(kind), names.group)},
    }
    if kind.columns:
        version["additionalPrinterColumns"] = [column.to_schema() for column in kind.columns]
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    if kind.has_status():
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": names.crd_name(kind.plural),
            "labels": {"app.kubernetes.io/name": "admitq"},
        },
        "spec": {
            "group": names.group,
            "names": {
                "kind": kind.__name__,
                "listKind": f"{kind.__name__}List",
                "plural": kind.plural,
                "singular": kind.__name__.lower(),
                "shortNames": list(kind.short_names),
                **({"categories": [names.category]} if names.category else {}),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "conversion": {"strategy": "None"},
            "versions": [version],
        },
    }

"""Create the CustomResourceDefinitions from the declarations of the kinds."""

from collections.abc import Mapping
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
from admitq_api.schema import ApiKind, create_schema, fill_in_group
from admitq_api.v1beta1 import schemas
from admitq_api.v1beta1.differences import list_differences
from admitq_api.webhook_names import get_conversion_service_name

KINDS: tuple[type[ApiKind], ...] = (
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


def create_crds(
    group: str = DEFAULT_GROUP, *, converted_by: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of all kinds under an API group.

    Install them by create or server-side apply. Client-side apply would copy them to an annotation, for which
    they are too large.

    Args:
        group: the API group. If it has an older version, both versions are served.
        converted_by: the clientConfig of the conversion webhook, which an older version needs. The default is
            the Service of an installation with default names.

    Raises:
        ValueError: admitq cannot serve the group.
    """
    names = names_for(group)
    return [_create_crd(kind, names, converted_by or create_client_config(names)) for kind in KINDS]


def create_client_config(names: Names) -> dict[str, Any]:
    """Return the default clientConfig of the conversion webhook."""
    return {
        "service": {
            "name": get_conversion_service_name(names.webhook_objects.service),
            "namespace": names.default_namespace,
            "path": names.conversion_path,
            "port": 443,
        }
    }


def _create_crd(kind: type[ApiKind], names: Names, converted_by: Mapping[str, Any]) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": names.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": fill_in_group(create_schema(kind), names.group)},
    }
    if kind.columns:
        version["additionalPrinterColumns"] = [column.to_schema() for column in kind.columns]
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    if kind.has_status():
        version["subresources"] = {"status": {}}
    versions, conversion = [version], {"strategy": "None"}
    if names.older_version is not None:
        versions.append(
            schemas.create_older_version(version, list_differences(names)[kind.__name__], names.older_version)
        )
        conversion = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": {**converted_by}, "conversionReviewVersions": ["v1"]},
        }
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
            "conversion": conversion,
            "versions": versions,
        },
    }

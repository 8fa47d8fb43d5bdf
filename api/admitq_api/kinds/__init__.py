"""All kinds of the API, one module each."""

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
from admitq_api.schema import Kind

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

__all__ = [
    "KINDS",
    "AdmissionCheck",
    "ClusterQueue",
    "Cohort",
    "LocalQueue",
    "MultiKueueCluster",
    "MultiKueueConfig",
    "ProvisioningRequestConfig",
    "ResourceFlavor",
    "Topology",
    "Workload",
    "WorkloadPriorityClass",
]

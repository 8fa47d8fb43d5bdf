"""MultiKueueCluster: a worker cluster to which workloads can be dispatched."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from admitq_api.kinds.common import Conditions
from admitq_api.schema import AGE, ApiKind, ApiModel, Column, ValidationRule, condition_column


class KubeConfig(ApiModel):
    """The location of a kubeconfig."""

    location: Annotated[str, Field(min_length=1, max_length=256)]
    """The name of the Secret, or the path of the file, that contains the kubeconfig."""

    location_type: Literal["Secret", "Path"] = "Secret"
    """Whether the kubeconfig is in a Secret (key kubeconfig, in the manager's namespace) or in a file."""


class ClusterProfileReference(ApiModel):
    """A reference to a ClusterProfile."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The name of the ClusterProfile."""


class ClusterSource(ApiModel):
    """How the manager connects to the cluster. Exactly one field must be set."""

    rules = (
        ValidationRule(
            "has(self.kubeConfig) != has(self.clusterProfileRef)",
            "exactly one of kubeConfig and clusterProfileRef must be set",
        ),
    )

    kube_config: KubeConfig | None = None
    """The kubeconfig of the cluster."""

    cluster_profile_ref: ClusterProfileReference | None = None
    """The ClusterProfile of the cluster."""


class MultiKueueClusterSpec(ApiModel):
    """The desired connection to the cluster."""

    cluster_source: ClusterSource
    """How the manager connects to the cluster."""


class MultiKueueClusterStatus(ApiModel):
    """The state of the connection to the cluster."""

    conditions: Conditions = ()
    """The conditions of the cluster. Active states whether the manager is connected to it."""


class MultiKueueCluster(ApiKind):
    """A worker cluster to which workloads can be dispatched."""

    plural: ClassVar[str] = "multikueueclusters"
    short_names: ClassVar[tuple[str, ...]] = ("mkc",)
    columns: ClassVar[tuple[Column, ...]] = (condition_column("Connected", "Active"), AGE)

    spec: MultiKueueClusterSpec | None = None
    """How the manager connects to the cluster."""

    status: MultiKueueClusterStatus | None = None
    """The state of the connection to the cluster."""

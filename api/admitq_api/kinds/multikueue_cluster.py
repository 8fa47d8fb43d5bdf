"""MultiKueueCluster: a cluster that workloads can be dispatched to."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from admitq_api.kinds.common import Conditions
from admitq_api.schema import AGE, ApiKind, ApiModel, Column, ValidationRule, condition_column


class KubeConfig(ApiModel):
    """Where the kubeconfig of the cluster is."""

    location: Annotated[str, Field(min_length=1, max_length=256)]
    """The name of the Secret, or the path of the file."""

    location_type: Literal["Secret", "Path"] = "Secret"
    """Whether it is in a Secret (key kubeconfig, in the manager's namespace) or in a file."""


class ClusterProfileReference(ApiModel):
    """A ClusterProfile."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The name of the ClusterProfile."""


class ClusterSource(ApiModel):
    """How to reach the cluster: exactly one of the fields."""

    rules = (
        ValidationRule(
            "has(self.kubeConfig) != has(self.clusterProfileRef)",
            "exactly one of kubeConfig and clusterProfileRef must be set",
        ),
    )

    kube_config: KubeConfig | None = None
    """By a kubeconfig."""

    cluster_profile_ref: ClusterProfileReference | None = None
    """By a ClusterProfile."""


class MultiKueueClusterSpec(ApiModel):
    """How to reach the cluster."""

    cluster_source: ClusterSource
    """How to reach the cluster."""


class MultiKueueClusterStatus(ApiModel):
    """Whether the cluster is reached."""

    conditions: Conditions = ()
    """Active: whether the cluster is connected."""


class MultiKueueCluster(ApiKind):
    """A cluster that workloads can be dispatched to."""

    plural: ClassVar[str] = "multikueueclusters"
    short_names: ClassVar[tuple[str, ...]] = ("mkc",)
    columns: ClassVar[tuple[Column, ...]] = (condition_column("Connected", "Active"), AGE)

    spec: MultiKueueClusterSpec | None = None
    """How to reach the cluster."""

    status: MultiKueueClusterStatus | None = None
    """Whether the cluster is reached."""

"""ProvisioningRequestConfig: how an AdmissionCheck asks an autoscaler for nodes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from admitq_api.kinds.common import Count
from admitq_api.schema import SET, ApiKind, ApiModel, map_list
from admitq_api.syntax import QUALIFIED_NAME_PATTERN, SUBDOMAIN_PATTERN


class RetryStrategy(ApiModel):
    """When to ask again after a failure."""

    backoff_limit_count: Count = 3
    """How often."""

    backoff_base_seconds: Count = 60
    """How long to wait the first time; each further time twice as long."""

    backoff_max_seconds: Count = 1800
    """The longest wait."""


class NodeSelectorUpdate(ApiModel):
    """A node selector taken from what was provisioned."""

    key: Annotated[str, Field(min_length=1, max_length=317, pattern=QUALIFIED_NAME_PATTERN)]
    """The label that pods select nodes by."""

    value_from_provisioning_class_detail: Annotated[str, Field(min_length=1, max_length=32768)]
    """The provisioning class detail with its value."""


class PodSetUpdates(ApiModel):
    """What is changed in pods when nodes were provisioned."""

    node_selector: Annotated[tuple[NodeSelectorUpdate, ...], Field(max_length=8), map_list("key")] = ()
    """Node selectors that are added."""


class ProvisioningRequestConfigSpec(ApiModel):
    """What is asked for."""

    provisioning_class_name: Annotated[str, Field(min_length=1, max_length=253, pattern=SUBDOMAIN_PATTERN)]
    """The class of the ProvisioningRequest."""

    parameters: Annotated[dict[str, Annotated[str, Field(max_length=255)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """The parameters of the ProvisioningRequest."""

    managed_resources: Annotated[tuple[str, ...], Field(max_length=100), SET] = ()
    """Only pods that ask for one of these resources need a request; empty: all do."""

    retry_strategy: RetryStrategy = RetryStrategy()
    """When to ask again after a failure."""

    pod_set_updates: PodSetUpdates | None = None
    """What is changed in pods when nodes were provisioned."""

    pod_set_merge_policy: (
        Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None
    ) = None
    """Which pod sets are asked for as one; absent: none."""


class ProvisioningRequestConfig(ApiKind):
    """How an AdmissionCheck asks an autoscaler for nodes."""

    plural: ClassVar[str] = "provisioningrequestconfigs"
    short_names: ClassVar[tuple[str, ...]] = ("prc",)

    spec: ProvisioningRequestConfigSpec | None = None
    """What is asked for."""

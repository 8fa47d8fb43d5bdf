"""ProvisioningRequestConfig: how an AdmissionCheck requests nodes from an autoscaler."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from admitq_api.kinds.common import Count
from admitq_api.schema import SET, ApiKind, ApiModel, map_list
from admitq_api.syntax import QUALIFIED_NAME_PATTERN, SUBDOMAIN_PATTERN


class RetryStrategy(ApiModel):
    """When a failed request is repeated."""

    backoff_limit_count: Count = 3
    """The maximum number of retries."""

    backoff_base_seconds: Count = 60
    """The delay before the first retry, in seconds. It doubles with each further retry."""

    backoff_max_seconds: Count = 1800
    """The maximum delay, in seconds."""


class NodeSelectorUpdate(ApiModel):
    """A node selector with a value from the provisioned nodes."""

    key: Annotated[str, Field(min_length=1, max_length=317, pattern=QUALIFIED_NAME_PATTERN)]
    """The key of the node selector."""

    value_from_provisioning_class_detail: Annotated[str, Field(min_length=1, max_length=32768)]
    """The provisioning class detail that contains the value."""


class PodSetUpdates(ApiModel):
    """Changes of pods after nodes have been provisioned."""

    node_selector: Annotated[tuple[NodeSelectorUpdate, ...], Field(max_length=8), map_list("key")] = ()
    """Node selectors that are added."""


class ProvisioningRequestConfigSpec(ApiModel):
    """The desired ProvisioningRequests."""

    provisioning_class_name: Annotated[str, Field(min_length=1, max_length=253, pattern=SUBDOMAIN_PATTERN)]
    """The class of the ProvisioningRequest."""

    parameters: Annotated[dict[str, Annotated[str, Field(max_length=255)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """The parameters of the ProvisioningRequest."""

    managed_resources: Annotated[tuple[str, ...], Field(max_length=100), SET] = ()
    """A ProvisioningRequest is created only for pods that request one of these resources. If empty, it is
    created for all pods."""

    retry_strategy: RetryStrategy = RetryStrategy()
    """When a failed request is repeated."""

    pod_set_updates: PodSetUpdates | None = None
    """Changes of pods after nodes have been provisioned."""

    pod_set_merge_policy: (
        Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None
    ) = None
    """Which pod sets are merged in one request. By default none are merged."""


class ProvisioningRequestConfig(ApiKind):
    """How an AdmissionCheck requests nodes from an autoscaler."""

    plural: ClassVar[str] = "provisioningrequestconfigs"
    short_names: ClassVar[tuple[str, ...]] = ("prc",)

    spec: ProvisioningRequestConfigSpec | None = None
    """The desired ProvisioningRequests."""

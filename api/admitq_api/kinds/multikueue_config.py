"""MultiKueueConfig: the clusters that an AdmissionCheck dispatches workloads to."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from admitq_api.schema import SET, ApiKind, ApiModel


class MultiKueueConfigSpec(ApiModel):
    """Which clusters."""

    clusters: Annotated[
        tuple[Annotated[str, Field(max_length=256)], ...], Field(min_length=1, max_length=20), SET
    ]
    """The MultiKueueClusters, in the order in which they are tried."""

    quota_management: Literal["Manual", "Automated"] = "Manual"
    """Whether quota here follows the quota there."""


class MultiKueueConfig(ApiKind):
    """The clusters that an AdmissionCheck dispatches workloads to."""

    plural: ClassVar[str] = "multikueueconfigs"
    short_names: ClassVar[tuple[str, ...]] = ("mkconf",)

    spec: MultiKueueConfigSpec | None = None
    """Which clusters."""

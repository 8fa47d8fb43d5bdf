"""MultiKueueConfig: the worker clusters to which an AdmissionCheck dispatches workloads."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from admitq_api.schema import SET, ApiKind, ApiModel


class MultiKueueConfigSpec(ApiModel):
    """The desired worker clusters."""

    clusters: Annotated[
        tuple[Annotated[str, Field(max_length=256)], ...], Field(min_length=1, max_length=20), SET
    ]
    """The names of MultiKueueClusters, in the order in which they are tried."""

    quota_management: Literal["Manual", "Automated"] = "Manual"
    """Whether the quota in this cluster follows the quota in the worker clusters."""


class MultiKueueConfig(ApiKind):
    """The worker clusters to which an AdmissionCheck dispatches workloads."""

    plural: ClassVar[str] = "multikueueconfigs"
    short_names: ClassVar[tuple[str, ...]] = ("mkconf",)

    spec: MultiKueueConfigSpec | None = None
    """The desired worker clusters."""

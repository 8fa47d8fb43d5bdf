"""WorkloadPriorityClass: a priority of workloads that is independent of the priority of their pods."""

from typing import Annotated, ClassVar

from pydantic import Field

from admitq_api.kinds.common import Int32
from admitq_api.schema import ApiKind, Column


class WorkloadPriorityClass(ApiKind):
    """A priority of workloads that is independent of the priority of their pods."""

    plural: ClassVar[str] = "workloadpriorityclasses"
    short_names: ClassVar[tuple[str, ...]] = ("wpc",)
    columns: ClassVar[tuple[Column, ...]] = (Column("Value", ".value", "integer"),)

    value: Int32
    """The priority. Workloads of higher priority come first. Changes apply to waiting workloads."""

    description: Annotated[str | None, Field(max_length=2048)] = None
    """The purpose of the class."""

"""WorkloadPriorityClass: a priority in the queue, apart from that of pods."""

from typing import Annotated, ClassVar

from pydantic import Field

from admitq_api.kinds.common import Int32
from admitq_api.schema import ApiKind, Column


class WorkloadPriorityClass(ApiKind):
    """A priority in the queue, apart from that of pods."""

    plural: ClassVar[str] = "workloadpriorityclasses"
    short_names: ClassVar[tuple[str, ...]] = ("wpc",)
    columns: ClassVar[tuple[Column, ...]] = (Column("Value", ".value", "integer"),)

    value: Int32
    """The priority: more goes first. A change applies to workloads that wait."""

    description: Annotated[str | None, Field(max_length=2048)] = None
    """What the class is for."""

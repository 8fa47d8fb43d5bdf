"""AdmissionCheck: something that must be ready before a workload with quota may start."""

from typing import Annotated, ClassVar

from pydantic import Field

from admitq_api.kinds.common import Conditions
from admitq_api.schema import ApiKind, ApiModel, immutable, immutable_with_spec
from admitq_api.syntax import LABEL_PATTERN, SUBDOMAIN_PATTERN


class AdmissionCheckParameters(ApiModel):
    """An object with the parameters of the check."""

    api_group: Annotated[str, Field(max_length=253, pattern=SUBDOMAIN_PATTERN)]
    """The API group of the object."""

    kind: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$")]
    """The kind of the object."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=LABEL_PATTERN)]
    """The name of the object."""


class AdmissionCheckSpec(ApiModel):
    """Who does the check, and how."""

    controller_name: Annotated[str, Field(min_length=1, max_length=253), immutable("controllerName")]
    """The controller that does the check."""

    parameters: AdmissionCheckParameters | None = None
    """An object with the parameters of the check."""


class AdmissionCheckStatus(ApiModel):
    """Whether the check can be done."""

    conditions: Conditions = ()
    """Active: whether the check can be done."""


class AdmissionCheck(ApiKind):
    """Something that must be ready before a workload with quota may start."""

    plural: ClassVar[str] = "admissionchecks"
    short_names: ClassVar[tuple[str, ...]] = ("ac",)
    rules = (immutable_with_spec("controllerName"),)

    spec: AdmissionCheckSpec | None = None
    """Who does the check, and how."""

    status: AdmissionCheckStatus | None = None
    """Whether the check can be done."""

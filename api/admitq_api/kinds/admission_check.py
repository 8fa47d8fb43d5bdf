"""AdmissionCheck: a condition for the admission of workloads that have reserved quota."""

from typing import Annotated, ClassVar

from pydantic import Field

from admitq_api.kinds.common import Conditions
from admitq_api.schema import ApiKind, ApiModel, immutable, immutable_with_spec
from admitq_api.syntax import LABEL_PATTERN, SUBDOMAIN_PATTERN


class AdmissionCheckParameters(ApiModel):
    """A reference to an object with the parameters of the check."""

    api_group: Annotated[str, Field(max_length=253, pattern=SUBDOMAIN_PATTERN)]
    """The API group of the object."""

    kind: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$")]
    """The kind of the object."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=LABEL_PATTERN)]
    """The name of the object."""


class AdmissionCheckSpec(ApiModel):
    """The controller of the check and its parameters."""

    controller_name: Annotated[str, Field(min_length=1, max_length=253), immutable("controllerName")]
    """The name of the controller that performs the check."""

    parameters: AdmissionCheckParameters | None = None
    """The object with the parameters of the check."""


class AdmissionCheckStatus(ApiModel):
    """The state of the check."""

    conditions: Conditions = ()
    """The conditions of the check. Active states whether its controller can perform it."""


class AdmissionCheck(ApiKind):
    """A check that must be Ready before a workload with reserved quota is admitted."""

    plural: ClassVar[str] = "admissionchecks"
    short_names: ClassVar[tuple[str, ...]] = ("ac",)
    rules = (immutable_with_spec("controllerName"),)

    spec: AdmissionCheckSpec | None = None
    """The controller of the check and its parameters."""

    status: AdmissionCheckStatus | None = None
    """The state of the check."""

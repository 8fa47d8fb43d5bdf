"""Cohort: a group of ClusterQueues and cohorts that can borrow unused quota from each other."""

from typing import ClassVar

from admitq_api.kinds.common import (
    FairSharingSpec,
    FairSharingStatus,
    ResourceGroups,
    Subdomain,
    require_parent_for_limits,
)
from admitq_api.schema import ApiKind, ApiModel


class CohortSpec(ApiModel):
    """The desired state of the Cohort."""

    rules = (require_parent_for_limits("parentName", "parent"),)

    parent_name: Subdomain | None = None
    """The parent cohort. Quota can be borrowed from its other members and lent to them."""

    resource_groups: ResourceGroups = ()
    """Quota of the cohort itself. All members can borrow it."""

    fair_sharing: FairSharingSpec | None = None
    """The weight of this cohort among the members of its parent."""


class CohortStatus(ApiModel):
    """The observed state of the Cohort."""

    fair_sharing: FairSharingStatus | None = None
    """The state of fair sharing. It is set only if fair sharing is enabled."""


class Cohort(ApiKind):
    """A group of ClusterQueues and cohorts that can borrow unused quota from each other."""

    plural: ClassVar[str] = "cohorts"
    short_names: ClassVar[tuple[str, ...]] = ("co",)

    spec: CohortSpec | None = None
    """The desired state of the Cohort."""

    status: CohortStatus | None = None
    """The observed state of the Cohort."""

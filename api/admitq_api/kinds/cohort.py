"""Cohort: ClusterQueues and cohorts that lend quota to each other."""

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
    """The place of a cohort in its tree, and quota of its own."""

    rules = (require_parent_for_limits("parentName", "parent"),)

    parent_name: Subdomain | None = None
    """The cohort to borrow from and lend to."""

    resource_groups: ResourceGroups = ()
    """Quota that all members can borrow."""

    fair_sharing: FairSharingSpec | None = None
    """How much this cohort counts against its siblings."""


class CohortStatus(ApiModel):
    """What is borrowed."""

    fair_sharing: FairSharingStatus | None = None
    """How much is borrowed, weighed; only with fair sharing."""


class Cohort(ApiKind):
    """ClusterQueues and cohorts that lend quota to each other."""

    plural: ClassVar[str] = "cohorts"
    short_names: ClassVar[tuple[str, ...]] = ("co",)

    spec: CohortSpec | None = None
    """The place of the cohort in its tree, and quota of its own."""

    status: CohortStatus | None = None
    """What is borrowed."""

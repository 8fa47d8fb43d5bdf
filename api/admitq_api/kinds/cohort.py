"""Cohort: ClusterQueues and cohorts that lend quota to each other."""

from typing import ClassVar

from admitq_api.kinds.common import FairSharing, FairSharingStatus, ResourceGroups, Subdomain, limits_need
from admitq_api.schema import Kind, Part


class CohortSpec(Part):
    """The place of a cohort in its tree, and quota of its own."""

    rules = (limits_need("parentName", "parent"),)

    parent_name: Subdomain | None = None
    """The cohort to borrow from and lend to."""

    resource_groups: ResourceGroups = ()
    """Quota that all members can borrow."""

    fair_sharing: FairSharing | None = None
    """How much this cohort counts against its siblings."""


class CohortStatus(Part):
    """What is borrowed."""

    fair_sharing: FairSharingStatus | None = None
    """How much is borrowed, weighed; only with fair sharing."""


class Cohort(Kind):
    """ClusterQueues and cohorts that lend quota to each other."""

    plural: ClassVar[str] = "cohorts"
    short_names: ClassVar[tuple[str, ...]] = ("co",)

    spec: CohortSpec | None = None
    """The place of the cohort in its tree, and quota of its own."""

    status: CohortStatus | None = None
    """What is borrowed."""

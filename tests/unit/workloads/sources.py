"""Jobs with all other inputs of their Workloads."""

from dataclasses import dataclass
from typing import Any

from admitq.controllers.job.case import Lookups
from admitq.controllers.settings import WorkloadConventions
from admitq.integrations.base import Integration
from admitq_api.labels import Names


@dataclass(frozen=True)
class Source:
    integration: Integration
    names: Names
    job: Any
    conventions: WorkloadConventions
    lookups: Lookups


def lookups() -> Lookups:
    """Return the lookups of a cluster without other objects."""
    return Lookups(
        flavor=lambda _: None,
        workload_priority_class=lambda _: None,
        priority_class=lambda _: None,
        priority_classes=lambda: (),
        workload=lambda _: None,
    )

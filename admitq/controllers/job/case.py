"""A job, its Workloads and what surrounds them: all that a decision about the job is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from admitq.controllers.lookups import Lookups
from admitq.controllers.plan import (
    ActionPlan,
    RecordEvent,
    RecordMetric,
    plan_of,
    status_patch,
    workload_status_patch,
)
from admitq.controllers.pods.remaining_pods import RemainingPods
from admitq.controllers.settings import Settings, WorkloadConventions
from admitq.core.model import Instant
from admitq.integrations.base import (
    ChildDifference,
    Composition,
    Integration,
    ObjectReference,
    get_group_name,
    list_members,
)
from admitq.integrations.ownership import get_queue_name, is_controlled_by
from admitq.runtime.kinds import Kinds
from admitq.runtime.resources import Resource
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import SECOND, ConditionType
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

CONCERN: Final = "job-controller"


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The job that is queued in this one's stead."""

    job: JsonObject
    admitted: bool
    """Whether its latest unfinished Workload is admitted."""
    holds_quota: bool = False
    """Whether quota is reserved for it, admitted or not."""
    difference: ChildDifference | None = None
    """In what this job differs from those that run with it; it is stopped for that, and ``admitted`` is
    False."""


@dataclass(frozen=True)
class JobCase:
    """What is known of one job.

    ``workloads`` are all whose controller has the job's kind and name, whatever its UID: an earlier job
    may have had the same name. ``job`` is None if there is none, and else as its kind resolves it.
    ``missing`` are objects that its pods follow from and that are not there: its podsets, or how many pods
    they have by now, cannot be told.
    """

    integration: Integration
    names: Names
    kinds: Kinds
    settings: Settings
    now: Instant
    job: JsonObject | None
    workloads: tuple[JsonObject, ...]
    lookups: Lookups
    namespace_matches: bool = True
    is_namespace_terminating: bool = False
    """Nothing can be created in the namespace any more."""
    ancestor: Ancestor | None = None
    missing: tuple[ObjectReference, ...] = ()
    remaining_pods: Mapping[str, RemainingPods] = field(default_factory=dict[str, RemainingPods])
    """Pods that can still run although their job is gone or going, by the UID of their Workload."""

    @property
    def conventions(self) -> WorkloadConventions:
        """What the configuration decides about the job's Workloads."""
        return self.settings.conventions

    @property
    def resource(self) -> Resource:
        """The job's resource."""
        one = self.integration
        return Resource(one.group, one.version, one.plural, one.kind, namespaced=True)

    @property
    def composition(self) -> Composition | None:
        """How the job is put together; None if it is one object."""
        return self.integration.composition

    @property
    def group(self) -> str:
        """Name of the group that the job is; empty for a job of one object."""
        return "" if self.job is None else get_group_name(self.job)

    @property
    def objects(self) -> Sequence[JsonObject]:
        """The objects that the job is made of."""
        return () if self.job is None else list_members(self.job) or (self.job,)

    @cached_property
    def owned(self) -> list[JsonObject]:
        """Workloads of this very job, oldest first. That of a group is told by its name."""
        job = self.job
        if job is None:
            return []
        mine = [one for one in self.workloads if self.group or is_controlled_by(one, job)]
        return sorted(
            mine, key=lambda one: (one["metadata"].get("creationTimestamp", ""), one["metadata"]["name"])
        )

    @cached_property
    def orphaned(self) -> list[JsonObject]:
        """Workloads of a job that is no more."""
        mine = {workload["metadata"]["name"] for workload in self.owned}
        return [workload for workload in self.workloads if workload["metadata"]["name"] not in mine]

    @property
    def is_gone_or_terminating(self) -> bool:
        """Whether the job is gone, or being deleted."""
        return self.job is None or "deletionTimestamp" in self.job["metadata"]

    @property
    def workloads_without_job(self) -> Sequence[JsonObject]:
        """Workloads to release: their job is gone, or going and has no pods to clean up."""
        is_kept = (
            self.job is not None
            and self.settings.jobs.defer_cleanup
            and self.integration.lifecycle.is_cleaning_up(self.job)
        )
        return self.workloads if self.is_gone_or_terminating and not is_kept else self.orphaned

    def has_remaining_pods(self, workload: JsonObject) -> bool:
        """Whether pods of the Workload can still run although their job is gone or going."""
        return workload["metadata"]["uid"] in self.remaining_pods

    @property
    def queue_name(self) -> str:
        """The LocalQueue that the job names."""
        return "" if self.job is None else get_queue_name(self.job, self.names)

    def annotation(self, key: str) -> str | None:
        """An annotation of the job."""
        return value_at(self.job, ("metadata", "annotations", key))

    def label(self, key: str) -> str | None:
        """A label of the job."""
        return value_at(self.job, ("metadata", "labels", key))

    def begin_transition(self, workload: JsonObject) -> Transition:
        """A change of a Workload's status."""
        return StatusTransition(workload, self.now)

    def plan_transition(
        self,
        workload: JsonObject,
        transition: Transition,
        *after: RecordEvent | RecordMetric | None,
        concern: str | None = None,
    ) -> ActionPlan | None:
        """The plan that writes the change and then reports it; None if there is nothing to write.

        Without a ``concern``, a change of the admission status is written under that of the admission.
        """
        patch, workloads = transition.patch(), self.kinds.workloads
        write = (
            workload_status_patch(workloads, workload, patch, CONCERN)
            if concern is None
            else status_patch(workloads, workload, patch, concern)
        )
        return None if write is None else plan_of(write, *after)

    def event(self, reason: str, note: str, *, warning: bool = False) -> RecordEvent:
        """An event about the job; one about a group is told of its oldest member."""
        assert self.job is not None  # noqa: S101 only steps that have a job tell of it
        return RecordEvent(self.objects[0], "Warning" if warning else "Normal", reason, note)


def seconds_between(start: Instant | None, end: Instant) -> float:
    """The seconds between two instants; none if the first is not known or the clock went backwards."""
    return 0.0 if start is None else max(0, end - start) / SECOND


def condition_concern(condition: ConditionType) -> str:
    """The field manager's concern for a condition that the job's controller alone writes."""
    return f"{CONCERN}-{condition}"

"""A job, its Workloads and its surroundings: everything that a decision about the job depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from admitq.controllers.job.kept_children import RunningChild
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
from admitq.controllers.settings import ControllerSettings, WorkloadConventions
from admitq.core.model import Instant
from admitq.integrations.base import ChildDifference, Composition, Integration, get_group_name, list_members
from admitq.integrations.ownership import get_queue_name, is_controlled_by
from admitq.integrations.references import ObjectReference
from admitq.runtime.kinds import Kinds
from admitq.runtime.resources import Resource
from admitq.workloads.transitions import StatusTransition
from admitq_api.conditions import SECOND, ConditionType
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

CONCERN: Final = "job-controller"


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The job that is queued in place of a job inside it."""

    job: JsonObject
    admitted: bool
    """Whether its latest unfinished Workload is admitted."""
    holds_quota: bool = False
    """Whether quota is reserved for it, admitted or not."""
    difference: ChildDifference | None = None
    """How the job differs from the jobs that its owner creates. Such a job is stopped, and ``admitted`` is
    False.
    """
    keeps_children: bool = False
    """Whether its controller neither stops nor starts the jobs inside when it is suspended or resumed."""
    is_suspended: bool = False


@dataclass(frozen=True)
class JobCase:
    """The inputs of a decision about one job.

    ``workloads`` are all Workloads with a controller of the kind and name of the job. Their owner may be
    an earlier job of that name, with another UID. ``job`` is None if the job does not exist; references
    in it are resolved. ``missing`` are objects that define the pods of the job and that do not exist.
    Without them the podsets, or the current number of pods, are unknown.
    """

    integration: Integration
    names: Names
    kinds: Kinds
    settings: ControllerSettings
    now: Instant
    job: JsonObject | None
    workloads: tuple[JsonObject, ...]
    lookups: Lookups
    namespace_matches: bool = True
    is_namespace_terminating: bool = False
    """Nothing can be created in the namespace any more."""
    ancestor: Ancestor | None = None
    missing: tuple[ObjectReference, ...] = ()
    lacks_active_object: bool = False
    """Whether the object that runs the pods of the job does not exist."""
    remaining_pods: Mapping[str, RemainingPods] = field(default_factory=dict[str, RemainingPods])
    """Pods that can still run although their job is gone or terminating, by UID of their Workload."""
    running_children: Sequence[RunningChild] = ()
    """Children of a suspended job that its controller does not stop."""

    @property
    def conventions(self) -> WorkloadConventions:
        """What the configuration says about the Workloads of jobs."""
        return self.settings.conventions

    @property
    def resource(self) -> Resource:
        """The job's resource."""
        kind = self.integration
        return Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=True)

    @property
    def composition(self) -> Composition | None:
        """How the job is composed of members; None for a job of one object."""
        return self.integration.composition

    @property
    def group(self) -> str:
        """Name of the pod group that the job is; empty for a job of one object."""
        return "" if self.job is None else get_group_name(self.job)

    @property
    def objects(self) -> Sequence[JsonObject]:
        """The objects of the job: its members, or the one object."""
        return () if self.job is None else list_members(self.job) or (self.job,)

    @cached_property
    def owned(self) -> list[JsonObject]:
        """The Workloads of this job, oldest first. The Workload of a group is found by its name."""
        job = self.job
        if job is None:
            return []
        mine = [workload for workload in self.workloads if self.group or is_controlled_by(workload, job)]
        return sorted(
            mine,
            key=lambda workload: (
                workload["metadata"].get("creationTimestamp", ""),
                workload["metadata"]["name"],
            ),
        )

    @cached_property
    def orphaned(self) -> list[JsonObject]:
        """Workloads of an earlier job of the same name."""
        mine = {workload["metadata"]["name"] for workload in self.owned}
        return [workload for workload in self.workloads if workload["metadata"]["name"] not in mine]

    @property
    def is_gone_or_terminating(self) -> bool:
        """Whether the job does not exist or is being deleted."""
        return self.job is None or "deletionTimestamp" in self.job["metadata"]

    @property
    def workloads_without_job(self) -> Sequence[JsonObject]:
        """Workloads to release: their job does not exist, or is being deleted and has no pods to clean up."""
        is_kept = (
            self.job is not None
            and self.settings.jobs.defer_cleanup
            and self.integration.lifecycle.is_cleaning_up(self.job)
        )
        return self.workloads if self.is_gone_or_terminating and not is_kept else self.orphaned

    def has_remaining_pods(self, workload: JsonObject) -> bool:
        """Whether pods of the Workload can still run although their job is gone or terminating."""
        return workload["metadata"]["uid"] in self.remaining_pods

    @property
    def queue_name(self) -> str:
        """The LocalQueue that the job names."""
        return "" if self.job is None else get_queue_name(self.job, self.names)

    def annotation(self, key: str) -> str | None:
        """Return an annotation of the job."""
        return value_at(self.job, ("metadata", "annotations", key))

    def label(self, key: str) -> str | None:
        """Return a label of the job."""
        return value_at(self.job, ("metadata", "labels", key))

    def begin_transition(self, workload: JsonObject) -> StatusTransition:
        """Begin a change of a Workload's status."""
        return StatusTransition(workload, self.now)

    def plan_transition(
        self,
        workload: JsonObject,
        transition: StatusTransition,
        *after: RecordEvent | RecordMetric | None,
        concern: str | None = None,
    ) -> ActionPlan | None:
        """Return the plan that writes the change and then reports it; None if there is nothing to write.

        Without a ``concern``, changes of the admission are written with the concern of the admission.
        """
        patch, workloads = transition.patch(), self.kinds.workloads
        write = (
            workload_status_patch(workloads, workload, patch, CONCERN)
            if concern is None
            else status_patch(workloads, workload, patch, concern)
        )
        return None if write is None else plan_of(write, *after)

    def event(self, reason: str, note: str, *, warning: bool = False) -> RecordEvent:
        """Return an event about the job; for a group it is recorded on the oldest member."""
        assert self.job is not None  # noqa: S101 only steps for existing jobs record events
        return RecordEvent(self.objects[0], "Warning" if warning else "Normal", reason, note)


def seconds_between(start: Instant | None, end: Instant) -> float:
    """Return the seconds between two instants; 0 if the first is unknown or the clock went backwards."""
    return 0.0 if start is None else max(0, end - start) / SECOND


def condition_concern(condition: ConditionType) -> str:
    """Return the concern of the field manager for a condition that only the job controller writes."""
    return f"{CONCERN}-{condition}"

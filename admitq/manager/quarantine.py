"""Stored objects that cannot be read: kept in mind, counted, and told of on themselves."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from admitq.core.events import Event
from admitq.core.model import Instant, ObjectKey
from admitq.manager.admission_writer import AdmissionWriter
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.translate.messages import Explanation
from admitq.translate.metadata import key_of
from admitq.translate.observations import Observation
from admitq.workloads.admission_status import CONCERN
from admitq_api import conditions, stored_fields
from admitq_api.conditions import ConditionType, Reason

log = logger(__name__)

READ_ERRORS: Final = (stored_fields.MalformedField, KeyError, TypeError, ValueError, AttributeError)
"""What reading an object raises that does not have the shape it should."""


MALFORMED_EVENT: Final = "Malformed"
WITH_ACTIVE_CONDITION: Final = ("clusterqueues", "localqueues")


def quarantined_event(observation: Observation, obj: dict[str, Any]) -> Event:
    """What the core observes of an object that is left out: what still counts of it, or that it is gone.

    What a Workload holds still counts, and so do the quota and the cohort of a ClusterQueue.
    """
    if observation.quarantined is not None:
        with suppress(*READ_ERRORS):
            return observation.quarantined(obj)
    return observation.deleted(obj)


@dataclass(frozen=True, slots=True)
class QuarantinedObject:
    """A stored object that cannot be read, or is left out for another reason, and why."""

    resource: Resource
    obj: dict[str, Any]
    problem: str
    reason: str = MALFORMED_EVENT
    """Of the event about it."""


@dataclass
class Quarantine:
    """The stored objects that cannot be read now.

    Args:
        metrics: where they are counted.
        count_in_store: how many objects of a resource are quarantined in its store.
        report: called with each object that is left out.
    """

    metrics: Metrics
    count_in_store: Callable[[Resource], int]
    report: Callable[[QuarantinedObject], None] = lambda _: None
    objects: dict[tuple[str, ObjectKey], QuarantinedObject] = field(
        default_factory=dict[tuple[str, ObjectKey], QuarantinedObject]
    )

    def add_unreadable(self, resource: Resource, obj: dict[str, Any], error: Exception) -> bool:
        """Note that an object cannot be read, and tell so on it; returns whether that is news."""
        problem = str(error) if isinstance(error, stored_fields.MalformedField) else f"unreadable: {error!r}"
        return self.add(resource, obj, problem, MALFORMED_EVENT)

    def add(self, resource: Resource, obj: dict[str, Any], problem: str, reason: str) -> bool:
        """Note that an object is left out, and tell so on it; returns whether that is news."""
        key = key_of(obj)
        before = self.objects.get((resource.plural, key))
        now = self.objects[resource.plural, key] = QuarantinedObject(resource, obj, problem, reason)
        if before is not None and before.problem == problem:
            return False
        self.update_metric(resource)
        log.warning("object is left out", resource=resource.plural, object=str(key), problem=problem)
        self.report(now)
        return True

    def remove(self, plural: str, key: ObjectKey) -> None:
        """Note that an object can be read, or is gone."""
        if (one := self.objects.pop((plural, key), None)) is not None:
            self.update_metric(one.resource)

    def report_all(self) -> None:
        """Report all objects that are left out: this process may write now."""
        for one in self.objects.values():
            self.report(one)

    def update_metric(self, resource: Resource) -> None:
        """Tell how many objects of a resource cannot be read."""
        with self.metrics.errors.contain(ErrorPart.METRICS, resource):
            unreadable = sum(plural == resource.plural for plural, _ in self.objects)
            count = unreadable + self.count_in_store(resource)
            self.metrics.set("malformed_objects", count, resource=resource.plural)


@dataclass(frozen=True)
class QuarantineReporter:
    """Reports objects that are left out, by an event and by their status.

    Args:
        writer: writes the statuses of Workloads, and has what other writes need.
        clock: wall time in nanoseconds.
        leading: whether this process may write.
        spawn: runs a write behind the caller.
    """

    writer: AdmissionWriter
    clock: Callable[[], Instant]
    leading: Callable[[], bool]
    spawn: Callable[[Awaitable[None]], object]

    def report(self, one: QuarantinedObject) -> None:
        """Report an object, if this process may write."""
        self.spawn(self._report(one))

    async def _report(self, one: QuarantinedObject) -> None:
        if not self.leading():
            return
        key = key_of(one.obj)
        self.writer.recorder.event(one.obj, "Warning", one.reason, one.problem)
        try:
            if one.resource == self.writer.writes.resource:
                uid = one.obj["metadata"]["uid"]
                await self.writer.write_pending(key, uid, Explanation(Reason.MISCONFIGURED, one.problem), ())
            elif one.resource.plural in WITH_ACTIVE_CONDITION:
                await self._report_inactive(one)
        except (ApiError, *READ_ERRORS) as error:
            # The event and the metric tell it already; the status of such an object may not be writable.
            log.info("status of a malformed object was not written", object=str(key), error=repr(error))

    async def _report_inactive(self, one: QuarantinedObject) -> None:
        metadata = one.obj["metadata"]
        before = (one.obj.get("status") or {}).get("conditions") or []
        state = conditions.with_condition(
            before,
            type=ConditionType.ACTIVE,
            status=False,
            reason=Reason.UNKNOWN,
            message=one.problem,
            now=self.clock(),
            observed_generation=metadata.get("generation"),
        )
        if state == before:
            return
        guard = {"resourceVersion": metadata["resourceVersion"]}
        written = await self.writer.writes.client.merge_patch(
            one.resource,
            metadata["name"],
            {"metadata": guard, "status": {"conditions": state}},
            namespace=metadata.get("namespace"),
            subresource="status",
            field_manager=self.writer.names.field_manager(CONCERN),
        )
        self.writer.writes.store_answer(one.resource, written)

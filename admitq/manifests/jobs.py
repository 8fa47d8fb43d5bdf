"""Workloads of jobs in manifests.

The function that converts jobs to Workloads is that of the manager. So a Workload here equals that of the
same manifest on a cluster.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from admitq.core.model import Workload
from admitq.integrations.base import Integration, PodSetTemplate, RuleContext
from admitq.integrations.references import ObjectReference
from admitq.integrations.workload_names import MAX_NAME_LENGTH
from admitq.manifests.documents import FieldPath, field_path
from admitq.metrics.custom_labels import MetadataKey
from admitq.translate.read_options import ReadOptions
from admitq.translate.workloads import read_workload
from admitq.workloads.job_workloads import (
    InvalidJob,
    PriorityClasses,
    PriorityClassMissing,
    WorkloadNotPossible,
    new_workload,
)
from admitq.workloads.topology_annotations import DEFAULT_TOPOLOGY_RULES, TopologyRules
from admitq_api.json_objects import JsonObject, with_value
from admitq_api.labels import Names
from admitq_api.stored_fields import MalformedField

_CREATED: Final = "1970-01-01T00:00:00Z"
_POD_SETS: Final = ("spec", "podSets")

ErrorFactory = Callable[[FieldPath, str], Exception]
"""Returns the error for a field of the Job or Workload and its remedy."""


@dataclass(frozen=True, slots=True)
class _Conventions:
    partial_admission: bool
    topology_rules: TopologyRules | None
    longest_workload_name: int = MAX_NAME_LENGTH
    label_keys_to_copy: tuple[str, ...] = ()
    metric_values_to_copy: tuple[MetadataKey, ...] = ()


@dataclass(frozen=True, slots=True)
class _Source:
    """A job and the other inputs of its Workload."""

    integration: Integration
    names: Names
    job: JsonObject
    conventions: _Conventions
    lookups: PriorityClasses


class TranslatedWorkload(NamedTuple):
    """A Workload as value of the core and as object.

    ``integration`` and ``job`` are its kind of job, and the job with defaults and the data of the objects to
    which it refers; None if the manifest is the Workload itself.
    """

    workload: Workload
    obj: JsonObject
    integration: Integration | None = None
    job: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class JobTranslation:
    """Translates jobs and Workloads.

    Args:
        names: the names of the API group.
        integration_of: returns the job kind of an object.
        lookups: returns priority classes.
        referenced: returns other objects that define pods of jobs.
        how: the options for parsing Workloads.
        partial_admission: whether Jobs with a minimum of pods may run with fewer pods.
        uid: the UID of jobs and Workloads, on which the names of Workloads depend.
        created: when Workloads were created, as in the API.
        longest_workload_name: the maximum length of the name of a Workload.
        topology_rules: the rules of topology annotations; None if podsets request no topology.
    """

    names: Names
    integration_of: Callable[[JsonObject], Integration | None]
    lookups: PriorityClasses
    referenced: Callable[[ObjectReference], JsonObject | None]
    how: ReadOptions
    partial_admission: bool = True
    uid: str = "template"
    created: str = _CREATED
    longest_workload_name: int = MAX_NAME_LENGTH
    topology_rules: TopologyRules | None = DEFAULT_TOPOLOGY_RULES

    def translate(self, obj: JsonObject, blame: ErrorFactory) -> TranslatedWorkload:
        """Return the Workload of a job, or the Workload itself.

        Args:
            obj: the job or the Workload.
            blame: creates the error of an invalid field.
        """
        integration = self.integration_of(obj)
        if integration is None:
            return self._translated(with_value(obj, ("status",), None), (), blame)
        return self.translate_job(integration, self.apply_defaults(integration, obj), blame)

    def apply_defaults(self, integration: Integration, obj: JsonObject) -> JsonObject:
        """Return a job as the webhook of its kind changes it. Members of a composed job are such jobs."""
        return integration.webhook.mutate(
            with_value(obj, ("metadata", "uid"), self.uid), RuleContext(self.names)
        )

    def translate_job(
        self, integration: Integration, job: JsonObject, blame: ErrorFactory
    ) -> TranslatedWorkload:
        """Return the Workload of a job with its defaults, or of a composed job."""
        objects: dict[ObjectReference, JsonObject] = {}
        for reference in filter(integration.is_required, integration.templates.list_references(job)):
            referenced = self.referenced(reference)
            if referenced is None:
                raise blame(("spec",), f"{reference} does not exist, or is not known: add its manifest")
            objects[reference] = referenced
        job = integration.templates.resolve(job, objects)
        conventions = _Conventions(
            self.partial_admission, self.topology_rules, longest_workload_name=self.longest_workload_name
        )
        try:
            raw = new_workload(_Source(integration, self.names, job, conventions, self.lookups))
        except PriorityClassMissing as error:
            raise blame(("metadata", "labels", self.names.priority_class), f"{error}") from None
        except InvalidJob as error:
            raise blame(("spec",), f"{error}") from None
        except WorkloadNotPossible as error:
            raise blame(("metadata",), f"{error}") from None
        translated = self._translated(raw, integration.list_pod_sets(job, self.names), blame)
        return translated._replace(integration=integration, job=job)

    def _translated(
        self, raw: JsonObject, pod_sets: Iterable[PodSetTemplate], blame: ErrorFactory
    ) -> TranslatedWorkload:
        paths = [pod_set.template_path for pod_set in pod_sets]
        metadata: Mapping[str, Any] = raw.get("metadata") or {}
        stored = {
            **raw,
            "metadata": {
                **metadata,
                "name": metadata.get("name", ""),
                "uid": "",
                "creationTimestamp": self.created,
            },
        }
        try:
            workload = read_workload(stored, self.names, self.how)
        except MalformedField as error:
            raise blame(_in_job(error.field, paths), error.remedy) from None
        for problem in workload.resource_problems:
            raise blame(_in_job(problem.field, paths), problem.detail)
        if not workload.queue_name:
            where = ("metadata", "labels", self.names.queue_name) if paths else ("spec", "queueName")
            raise blame(where, "is required: name the LocalQueue")
        return TranslatedWorkload(workload, stored)


def _in_job(name: str, templates: list[tuple[str | int, ...]]) -> FieldPath:
    """Return the field of the job that determines a field of its Workload."""
    path = field_path(name)
    if path[:2] == _POD_SETS and len(path) > 3 and path[3] == "template" and isinstance(path[2], int):
        index = path[2]
        if index < len(templates):
            return (*templates[index], *path[4:])
    return path

"""Hypothetical changes of objects: manifests to apply and objects to delete, as events of the core.

A manifest replaces the whole object of its name, as ``kubectl replace`` does; the status of a stored object
stays. Defaults and checks are those of the API server (``manifests``). A job becomes a Workload by the
functions of the manager. Nothing is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from admitq.asking.hypothesis_inputs import WORKLOAD, HypothesisOptions, IndexedObjects, name_documents
from admitq.asking.serving_objects import (
    MOST_WORKLOADS,
    POD,
    get_group_index,
    has_groups,
    is_pod_of,
    list_groups,
    list_pods,
)
from admitq.core.events import Event, WorkloadChanged
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.integrations.base import CompositionOptions, Integration, RuleContext
from admitq.integrations.families.serving import get_replicas
from admitq.integrations.ownership import get_controller, get_queue_name, list_prebuilt_names
from admitq.manifests.documents import Document, InputError, Problem, field_path
from admitq.manifests.jobs import JobTranslation, TranslatedWorkload
from admitq.manifests.objects import CLASSES, NODES, OBSERVED, Manifests, ObjectId, ObjectLookup
from admitq.translate.metadata import key_of
from admitq.translate.observations import READ_ERRORS, observations
from admitq.translate.workloads import read_workload
from admitq.workloads.job_workloads import FIELDS_FROM_JOB
from admitq_api import conditions
from admitq_api.conditions import ConditionsByType, ConditionType
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.labels import DEFAULT_PRIORITY_CLASS, DEFAULT_QUEUE, Names

_UID: Final = "hypothetical"
"""The UID of new jobs. No object of a cluster has it."""

_USERS: Final[Mapping[str, tuple[str, ...]]] = {
    "ResourceFlavor": ("resourceGroups", "flavors", "name"),
    "AdmissionCheck": ("admissionChecksStrategy", "admissionChecks", "name"),
}
"""Kinds with a finalizer while a ClusterQueue names the object, and the fields that name it."""


_DELETED_LAST: Final = (
    "LocalQueue",
    "ClusterQueue",
    "Cohort",
    "AdmissionCheck",
    "ResourceFlavor",
    "Topology",
    "LimitRange",
    "RuntimeClass",
    "Namespace",
)
"""The order in which objects are deleted after all jobs and Workloads: before the objects that they name."""


class Hypotheses(NamedTuple):
    """Hypothetical changes.

    Attributes:
        events: the events of the core, in the order in which a state observes them.
        new_workloads: the keys of Workloads that do not exist yet, in the order of the manifests.
        workloads: new and changed Workloads as objects.
        objects: other new and changed objects that the core observes, each with the plural of its kind.
        ignored: the objects on which no decision depends, each with the reason.
        sources: for Workloads of pods or groups of an object that serves, this object.
    """

    events: tuple[Event, ...]
    new_workloads: tuple[ObjectKey, ...]
    workloads: Mapping[ObjectKey, JsonObject]
    objects: tuple[tuple[str, JsonObject], ...]
    ignored: tuple[str, ...]
    sources: Mapping[ObjectKey, tuple[ObjectId, ...]]


def read_hypotheses(
    objects: Iterable[Document],
    deletions: Iterable[Document] = (),
    *,
    names: Names,
    now: Instant,
    stored: ObjectLookup | None = None,
    options: HypothesisOptions | None = None,
) -> Hypotheses:
    """Return hypothetical changes as events.

    Args:
        objects: whole manifests to apply.
        deletions: objects with ``apiVersion``, ``kind``, ``name`` and ``namespace`` of what is deleted.
        names: the names of the API group.
        now: when the changes happen, in nanoseconds since the Unix epoch. New Workloads are queued then.
        stored: the objects that the cluster has stored.
        options: how manifests are read.

    Raises:
        InputError: an object is invalid. The error has every object with a problem, and its fields.
    """
    reader = _Reader(names, now, stored or IndexedObjects(()), options or HypothesisOptions())
    reader.delete([_as_object(document) for document in deletions])
    reader.apply([*name_documents(objects)])
    return reader.result()


def _as_object(deletion: Document) -> Document:
    """Return a deletion as an object with metadata."""
    value = deletion.value
    metadata = {key: value[key] for key in ("namespace", "name") if key in value}
    head = {key: value[key] for key in ("apiVersion", "kind") if key in value}
    return replace(deletion, value={**head, "metadata": metadata or value.get("metadata") or {}})


class _Job(NamedTuple):
    """A job in the manifests, with its place."""

    document: Document
    integration: Integration


@dataclass(slots=True, eq=False)
class _Reader:
    """Reads the changes of one question."""

    names: Names
    now: Instant
    stored: ObjectLookup
    options: HypothesisOptions
    problems: list[Problem] = field(default_factory=list[Problem])
    events: list[Event] = field(default_factory=list[Event])
    new: list[ObjectKey] = field(default_factory=list[ObjectKey])
    workloads: dict[ObjectKey, JsonObject] = field(default_factory=dict[ObjectKey, JsonObject])
    ignored: list[str] = field(default_factory=list[str])
    sources: dict[ObjectKey, tuple[ObjectId, ...]] = field(
        default_factory=dict[ObjectKey, tuple[ObjectId, ...]]
    )
    deleted: dict[ObjectId, Document] = field(default_factory=dict[ObjectId, Document])
    manifests: Manifests = field(init=False)
    _translation: JobTranslation = field(init=False)
    _by_owner: dict[ObjectId, list[JsonObject]] | None = None

    def __post_init__(self) -> None:
        options = self.options
        self.manifests = Manifests(
            self.names,
            options.how,
            options.custom,
            self.stored,
            options.namespace,
            with_serving=True,
            with_nodes=True,
        )
        self._translation = JobTranslation(
            self.names,
            self.manifests.integration_of,
            self.manifests,
            self.manifests.referenced,
            options.how,
            partial_admission=options.partial_admission,
            uid=_UID,
            created=conditions.format_time(self.now),
            topology_rules=options.topology_rules,
        )

    def result(self) -> Hypotheses:
        """Return the changes.

        Raises:
            InputError: an object is invalid.
        """
        if self.problems:
            raise InputError(self.problems)
        objects = tuple(
            (plural, self.manifests.as_stored(name, document.value))
            for kind, (plural, _) in {**OBSERVED, **NODES}.items()
            for name, document in self.manifests.of_kind(kind)
        )
        events, new, ignored = tuple(self.events), tuple(self.new), tuple(self.ignored)
        return Hypotheses(events, new, self.workloads, objects, ignored, self.sources)

    def _identify(self, document: Document) -> ObjectId | None:
        kind = value_at(document.value, ("kind",))
        if not isinstance(kind, str) or not kind:
            raise document.error(("kind",), "is required")
        name = self.manifests.identify(document, kind)
        if name is not None and (error := self.options.find_scope_error(name, document)) is not None:
            raise error
        return name

    def _record(self, document: Document, error: Exception) -> None:
        """Record the problems of an object, each with its kind and name."""
        metadata = value_at(document.value, ("metadata",), {})
        shown = " ".join(filter(None, (str(document.value.get("kind", "")), _full_name(metadata))))
        if isinstance(error, InputError):
            problems = error.problems
        else:
            problems = (document.problem((), f"has fields of unexpected types: {error!r}"),)
        self.problems += [
            problem if problem.object else replace(problem, object=shown) for problem in problems
        ]

    # --- deletions --------------------------------------------------------------------------------

    def delete(self, documents: Sequence[Document]) -> None:
        """Read what is deleted."""
        for document in documents:
            try:
                name = self._identify(document)
                if name is None:
                    raise document.error(("kind",), "no decision depends on objects of this kind: remove it")
                self.deleted[name] = document
            except InputError as error:
                self._record(document, error)
        # Workloads first: then queues are empty, and flavors are unused.
        for name, document in sorted(self.deleted.items(), key=lambda item: _deletion_order(item[0].kind)):
            try:
                self._delete(name, document)
            except InputError as error:
                self._record(document, error)

    def _delete(self, name: ObjectId, document: Document) -> None:
        if name.kind == WORKLOAD:
            obj = self.stored.get(name)
            if obj is None:
                raise document.error(("name",), f"there is no {name}")
            self._delete_workload(obj, document)
        elif self.manifests.integration_of(document.value) is not None:
            self._delete_job(name, document)
        else:
            self._delete_object(name, document)

    def _delete_workload(self, obj: JsonObject, document: Document) -> None:
        name = ObjectId(WORKLOAD, *key_of(obj))
        if self.manifests.get(name) is not None:
            self.manifests.take(name, document)
            self.events.append(self._observe_workload.deleted(obj))

    def _delete_job(self, name: ObjectId, document: Document) -> None:
        found = [obj for obj in self._owned(name) if self.manifests.get(ObjectId(WORKLOAD, *key_of(obj)))]
        if not found:
            raise document.error(("name",), f"there is no {name} with a Workload")
        for obj in found:
            if get_controller(obj) is None and len(value_at(obj, ("metadata", "ownerReferences"), [])) > 1:
                group = "/".join(key_of(obj))
                raise document.error(("name",), f"{name} belongs to a group: delete Workload {group} instead")
            self._delete_workload(obj, document)

    def _delete_object(self, name: ObjectId, document: Document) -> None:
        removed = self.manifests.take(name, document)
        if name.kind in CLASSES:
            return
        if name.kind not in OBSERVED and name.kind not in NODES:
            raise document.error(("kind",), "no decision depends on its deletion: remove it")
        if name.kind in _USERS:
            self._check_unused(name, document)
        if name.kind == "Namespace":
            for kind in (WORKLOAD, "LocalQueue"):
                self._delete_all_in(name.name, kind, document)
        if name.kind == "ClusterQueue" and self._is_used(name.name):
            # The API server keeps it until its workloads have released their quota.
            deleting = with_value(
                removed.value, ("metadata", "deletionTimestamp"), conditions.format_time(self.now)
            )
            self.events.append(self.manifests.changed(name, replace(removed, value=deleting)))
        else:
            self.events.append(self.manifests.deleted(name, removed))

    def _delete_all_in(self, namespace: str, kind: str, document: Document) -> None:
        for obj in [*self.manifests.values_of_kind(kind)]:
            inner = ObjectId(kind, *key_of(obj))
            if inner.namespace != namespace:
                continue
            if kind == WORKLOAD:
                self._delete_workload(obj, document)
            else:
                self.events.append(self.manifests.remove(inner, document))

    def _check_unused(self, name: ObjectId, document: Document) -> None:
        lists, items, key = _USERS[name.kind]
        for queue in self.manifests.values_of_kind("ClusterQueue"):
            listed: Any = value_at(queue, ("spec", lists), [])
            groups: list[Any] = listed if isinstance(listed, list) else [listed]
            if any(value_at(item, (key,)) == name.name for group in groups for item in group.get(items, ())):
                raise document.error(
                    ("name",),
                    f"ClusterQueue {queue['metadata']['name']} uses it, so that it would stay: "
                    f"remove it from spec.{lists} of this ClusterQueue too",
                )

    def _is_used(self, cluster_queue: str) -> bool:
        return any(
            _has_quota(obj) and value_at(obj, ("status", "admission", "clusterQueue")) == cluster_queue
            for obj in self.manifests.values_of_kind(WORKLOAD)
        )

    # --- changes ----------------------------------------------------------------------------------

    def apply(self, documents: Sequence[Document]) -> None:
        """Read the manifests to apply."""
        seen: dict[ObjectId, Document] = {}
        accepted: list[Document] = []
        for document in documents:
            try:
                name = self._identify(document)
                if name is not None and name in seen:
                    where = seen[name].place()
                    raise document.error(
                        ("metadata", "name"), f"{name} occurs twice, also at {where}: keep one"
                    )
                if name is not None and name in self.deleted:
                    raise document.error(("metadata", "name"), f"{name} is deleted too: do one of both")
                if name is None:
                    self._ignore(document, "no decision depends on its kind")
                elif self.manifests.apply(document) is not None:
                    seen[name] = document
                    accepted.append(document)
            except InputError as error:
                self._record(document, error)
        if self.problems:
            return
        self._change_objects(accepted)
        self._change_priorities()
        jobs: dict[tuple[str, ...], list[_Job]] = {}
        for name, document in self.manifests.workloads():
            try:
                self._sort_in(name, document, jobs)
            except READ_ERRORS as error:
                self._record(document, error)
        for members in jobs.values():
            try:
                self._change_job(members)
            except READ_ERRORS as error:
                self._record(members[0].document, error)

    def _ignore(self, document: Document, reason: str) -> None:
        metadata = value_at(document.value, ("metadata",), {})
        self.ignored.append(f"{document.value.get('kind', '')} {_full_name(metadata)}: {reason}")

    def _change_objects(self, accepted: Sequence[Document]) -> None:
        try:
            self.events += self.manifests.observed()
        except READ_ERRORS as error:
            self._record(accepted[0], error)

    def _change_priorities(self) -> None:
        """Change the priorities of Workloads of changed WorkloadPriorityClasses, as their controller does."""
        kind = "WorkloadPriorityClass"
        values = {name.name: document.value.get("value") for name, document in self.manifests.of_kind(kind)}
        if not values:
            return
        for obj in self.stored.of_kind(WORKLOAD):
            reference = value_at(obj, ("spec", "priorityClassRef"), {})
            value = values.get(reference.get("name")) if reference.get("kind") == kind else None
            is_changed = value is not None and value_at(obj, ("spec", "priority")) != value
            if is_changed and not _has_finished(obj):
                self._change_workload(with_value(obj, ("spec", "priority"), value))

    def _sort_in(self, name: ObjectId, document: Document, jobs: dict[tuple[str, ...], list[_Job]]) -> None:
        """Read a Workload, or sort a job in by the group of which it is a member."""
        obj = with_value(document.value, ("metadata", "namespace"), name.namespace)
        integration = self.manifests.integration_of(obj)
        if integration is None:
            self._change_own_workload(name, document, obj)
            return
        controller = get_controller(obj)
        if controller is not None and self.manifests.integration_of(controller) is not None:
            self._ignore(
                document, f"it is queued with its owner, {controller.get('kind')} {controller.get('name')}"
            )
            return
        prebuilt = [value for _, value in list_prebuilt_names(obj, self.names, by_annotation=True) if value]
        if prebuilt and integration.delegation.adopts_prebuilt_workload:
            self._ignore(document, f"it adopts Workload {prebuilt[0]}")
            return
        job = _Job(replace(document, value=self._with_defaults(obj)), integration)
        if integration.serving is not None and not get_queue_name(job.document.value, self.names):
            self._ignore(document, "it names no LocalQueue")
            return
        composition = integration.composition
        group = composition.get_group(obj, self.names) if composition is not None else ""
        key = (integration.kind, name.namespace, group) if group else (*integration.gvk, *name)
        jobs.setdefault(key, []).append(job)

    def _with_defaults(self, obj: JsonObject) -> JsonObject:
        """Return a job with the default queue and the default priority class, if these exist."""
        labels = value_at(obj, ("metadata", "labels"), {})
        namespace = value_at(obj, ("metadata", "namespace"), "")
        if not get_queue_name(obj, self.names):
            if self.manifests.get(ObjectId("LocalQueue", namespace, DEFAULT_QUEUE)) is None:
                return obj
            obj = with_value(obj, ("metadata", "labels", self.names.queue_name), DEFAULT_QUEUE)
        key = self.names.priority_class
        if not labels.get(key) and self.manifests.workload_priority_class(DEFAULT_PRIORITY_CLASS) is not None:
            obj = with_value(obj, ("metadata", "labels", key), DEFAULT_PRIORITY_CLASS)
        return obj

    def _change_own_workload(self, name: ObjectId, document: Document, obj: JsonObject) -> None:
        old = self.stored.get(name)
        if old is None or self.manifests.get(name) is None:
            self._add(self._translation.translate(obj, document.error))
        else:
            self._change_workload(self.manifests.as_stored(name, obj))

    def _change_job(self, members: Sequence[_Job]) -> None:
        first, integration = members[0].document, members[0].integration
        prepared = self._prepare(members)
        if integration.serving is not None:
            self._change_serving(members[0], prepared[0])
            return
        job = _compose(integration, prepared, self.names, self.now)
        translated = self._translation.translate_job(integration, job, first.error)
        self._change_or_add(self._find_present(integration, members, translated), translated, first)

    def _prepare(self, members: Sequence[_Job]) -> list[JsonObject]:
        """Return jobs with their defaults. Check them as the webhook of their kind does."""
        prepared: list[JsonObject] = []
        for document, integration in members:
            job = with_value(
                self._translation.apply_defaults(integration, document.value),
                ("metadata", "creationTimestamp"),
                conditions.format_time(self.now),
            )
            errors = integration.webhook.validate_create(job, RuleContext(self.names))
            if errors:
                raise InputError(document.problem(field_path(error.path), error.message) for error in errors)
            prepared.append(job)
        return prepared

    def _change_serving(self, member: _Job, job: JsonObject) -> None:
        """Change the Workloads of an object that serves: those of its groups, or of its pods."""
        document, integration = member
        metadata = job["metadata"]
        source = ObjectId(integration.kind, metadata["namespace"], metadata["name"])
        if has_groups(integration):
            self._change_groups(member, job, source)
            return
        replicas = get_replicas(job)
        _require_few(replicas, document)
        present = [
            obj
            for obj in self.stored.of_kind(WORKLOAD)
            if obj["metadata"]["namespace"] == source.namespace
            and is_pod_of(obj, source.name)
            and not _has_finished(obj)
        ]
        present.sort(key=_has_quota, reverse=True)
        for pod in list_pods(job, range(len(present), replicas)):
            pod_member = _Job(replace(document, value=pod), POD)
            composed = _compose(POD, self._prepare([pod_member]), self.names, self.now)
            self._add(self._translation.translate_job(POD, composed, document.error), source)
        for obj in present[replicas:]:
            self._delete_workload(obj, document)

    def _change_groups(self, member: _Job, job: JsonObject, source: ObjectId) -> None:
        document, integration = member
        groups = list_groups(integration, job)
        _require_few(len(groups), document)
        present = {
            get_group_index(obj, self.names): obj for obj in self._owned(source) if not _has_finished(obj)
        }
        for index, view in groups:
            translated = self._translation.translate_job(integration, view, document.error)
            self._change_or_add(present.pop(index, None), translated, document, source)
        for obj in present.values():
            self._delete_workload(obj, document)

    def _change_or_add(
        self,
        old: JsonObject | None,
        translated: TranslatedWorkload,
        first: Document,
        source: ObjectId | None = None,
    ) -> None:
        """Change the Workload that a job has already, or add one."""
        if old is None:
            self._add(translated, source)
            return
        spec = {key: value for key, value in old["spec"].items() if key not in FIELDS_FROM_JOB}
        changed = {**old, "spec": {**spec, **translated.obj["spec"]}}
        if not _has_quota(old):
            self._change_workload(changed)
            return
        queue = value_at(old, ("spec", "queueName"), "")
        if translated.workload.queue_name != queue:
            raise first.error(
                ("metadata", "labels", self.names.queue_name),
                f"cannot change while the job has quota: write {queue}, or delete the job",
            )
        if self._read(old).pod_sets == translated.workload.pod_sets:
            self._change_workload(changed)
        else:
            # The manager stops the job, and creates a Workload for its new pods.
            self._delete_workload(old, first)
            self._add(translated, source)

    def _find_present(
        self, integration: Integration, members: Sequence[_Job], translated: TranslatedWorkload
    ) -> JsonObject | None:
        """Return the Workload that a stored job has already; None if it has none, or has finished."""
        key = translated.workload.key
        if integration.composition is not None and len(members) > 1:
            found = [self.stored.get(ObjectId(WORKLOAD, *key))]
        else:
            metadata = members[0].document.value["metadata"]
            owner = ObjectId(integration.kind, key.namespace, metadata["name"])
            found = [obj for obj in self._owned(owner) if integration.group == _owner_group(obj)]
        present = [obj for obj in found if obj is not None and not _has_finished(obj)]
        return present[-1] if present else None

    def _owned(self, owner: ObjectId) -> list[JsonObject]:
        """Return the stored Workloads of a job."""
        if self._by_owner is None:
            self._by_owner = {}
            for obj in self.stored.of_kind(WORKLOAD):
                for reference in value_at(obj, ("metadata", "ownerReferences"), []):
                    name = ObjectId(
                        reference.get("kind", ""), obj["metadata"]["namespace"], reference.get("name", "")
                    )
                    self._by_owner.setdefault(name, []).append(obj)
        return self._by_owner.get(owner, [])

    # --- events of Workloads ----------------------------------------------------------------------

    @property
    def _observe_workload(self) -> Any:
        return observations(self.names, self.options.how)["workloads"]

    def _read(self, obj: JsonObject) -> Workload:
        return read_workload(obj, self.names, self.options.how)

    def _change_workload(self, obj: JsonObject) -> None:
        self.workloads[key_of(obj)] = obj
        self.events.append(WorkloadChanged(self._read(obj)))

    def _add(self, translated: TranslatedWorkload, source: ObjectId | None = None) -> None:
        """Add a new Workload. Each is queued after those before it."""
        key = translated.workload.key
        if source is not None:
            self.sources[key] = (source,)
        uid = f"{_UID}/{key.namespace}/{key.name}"
        self.workloads[key] = with_value(translated.obj, ("metadata", "uid"), uid)
        queued_at = self.now + len(self.new)
        self.events.append(WorkloadChanged(replace(translated.workload, uid=uid, queued_at=queued_at)))
        self.new.append(key)


def _compose(
    integration: Integration, prepared: Sequence[JsonObject], names: Names, now: Instant
) -> JsonObject:
    """Return a job, or the job that its members make up."""
    composition = integration.composition
    return (
        prepared[0] if composition is None else composition.compose(prepared, names, CompositionOptions(now))
    )


def _require_few(workloads: int, document: Document) -> None:
    """Check that an object has at most so many Workloads that they can be decided about in time.

    Raises:
        InputError: it has more.
    """
    if workloads > MOST_WORKLOADS:
        raise document.error(
            ("spec", "replicas"), f"needs more than {MOST_WORKLOADS} Workloads: ask about fewer replicas"
        )


def _deletion_order(kind: str) -> int:
    return _DELETED_LAST.index(kind) if kind in _DELETED_LAST else -1


def _owner_group(workload: JsonObject) -> str:
    reference = get_controller(workload) or value_at(workload, ("metadata", "ownerReferences", 0), {})
    return str(reference.get("apiVersion", "")).rpartition("/")[0]


def _has_quota(workload: JsonObject) -> bool:
    state = ConditionsByType(value_at(workload, ("status", "conditions"), []))
    return state.is_true(ConditionType.QUOTA_RESERVED) and not state.is_true(ConditionType.FINISHED)


def _has_finished(workload: JsonObject) -> bool:
    return ConditionsByType(value_at(workload, ("status", "conditions"), [])).is_true(ConditionType.FINISHED)


def _full_name(metadata: Any) -> str:
    namespace, name = value_at(metadata, ("namespace",), ""), value_at(metadata, ("name",), "")
    return f"{namespace}/{name}" if namespace else f"{name}"

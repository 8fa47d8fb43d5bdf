"""The record that describes a kind of job.

A kind is a frozen record of paths and small pure functions on the raw object. Optional capabilities are
grouped in further records, and each has a default. admitq derives everything else from the record: the watch,
the index of owners, suspension, injection into pod templates and their restoration, the Workload's name,
webhook rules and access rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from admitq.integrations.references import ObjectReference, OwnerKind, ReferencedKind
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import FieldPath, JsonObject, create_merge_patch, value_at, with_value
from admitq_api.labels import COMPAT_GROUP, Names, names_for

MAX_POD_SETS: Final = 18
"""The maximum number of podsets of a Workload."""

KUEUE_MULTIKUEUE_CONTROLLER: Final = names_for(COMPAT_GROUP).multikueue_controller
"""The only dispatcher that some kinds allow in ``managedBy``, whichever API group admitq uses."""


@dataclass(frozen=True, slots=True)
class RuleContext:
    """The input of a kind's webhook functions besides the job.

    Attributes:
        names: the names of labels and annotations.
        gates: the feature gates.
        is_managed: whether admitq manages the job. It does if the job names a queue or need not name one.
        deciding_workload: the Workload that decides whether an update is valid
            (``KindWebhook.list_deciding_workloads``), if it exists.
        stored_object: the stored object that ``mutate`` changes; None for a new object.
    """

    names: Names
    gates: FeatureGates = field(default_factory=FeatureGates)
    is_managed: bool = True
    deciding_workload: JsonObject | None = None
    stored_object: JsonObject | None = None


class PodIndexLabels(NamedTuple):
    """The labels that number the pods of a podset. Topology-aware placement follows this order.

    Attributes:
        pod_label: the label with the index of a pod. In a podset with subgroups, the index counts within the
            subgroup.
        group_label: the label with the index of a pod's subgroup.
        group_count: the number of subgroups.
    """

    pod_label: str
    group_label: str | None = None
    group_count: int | None = None


@dataclass(frozen=True, slots=True)
class PodSetTemplate:
    """Pods of a job that share one template.

    Attributes:
        name: the name of the podset.
        count: the number of pods.
        template_path: the path of the pod template in the job. If ``template`` is set, the path names the
            field that users associate with the pods.
        min_count: the fewest pods that the job can run with, if its owner allows fewer than ``count``.
        template: the template of the pods, if the job does not contain it at ``template_path``.
        own_annotations_path: the path of the pods' annotations, if they are not part of such a template.
    """

    name: str
    count: int
    template_path: FieldPath
    min_count: int | None = None
    template: JsonObject | None = None
    own_annotations_path: FieldPath | None = None
    index_labels: PodIndexLabels | None = None
    """The labels that number the pods, if their controller sets such labels."""

    @property
    def annotations_path(self) -> FieldPath:
        """The path in the job of the pods' annotations."""
        return self.own_annotations_path or (*self.template_path, "metadata", "annotations")

    def get_template(self, job: JsonObject) -> JsonObject:
        """Return the current pod template of the job; an empty one if there is none."""
        if self.template is not None:
            return self.template
        template = value_at(job, self.template_path, {})
        return template if isinstance(template, Mapping) else {}


class JobOutcome(NamedTuple):
    """How a job ended."""

    success: bool
    message: str


class PatchStep(NamedTuple):
    """One merge patch of a job, to its main resource or to a subresource.

    The API server applies the patch only to the version of the job that the decision was based on. If
    ``required_unchanged`` is set, the patch applies whenever the values at these paths have not changed.
    """

    patch: dict[str, Any]
    subresource: str | None = None
    required_unchanged: tuple[tuple[str, ...], ...] = ()


class CompositionOptions(NamedTuple):
    """Options for composing a job.

    Attributes:
        now: the current time in nanoseconds.
        deleted_pods_release_quota: whether a pod releases its quota as soon as it is being deleted.
    """

    now: int
    deleted_pods_release_quota: bool = False


PodCountsByPodSet = Mapping[str, int]
"""Numbers of pods by podset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """How admitq composes a job of a kind from several objects of the kind, its members.

    No object contains the members and could be suspended. So admitq holds, starts and ends each member by
    itself. A member without a group is a job of its own. ``compose`` returns the job, with its members under
    the key ``members`` and the name of its group under ``group``. All other functions of the kind take it.
    """

    is_member: Callable[[JsonObject, Names], bool]
    """Whether admitq queues an object of the kind."""
    is_reviewed_by_webhook: Callable[[JsonObject, Names], bool]
    """Whether the webhook looked up the ancestors of a member when the member was created."""
    get_group: Callable[[JsonObject, Names], str]
    """Return the name of a member's group, which is also the name of its Workload; empty without a group."""
    compose: Callable[[Sequence[JsonObject], Names, CompositionOptions], JsonObject]
    """Return the job of these members. It has a ``deletionTimestamp`` if all of it is being deleted."""
    find_problem: Callable[[JsonObject, Names, Sequence[str]], str | None]
    """Return why the members cannot have a Workload; None if they can. Labels with these keys must agree."""
    is_equivalent: Callable[[JsonObject, Sequence[JsonObject]], bool | None]
    """Whether the podsets of a Workload match the members. None means that the rule for all kinds decides."""
    get_pod_set: Callable[[JsonObject, JsonObject], str]
    """Return the name of the podset of the job (first) that a member (second) belongs to."""
    list_startable: Callable[[JsonObject, PodCountsByPodSet | None, Names], Sequence[JsonObject]]
    """Return the members that wait at their gate. If counts of an admission are given, they limit the
    result."""
    without_gates: Callable[[JsonObject, bool, Names], JsonObject]
    """Return the member without its gates. With a topology (second argument) the topology gate stays."""
    list_stoppable: Callable[[JsonObject, bool, Names], Sequence[JsonObject]]
    """Return the members that a stop must end: the running ones, or all of them (second argument)."""
    mark_for_termination: Callable[[JsonObject, str, str, int], JsonObject]
    """Return the member with a condition that says why admitq ends it: reason, message, time in
    nanoseconds."""
    list_excess: Callable[[JsonObject, PodCountsByPodSet | None, Names], Sequence[JsonObject]]
    """Return the members in excess of an admission's counts, or, without counts, of the group's size."""
    list_replaced: Callable[[JsonObject, PodCountsByPodSet, Names], Sequence[JsonObject]]
    """Return the ended members that have been replaced, so that admitq can release their finalizer."""
    needs_more_members: Callable[[JsonObject, PodCountsByPodSet], bool]
    """Whether members that ended must be replaced."""
    get_finalizer: Callable[[Names], str]
    """Return the finalizer that keeps a member until admitq has recorded its end."""


class ServedGroup(NamedTuple):
    """Pods of one object that are queued together in one Workload.

    Attributes:
        name: the name that the Workload's name is derived from.
        group_index: distinguishes the group from other groups of the object.
    """

    name: str
    group_index: str = ""


class PodLocation(NamedTuple):
    """The object that a pod belongs to, and the pod's group in that object."""

    parent: str
    group_index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How admitq queues the pods of an object that serves without end, such as a Deployment.

    The object itself is never suspended. ``mutate`` changes its pod templates so that each pod waits at a
    gate. Without ``list_groups``, each pod has its own Workload. Otherwise admitq creates a Workload for each
    group before its pods exist, with the podsets of the kind, and later assigns pods to the group.
    """

    suspending_parent: str
    """The kind of the object, as pods state it in the annotation ``pod-suspending-parent``."""
    list_groups: Callable[[JsonObject, Sequence[JsonObject]], Sequence[ServedGroup]] | None = None
    """Return the groups of the object, given its pods."""
    list_templates: Callable[[JsonObject], Sequence[JsonObject]] = lambda _job: ()
    """Return the pod templates of the object."""
    locate_pod: Callable[[JsonObject], PodLocation | None] = lambda _pod: None
    """Return which object and group a pod belongs to, from what its controllers wrote; None for other
    kinds."""
    get_role: Callable[[JsonObject, JsonObject], str] = lambda _job, _pod: "main"
    """Return the name of the podset of the object (first) that a pod (second) belongs to."""
    index_label: str = ""
    """The label with the index of a pod in its group."""
    is_outdated: Callable[[JsonObject, JsonObject], bool] = lambda _job, _pod: False
    """Whether a waiting pod (second) belongs to an old revision of the object and must be replaced."""
    on_hold_message: str = ""
    """The message in the status of a Workload of an object that currently requests no pods."""
    may_have_name_without_uid: bool = False
    """Whether the Workload's name may be derived without the object's UID, if no Workload has the name with
    it."""


def list_members(job: JsonObject) -> Sequence[JsonObject]:
    """Return the members of a composed job; none for any other job."""
    members = job.get("members")
    return members if isinstance(members, list) else ()


def get_group_name(job: JsonObject) -> str:
    """Return the name of the group of a composed job; empty for any other job."""
    name = job.get("group")
    return name if isinstance(name, str) else ""


class ChildDifference(StrEnum):
    """The aspect in which an object differs from those that a job's controller creates for the job."""

    IDENTITY = "name or labels"
    PODS = "number of pods"
    REQUESTS = "requests"


ElasticityCheck = Callable[[JsonObject], bool]
"""Whether an object may change its number of pods while it runs. Each pod then waits until it has quota."""


def is_never_elastic(_obj: JsonObject) -> bool:
    """Return that no object is elastic."""
    return False


def accept_every_child(_job: JsonObject, _child: JsonObject, _is_elastic: ElasticityCheck) -> None:
    """Accept every child: the default of kinds that cannot recognize the objects of their controller."""


def return_none(_job: JsonObject) -> None:
    """Return None: the default of kinds that lack a capability."""


def return_no_errors(*_: object) -> tuple[FieldError, ...]:
    """Return no errors: the default of kinds without their own validation."""
    return ()


def return_unchanged(job: JsonObject, _context: RuleContext) -> JsonObject:
    """Return the job unchanged: the default of kinds without their own defaulting."""
    return job


def return_no_references(_job: JsonObject) -> tuple[ObjectReference, ...]:
    """Return no references: the default of kinds with jobs that state all of their pods."""
    return ()


def resolve_nothing(job: JsonObject, _found: Mapping[ObjectReference, JsonObject]) -> JsonObject:
    """Return the job unchanged: the default of kinds with jobs that state all of their pods."""
    return job


def set_template_at_path(
    job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, _names: Names
) -> JsonObject:
    """Return the job with another template at the path of a podset."""
    return with_value(job, pod_set.template_path, template)


def start_in_one_step(job: JsonObject, started: JsonObject, _names: Names) -> tuple[PatchStep, ...]:
    """Return one patch that starts a job: most kinds accept new templates and the start together."""
    return (PatchStep(create_merge_patch(job, started)),)


def get_generation(job: JsonObject, _names: Names) -> str:
    """Return the generation of the job."""
    return str(value_at(job, ("metadata", "generation"), 1))


def stop_in_one_step(job: JsonObject, stopped: JsonObject, _names: Names) -> tuple[PatchStep, ...]:
    """Return one patch that stops a job: most kinds accept old templates and the suspension together."""
    patch = create_merge_patch(job, stopped)
    return (PatchStep(patch),) if patch else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplates:
    """Where a kind has its pod templates, and which other objects determine its pods."""

    pod_sets_field: str = "spec"
    """The field that describes the pods. Errors about a job without podsets name it."""
    with_template: Callable[[JsonObject, PodSetTemplate, JsonObject, Names], JsonObject] = (
        set_template_at_path
    )
    """Return the job with another pod template for a podset. ``list_pod_sets`` of the result returns that
    template, as far as the kind can express it."""
    list_references: Callable[[JsonObject], Sequence[ObjectReference]] = return_no_references
    """Return references to other objects that determine the job's pods."""
    referenced_kinds: tuple[ReferencedKind, ...] = ()
    """The kinds of those objects. admitq watches them; it ignores references to other kinds."""
    resolve: Callable[[JsonObject, Mapping[ObjectReference, JsonObject]], JsonObject] = resolve_nothing
    """Return the job with data of referenced objects that ``list_pod_sets`` needs, under a key that no job
    has. All functions except ``mutate`` take this resolved job. They must not change the key, so that patches
    never contain it."""
    active_object: FieldPath | None = None
    """The path of the name of the referenced object that runs the pods; None if the job runs them itself. The
    pods are not ready if this object does not exist, whatever the status of the job says."""
    find_priority_class: Callable[[JsonObject], str | None] = return_none
    """Return the PriorityClass that the job names outside its pod templates."""
    platform_labels: frozenset[str] = frozenset()
    """Labels that Kubernetes adds to the job's templates. Jobs keep them, Workloads omit them."""
    own_labels: frozenset[str] = frozenset()
    """Labels that the templates of a job must keep. A Workload that was created before its job lacks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLifecycle:
    """How admitq suspends, starts and stops jobs of a kind, and how these jobs end."""

    suspend_path: FieldPath = ("spec", "suspend")
    is_suspended: Callable[[JsonObject, Names], bool] | None = None
    """Whether the job is suspended, for kinds without one field for it. ``mutate`` must then suspend the
    job."""
    is_stop_in_progress: Callable[[JsonObject, Names], bool] = lambda _job, _names: False
    """Whether a stop has begun and not ended. Such a job does not count as suspended."""
    plan_start: Callable[[JsonObject, JsonObject, Names], tuple[PatchStep, ...]] = start_in_one_step
    """Return the steps from the job to the started job. Each step patches the result of the previous one."""
    plan_stop: Callable[[JsonObject, JsonObject, Names], tuple[PatchStep, ...]] = stop_in_one_step
    """Return the steps from the job to the stopped job. If the job must change first, for example because its
    pods still run, the steps lead only part of the way. admitq calls the function again after the change."""
    patches_status: bool = False
    """Whether a stop writes the status subresource. Access rules depend on it."""
    ends_after_pods: bool = False
    """Whether a job of the kind finishes only after all of its pods have ended."""
    is_cleaning_up: Callable[[JsonObject], bool] = lambda _job: False
    """Whether a job that is being deleted may have pods until it is gone. Its Workload then exists as
    long."""
    is_on_hold: Callable[[JsonObject], bool] = lambda _job: False
    """Whether the job currently needs no quota. admitq keeps its Workload and does not queue it."""
    is_ignored: Callable[[JsonObject], bool] = lambda _job: False
    """Whether admitq ignores the job, whatever its labels are, because the job creates no pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How the number of pods of a job may change."""

    with_pod_counts: Callable[[JsonObject, Mapping[str, int], Names], JsonObject] | None = None
    """Return the job with these numbers of pods by podset; None if the kind has no partial admission."""
    count_reclaimable_pods: Callable[[JsonObject], Mapping[str, int] | None] = return_none
    """Return the numbers of pods, by podset, that ended and need no replacement."""
    can_be_elastic: bool = False
    """Whether a job may change its number of pods while it runs."""
    get_slice_version: Callable[[JsonObject, Names], str] = get_generation
    """Return the part of a Workload's name that distinguishes the slices of an elastic (resolved) job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOwnership:
    """How jobs of a kind relate to their owners and to the objects that the kind's controller creates."""

    intermediate_owners: tuple[OwnerKind, ...] = ()
    """Kinds that are not job kinds and that may be between a job and the job that controls it."""
    is_held_by_parent: Callable[[JsonObject, Names], bool] = lambda _job, _names: False
    """Whether a mark of its parent holds the object. Such an object need not name a queue, and admitq does
    not look up its ancestors."""
    created_kinds: frozenset[tuple[str, str]] | None = None
    """Group and kind of the objects that the kind's controller creates; None means any. admitq does not trust
    owner references of objects of other kinds."""
    compare_child: Callable[[JsonObject, JsonObject, ElasticityCheck], ChildDifference | None] = (
        accept_every_child
    )
    """Return how an object (second) differs from those that the controller creates for a job (first): in
    its name, its number of pods, or its requests. The job is resolved as far as possible. None means that the
    controller may have created the object. Only objects of ``created_kinds`` are compared."""
    compare_grandchild: Callable[[JsonObject, JsonObject, ElasticityCheck], ChildDifference | None] = (
        accept_every_child
    )
    """Return how an object (second) differs from those that children of a job (first) create."""
    covers_children: bool = True
    """Whether the objects that a queued job creates are queued with this job. Otherwise they are queued with
    an ancestor of the job."""
    keeps_children: bool = False
    """Whether the kind's controller neither stops nor starts objects that it has created when their job is
    suspended or resumed. They are then deleted, so that the controller creates them again. The webhook
    refuses running ones of a suspended job, which a controller with an old copy of the job would create."""
    implied_frameworks: tuple[str, ...] = ()
    """Frameworks that this kind needs, because their webhooks and controllers hold the objects that its jobs
    create."""
    is_implied: bool = False
    """Whether the kind is enabled only because another kind implies it: then admitq manages only objects that
    are held by their parents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """How a job is delegated to another controller or another cluster."""

    managed_by_path: FieldPath | None = None
    """The path of the name of the controller that runs the job; None if the kind has no such field."""
    own_controller: str = ""
    """The value of this field that names the kind's own controller."""
    dispatch_controller: str = ""
    """The value of this field for a job that runs in another cluster, if the kind accepts only one value.
    The default is admitq's dispatcher."""
    adopts_prebuilt_workload: bool = False
    """Whether a job may adopt an existing Workload, for example one that a dispatcher created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindWebhook:
    """How the webhooks change and validate objects of a kind, in addition to the rules for all jobs."""

    mutate: Callable[[JsonObject, RuleContext], JsonObject] = return_unchanged
    """Return the job with the kind's own defaults. Queue, priority class and suspension are set for all
    kinds."""
    mutate_every_object: Callable[[JsonObject, RuleContext], JsonObject] = return_unchanged
    """Return a new object of the kind with changes that do not depend on whether it is queued."""
    mutate_child: Callable[[JsonObject, RuleContext], JsonObject] = return_unchanged
    """Return an object with changes for objects that have a queued ancestor and are not queued themselves."""
    mutates_updates: bool = False
    """Whether the mutating webhook also reviews updates."""
    validate_create: Callable[[JsonObject, RuleContext], Sequence[FieldError]] = return_no_errors
    """Return the errors of a new object."""
    should_validate_update: Callable[[JsonObject, RuleContext], bool] = lambda _old, _context: True
    """Whether an update is validated at all. It takes the old object and the context of the new one."""
    validate_update: Callable[[JsonObject, JsonObject, RuleContext], Sequence[FieldError]] = return_no_errors
    """Return the errors of an update (old object, new object). ``validate_create`` is not called for
    updates."""
    list_deciding_workloads: Callable[[JsonObject, JsonObject, RuleContext], Sequence[str]] | None = None
    """Return the possible names of the Workload that decides whether an update (old, new) is valid: the first
    that exists decides. None means that no update depends on a Workload."""
    list_checked_templates: Callable[[JsonObject, Names], Sequence[PodSetTemplate]] | None = None
    """Return the pod templates with annotations that the webhook checks, by podset; None means those of the
    podsets. A kind without podsets can have templates for the podsets of other objects."""
    checks_templates_only_if_managed: bool = False
    """Whether the webhook ignores these annotations in an object that admitq does not manage."""
    scale_field: FieldPath | None = None
    """The field that the subresource ``scale`` changes; None if no rule depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindWatch:
    """Which objects of a kind the manager watches, and what it keeps of them in memory."""

    get_label_selector: Callable[[Names], str] | None = None
    """Return the label selector of the objects that the manager watches; None selects all."""
    trim_for_cache: Callable[[JsonObject, Names], JsonObject] | None = None
    """Return the part of an object that the manager keeps in memory; None keeps all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """A kind of job.

    Its identity is required, and so are the functions that return what a job requests and its state. All
    functions take the raw object, accept any form of it and never change it. Each group of optional
    capabilities is a record with defaults.
    """

    framework: str
    """Name in the configuration's ``integrations.frameworks``."""
    gate: Gate | None = None
    """The feature gate that must be on as well."""
    group: str
    version: str
    kind: str
    plural: str

    list_pod_sets: Callable[[JsonObject, Names], Sequence[PodSetTemplate]]
    """Return the podsets, in the order of the Workload."""
    find_outcome: Callable[[JsonObject], JobOutcome | None]
    is_active: Callable[[JsonObject], bool]
    """Whether pods of the job may still hold resources."""
    are_pods_ready: Callable[[JsonObject], bool]

    templates: PodTemplates = field(default_factory=PodTemplates)
    lifecycle: JobLifecycle = field(default_factory=JobLifecycle)
    scaling: Scaling = field(default_factory=Scaling)
    ownership: KindOwnership = field(default_factory=KindOwnership)
    delegation: Delegation = field(default_factory=Delegation)
    webhook: KindWebhook = field(default_factory=KindWebhook)
    watch: KindWatch = field(default_factory=KindWatch)
    composition: Composition | None = None
    """How admitq composes a job, if a job can consist of several objects of the kind."""
    serving: Serving | None = None
    """How admitq queues the pods of an object, if the object itself is not a job."""

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion`` in objects of the kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def gvk(self) -> tuple[str, str, str]:
        """Group, version and kind."""
        return (self.group, self.version, self.kind)

    def get_dispatcher(self, names: Names) -> str:
        """Return the value of ``managedBy`` for a job that runs in another cluster."""
        return self.delegation.dispatch_controller or names.multikueue_controller

    def may_manage(self, obj: JsonObject, names: Names) -> bool:
        """Whether admitq may manage an object: of an implied kind, only objects that their parents hold."""
        return not self.ownership.is_implied or self.ownership.is_held_by_parent(obj, names)

    def is_required(self, reference: ObjectReference) -> bool:
        """Whether the pods of a job of the kind are unknown without the referenced object."""
        return all(
            known.is_required for known in self.templates.referenced_kinds if known.kind == reference.kind
        )

    def may_create_kind_of(self, child: JsonObject) -> bool:
        """Whether this kind's controller creates objects of the child's kind at all."""
        if self.ownership.created_kinds is None:
            return True
        group, _, _ = str(child.get("apiVersion", "")).rpartition("/")
        return (group, str(child.get("kind"))) in self.ownership.created_kinds

    def may_have_created(
        self, job: JsonObject, child: JsonObject, is_elastic: ElasticityCheck = is_never_elastic
    ) -> bool:
        """Whether the kind's controller may have created the child for the job."""
        return self.ownership.compare_child(job, child, is_elastic) is None

    def covers_child(self, child: JsonObject) -> bool:
        """Whether a child of a queued job of the kind is queued with the job.

        Kinds that serve are not queued themselves: their pods are, one by one or in groups. Such pods carry
        marks that hold them. A pod without these marks has no quota.
        """
        is_pod = (child.get("apiVersion"), child.get("kind")) == ("v1", "Pod")
        return self.ownership.covers_children and not (is_pod and self.serving is not None)

    def is_suspended(self, job: JsonObject, names: Names) -> bool:
        """Whether the job is suspended and no stop of it is in progress."""
        if self.lifecycle.is_suspended is not None:
            return self.lifecycle.is_suspended(job, names)
        is_set = value_at(job, self.lifecycle.suspend_path) is True
        return is_set and not self.lifecycle.is_stop_in_progress(job, names)

    def with_suspend(self, job: JsonObject, suspend: bool) -> JsonObject:
        """Return the job suspended or resumed."""
        return with_value(job, self.lifecycle.suspend_path, suspend)

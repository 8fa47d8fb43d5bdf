"""The record that describes a kind of job. Everything else that admitq does with jobs follows from it.

A kind is a frozen record of paths and small pure functions on the raw object. Optional abilities are grouped
in records of their own, and each has a default. From the record follow: the watch, the index of owners,
suspending and unsuspending, injecting into and restoring pod templates, the Workload's name, rules of
webhooks and of RBAC.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import FieldPath, JsonObject, create_merge_patch, value_at, with_value
from admitq_api.labels import COMPAT_GROUP, Names, names_for

MAX_POD_SETS: Final = 18
"""How many podsets a Workload may have."""

KUEUE_MULTIKUEUE_CONTROLLER: Final = names_for(COMPAT_GROUP).multikueue_controller
"""The one dispatcher that some kinds let a job name in ``managedBy``, whatever the group of our labels is."""


class OwnerKind(NamedTuple):
    """Kind of an object that may control a job; a group is empty for the core API."""

    group: str
    version: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> "OwnerKind":
        """The kind that the configuration calls ``Kind.version.group``."""
        kind, version, group = text.split(".", 2)
        return cls(group, version, kind)


class ReferencedKind(NamedTuple):
    """A kind of objects that jobs refer to.

    Without a ``required`` one nobody knows the pods of a job. Any other was made for the job, which controls
    it, and tells how many they have become by now: controllers alone look for it, and for elastic jobs alone;
    while it is not there a job keeps the Workloads that it has. ``kept`` is what of an object is held in
    memory; None for all of it.
    """

    kind: OwnerKind
    plural: str
    namespaced: bool
    is_required: bool = True
    trim_for_cache: Callable[[JsonObject], JsonObject] | None = None


class ObjectReference(NamedTuple):
    """Another object that a job's pods follow from; the namespace is empty where the kind has none."""

    kind: OwnerKind
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.kind} {self.name}{place}"


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What the rules of a kind depend on beside the job.

    ``is_managed`` tells whether the job is ours to hold: it names a queue, or need not. ``workload`` is the
    one that a change depends on (``KindWebhook.workload_asked``), if it is there. ``before`` is what
    ``mutate`` is asked about as it is stored; None of a new job.
    """

    names: Names
    gates: FeatureGates = field(default_factory=FeatureGates)
    is_managed: bool = True
    deciding_workload: JsonObject | None = None
    stored_object: JsonObject | None = None


class PodIndexLabels(NamedTuple):
    """The labels that number the pods of a podset, for placement in that order.

    ``pod`` numbers pods; where a podset has ``groups`` subgroups, within one of them, and ``group`` numbers
    the subgroups.
    """

    pod_label: str
    group_label: str | None = None
    group_count: int | None = None


@dataclass(frozen=True, slots=True)
class PodSetTemplate:
    """Pods of one shape in a job: how many, and where in the job their template stands.

    ``min_count`` is the fewest pods the job can run with, where its owner allows fewer than ``count``.
    ``template`` is what the pods amount to where the job does not hold that as a template, as it stands, at
    the path; the path then names the field that users know them by. ``annotations`` is where the pods'
    annotations are written then, if that is not in such a template.
    """

    name: str
    count: int
    template_path: FieldPath
    min_count: int | None = None
    template: JsonObject | None = None
    own_annotations_path: FieldPath | None = None
    index_labels: PodIndexLabels | None = None
    """How the pods are numbered, where their controller numbers them."""

    @property
    def annotations_path(self) -> FieldPath:
        """Where in the job the annotations of the pods are written."""
        return self.own_annotations_path or (*self.template_path, "metadata", "annotations")

    def get_template(self, job: JsonObject) -> JsonObject:
        """The pod template of the job as it is; empty if there is none."""
        if self.template is not None:
            return self.template
        found = value_at(job, self.template_path, {})
        return found if isinstance(found, Mapping) else {}


class JobOutcome(NamedTuple):
    """How a job ended."""

    success: bool
    message: str


class PatchStep(NamedTuple):
    """One merge patch of a job, to its main resource or to a subresource.

    It is written only over the version of the job that it was decided on. With ``as_seen``, only what is at
    these paths must be as it was: the step takes effect whatever else has changed.
    """

    patch: dict[str, Any]
    subresource: str | None = None
    required_unchanged: tuple[tuple[str, ...], ...] = ()


class CompositionOptions(NamedTuple):
    """When members are looked at, in nanoseconds, and whether one that is being deleted holds nothing."""

    now: int
    deleted_pods_release_quota: bool = False


PodCountsByPodSet = Mapping[str, int]
"""Pods by podset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """How jobs of a kind are put together from several objects of it, their members.

    Nothing stands above the members that could be suspended, so that each of them is held, started and
    ended by itself. A member without a group is a job alone. The job that ``compose`` gives has the key
    ``members``, and a group's has its name under ``group``; all other functions of the kind are asked about
    that job.
    """

    is_member: Callable[[JsonObject, Names], bool]
    """Whether an object of the kind is queued."""
    is_reviewed_by_webhook: Callable[[JsonObject, Names], bool]
    """Whether the webhook has looked up the ancestors of a member when it was created."""
    get_group: Callable[[JsonObject, Names], str]
    """Name of the group that a member is one of, and of its Workload; empty for one that is a job alone."""
    compose: Callable[[Sequence[JsonObject], Names, CompositionOptions], JsonObject]
    """The job that these members are; one that is being deleted as a whole has a ``deletionTimestamp``."""
    find_problem: Callable[[JsonObject, Names, Sequence[str]], str | None]
    """Why no Workload can be made for the members as they are; labels with these keys must agree."""
    is_equivalent: Callable[[JsonObject, Sequence[JsonObject]], bool | None]
    """Whether these podsets of a Workload stand for the members; None leaves it to the common rule."""
    get_pod_set: Callable[[JsonObject, JsonObject], str]
    """Name of the podset of the job (first) that a member (second) belongs to."""
    list_startable: Callable[[JsonObject, PodCountsByPodSet | None, Names], Sequence[JsonObject]]
    """Members that wait at their gate; if an admission is told, those that it has room for."""
    without_gates: Callable[[JsonObject, bool, Names], JsonObject]
    """The member let go; it goes on waiting for its place if there is a topology."""
    list_stoppable: Callable[[JsonObject, bool, Names], Sequence[JsonObject]]
    """Members that a stop has to end: those that run, or everyone."""
    mark_for_termination: Callable[[JsonObject, str, str, int], JsonObject]
    """The member told why it is ended: reason, message, and the instant in nanoseconds."""
    list_excess: Callable[[JsonObject, PodCountsByPodSet | None, Names], Sequence[JsonObject]]
    """Members beyond those of an admission, or, without one, beyond the group's size."""
    list_replaced: Callable[[JsonObject, PodCountsByPodSet, Names], Sequence[JsonObject]]
    """Members that have ended, and are not needed to tell that others must come in their place."""
    needs_more_members: Callable[[JsonObject, PodCountsByPodSet], bool]
    """Whether others must come in the place of members that have ended."""
    get_finalizer: Callable[[Names], str]
    """What holds members until their end is accounted for."""


class ServedGroup(NamedTuple):
    """Pods that one object makes and that are queued together, by one Workload.

    ``name`` is what its Workload's name is made from, ``number`` tells it from other groups of the object.
    """

    name: str
    group_index: str = ""


class PodLocation(NamedTuple):
    """Where a pod belongs: the name of the object that it serves, and which of its groups it is in."""

    parent: str
    group_index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How objects of a kind have the pods queue that they make, and that are meant to run for ever.

    The object itself is never suspended: what ``mutate`` writes into its pod templates has each pod held.
    Without ``groups`` each pod then has a Workload of its own. Otherwise a Workload is made for each group,
    with the podsets of the kind, before there are any pods; and pods are told that they are its own.
    """

    suspending_parent: str
    """What pods say of who had them held (annotation ``pod-suspending-parent``)."""
    list_groups: Callable[[JsonObject, Sequence[JsonObject]], Sequence[ServedGroup]] | None = None
    """The groups that the object has, given its pods."""
    list_templates: Callable[[JsonObject], Sequence[JsonObject]] = lambda _job: ()
    """The pod templates of the object."""
    locate_pod: Callable[[JsonObject], PodLocation | None] = lambda _pod: None
    """Where a pod belongs, by what its controllers wrote into it; None for one of another kind."""
    get_role: Callable[[JsonObject, JsonObject], str] = lambda _job, _pod: "main"
    """Name of the podset of the object (first) that a pod (second) is of."""
    index_label: str = ""
    """The label of a pod that carries its index in the group."""
    is_outdated: Callable[[JsonObject, JsonObject], bool] = lambda _job, _pod: False
    """Whether a pod (second) only waits to make room for one of a newer revision of the object."""
    on_hold_message: str = ""
    """What is told of a Workload whose object wants no pods for now."""
    may_have_name_without_uid: bool = False
    """Whether a Workload may have a name that follows from no UID, where there is none whose name does."""


def list_members(job: JsonObject) -> Sequence[JsonObject]:
    """The members of a composed job; none of any other."""
    members = job.get("members")
    return members if isinstance(members, list) else ()


def get_group_name(job: JsonObject) -> str:
    """The name of the group that a composed job is; empty for any other job."""
    name = job.get("group")
    return name if isinstance(name, str) else ""


class ChildDifference(StrEnum):
    """In what an object differs from those that a job's controller creates for the job."""

    IDENTITY = "name or labels"
    PODS = "number of pods"
    REQUESTS = "requests"


ElasticityCheck = Callable[[JsonObject], bool]
"""Whether an object may change its number of pods while it runs, each of them held until it has quota."""


def is_never_elastic(_obj: JsonObject) -> bool:
    """Answer where no job may change its number of pods while it runs."""
    return False


def accept_every_child(_job: JsonObject, _child: JsonObject, _is_elastic: ElasticityCheck) -> None:
    """Answer of kinds that cannot tell which objects their controller creates."""


def return_none(_job: JsonObject) -> None:
    """Answer of kinds that lack an ability: nothing."""


def return_no_errors(*_: object) -> tuple[FieldError, ...]:
    """Answer of kinds without validation of their own."""
    return ()


def return_unchanged(job: JsonObject, _rules: RuleContext) -> JsonObject:
    """Answer of kinds without defaults of their own."""
    return job


def return_no_references(_job: JsonObject) -> tuple[ObjectReference, ...]:
    """Answer of kinds that say all of their pods themselves."""
    return ()


def resolve_nothing(job: JsonObject, _found: Mapping[ObjectReference, JsonObject]) -> JsonObject:
    """Answer of kinds that say all of their pods themselves."""
    return job


def set_template_at_path(
    job: JsonObject, pod_set: PodSetTemplate, template: JsonObject, _names: Names
) -> JsonObject:
    """The job with another template for a podset, where it holds templates as they stand."""
    return with_value(job, pod_set.template_path, template)


def start_in_one_step(job: JsonObject, started: JsonObject, _names: Names) -> tuple[PatchStep, ...]:
    """Start by one patch: most kinds accept injected templates and the end of suspension together."""
    return (PatchStep(create_merge_patch(job, started)),)


def get_generation(job: JsonObject, _names: Names) -> str:
    """The generation of the job's spec."""
    return str(value_at(job, ("metadata", "generation"), 1))


def stop_in_one_step(job: JsonObject, stopped: JsonObject, _names: Names) -> tuple[PatchStep, ...]:
    """Stop by one patch: most kinds accept suspension and restored templates together."""
    patch = create_merge_patch(job, stopped)
    return (PatchStep(patch),) if patch else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplates:
    """How a kind holds its pod templates, and what else its pods follow from."""

    pod_sets_field: str = "spec"
    """The field that describes the pods: what a job lacks that has no podset."""
    with_template: Callable[[JsonObject, PodSetTemplate, JsonObject, Names], JsonObject] = (
        set_template_at_path
    )
    """The job with another pod template for one of its podsets: injected for a start, or restored. What
    ``pod_sets`` reads of the result is that template, as far as the kind can say it."""
    list_references: Callable[[JsonObject], Sequence[ObjectReference]] = return_no_references
    """Other objects that determine the job's pods."""
    referenced_kinds: tuple[ReferencedKind, ...] = ()
    """The kinds of those objects, watched with the jobs; a reference to another kind finds nothing."""
    resolve: Callable[[JsonObject, Mapping[ObjectReference, JsonObject]], JsonObject] = resolve_nothing
    """The job with what ``pod_sets`` needs of those that were found, under a key that no job has. All other
    functions but ``mutate`` are given this; they leave the key alone, so that patches do not have it."""
    find_priority_class: Callable[[JsonObject], str | None] = return_none
    """PriorityClass that the job names outside its pod templates."""
    platform_labels: frozenset[str] = frozenset()
    """Labels that Kubernetes itself puts on the job's templates; left out of Workloads, kept in jobs."""
    own_labels: frozenset[str] = frozenset()
    """Labels that its templates must keep for as long as they are this job's; a Workload that was made before
    its job lacks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLifecycle:
    """How jobs of a kind are suspended, started, stopped and ended."""

    suspend_path: FieldPath = ("spec", "suspend")
    is_suspended: Callable[[JsonObject, Names], bool] | None = None
    """Whether the job is suspended, where no one field says so; ``mutate`` then suspends it, too."""
    is_stop_in_progress: Callable[[JsonObject, Names], bool] = lambda _job, _names: False
    """Whether a stop was begun and not ended; such a job does not count as suspended."""
    plan_start: Callable[[JsonObject, JsonObject, Names], tuple[PatchStep, ...]] = start_in_one_step
    """Steps from the job to the started job that is given, each a patch upon the answer of the last."""
    plan_stop: Callable[[JsonObject, JsonObject, Names], tuple[PatchStep, ...]] = stop_in_one_step
    """Steps from the job to the stopped job that is given, each a patch upon the answer of the last.

    Fewer steps than it takes, or none, mean that the job must change first: it is asked again when it has."""
    patches_status: bool = False
    """Whether ``stop`` writes the status subresource (for RBAC)."""
    ends_after_pods: bool = False
    """Whether a job of the kind is not finished before all of its pods have ended."""
    is_cleaning_up: Callable[[JsonObject], bool] = lambda _job: False
    """Whether a job that is being deleted may have pods to the last; its Workload stays until it is gone."""
    is_on_hold: Callable[[JsonObject], bool] = lambda _job: False
    """Whether the job needs no quota for now; its Workload is kept and not queued."""
    is_ignored: Callable[[JsonObject], bool] = lambda _job: False
    """Whether admitq ignores a job whatever its labels are, because the job creates no pods of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How the number of pods of a job may change."""

    with_pod_counts: Callable[[JsonObject, Mapping[str, int], Names], JsonObject] | None = None
    """The job with these pod counts by podset: what makes partial admission possible for the kind."""
    count_reclaimable_pods: Callable[[JsonObject], Mapping[str, int] | None] = return_none
    """Pods by podset that ended and need no replacement."""
    can_be_elastic: bool = False
    """Whether a job may change its number of pods while it runs."""
    get_slice_version: Callable[[JsonObject, Names], str] = get_generation
    """The part of a Workload's name that differs between slices of one elastic job. Takes the resolved
    job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOwnership:
    """How jobs of a kind relate to their owners and to the objects that their controller creates."""

    intermediate_owners: tuple[OwnerKind, ...] = ()
    """Kinds that are no jobs of ours but stand between a job and the job that controls it."""
    is_held_by_parent: Callable[[JsonObject, Names], bool] = lambda _job, _names: False
    """Whether the object is held by a mark of its parent. Such an object needs no queue, and its ancestors
    are not looked up."""
    created_kinds: frozenset[tuple[str, str]] | None = None
    """Group and kind of the objects that the kind's own controller creates; None if any. The owner reference
    of an object of another kind is not trusted."""
    compare_child: Callable[[JsonObject, JsonObject, ElasticityCheck], ChildDifference | None] = (
        accept_every_child
    )
    """In what an object (second) differs from those that the controller creates for a job (first): names and
    ordinals, number of pods, requests. None if the controller may have created it. Objects of kinds that the
    controller does not create (``creates``) are not asked about. The job is resolved as far as possible."""
    compare_grandchild: Callable[[JsonObject, JsonObject, ElasticityCheck], ChildDifference | None] = (
        accept_every_child
    )
    """In what an object (second) differs from those that children of a job (first) create, as ``differs``."""
    covers_children: bool = True
    """Whether objects that a queued job creates are queued with this job; otherwise they are queued with an
    ancestor of the job."""
    implied_frameworks: tuple[str, ...] = ()
    """Frameworks that this one needs: their webhooks and controllers hold the objects that its jobs
    create."""
    is_implied: bool = False
    """Whether the kind is enabled only because another kind implies it: then admitq manages only objects that
    are held by their parents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """How a job is left to another controller or another cluster."""

    managed_by_path: FieldPath | None = None
    """Where the job names the controller that runs it; None if the kind has no such field."""
    own_controller: str = ""
    """The value of this field that names the kind's own controller."""
    dispatch_controller: str = ""
    """The value of this field for a job that runs in another cluster, if the kind accepts only one value; by
    default admitq's dispatcher."""
    adopts_prebuilt_workload: bool = False
    """Whether a job may name an existing Workload, for example one that a dispatcher created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindWebhook:
    """What the webhooks add to objects of a kind and check of them, beyond the rules of all jobs."""

    mutate: Callable[[JsonObject, RuleContext], JsonObject] = return_unchanged
    """Defaults of the kind beyond the queue, the priority class and the suspension."""
    mutate_every_object: Callable[[JsonObject, RuleContext], JsonObject] = return_unchanged
    """Changes of every new object of the kind that the webhook reviews, queued or not."""
    mutate_child: Callable[[JsonObject, RuleContext], JsonObject] = return_unchanged
    """Changes of an object that has a queued ancestor and is not queued itself."""
    mutates_updates: bool = False
    """Whether the mutating webhook also reviews updates."""
    validate_create: Callable[[JsonObject, RuleContext], Sequence[FieldError]] = return_no_errors
    """Rules of the kind for new objects; not checked on updates."""
    should_validate_update: Callable[[JsonObject, RuleContext], bool] = lambda _old, _rules: True
    """Whether a change is validated at all, by the rules of all jobs and those of the kind.

    Takes the old object, and what the rules of the new one depend on."""
    validate_update: Callable[[JsonObject, JsonObject, RuleContext], Sequence[FieldError]] = return_no_errors
    """Rules of the kind for updates (old object, new object); includes those of ``validate_create``."""
    list_deciding_workloads: Callable[[JsonObject, JsonObject, RuleContext], Sequence[str]] | None = None
    """Names of the Workload that decides whether an update (old, new) is valid: the first that exists counts.
    None if no update depends on a Workload."""
    scale_field: FieldPath | None = None
    """The field that the subresource ``scale`` changes; None if no rule depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindWatch:
    """Which objects of a kind the manager watches, and what it keeps of them in memory."""

    get_label_selector: Callable[[Names], str] | None = None
    """Selector of the objects that the manager watches; None for all."""
    trim_for_cache: Callable[[JsonObject, Names], JsonObject] | None = None
    """What of an object the manager keeps in memory; None for all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """A kind of job.

    Required are the identity and the functions that state what a job asks for and how far it is. All
    functions take the raw object, tolerate any shape of it and never change it. Each group of optional
    abilities is a record with defaults.
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
    """The podsets, in the order in which the Workload lists them."""
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
    """How jobs are put together, where one is more than one object of the kind."""
    serving: Serving | None = None
    """How objects of the kind have their pods queue in their stead, where they are no jobs themselves."""

    @property
    def api_version(self) -> str:
        """Value of ``apiVersion`` in objects of the kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def gvk(self) -> tuple[str, str, str]:
        """Group, version and kind."""
        return (self.group, self.version, self.kind)

    def get_dispatcher(self, names: Names) -> str:
        """What a job that is left to another cluster names as the controller that is to run it."""
        return self.delegation.dispatch_controller or names.multikueue_controller

    def may_manage(self, obj: JsonObject, names: Names) -> bool:
        """Whether admitq may manage an object: of an implied kind, only objects that their parents hold."""
        return not self.ownership.is_implied or self.ownership.is_held_by_parent(obj, names)

    def is_required(self, reference: ObjectReference) -> bool:
        """Whether nobody knows the pods of a job of the kind without what it refers to."""
        return all(one.is_required for one in self.templates.referenced_kinds if one.kind == reference.kind)

    def may_create_kind_of(self, child: JsonObject) -> bool:
        """Whether objects of the child's kind are made by this kind's controller at all."""
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
        """Whether a child of a queued job of the kind is queued with it.

        Pods of kinds that serve are queued in their job's stead, each or in groups, and carry marks that hold
        them. One without these marks has no quota.
        """
        is_pod = (child.get("apiVersion"), child.get("kind")) == ("v1", "Pod")
        return self.ownership.covers_children and not (is_pod and self.serving is not None)

    def is_suspended(self, job: JsonObject, names: Names) -> bool:
        """Whether the job is suspended, and no stop of it is under way."""
        if self.lifecycle.is_suspended is not None:
            return self.lifecycle.is_suspended(job, names)
        is_set = value_at(job, self.lifecycle.suspend_path) is True
        return is_set and not self.lifecycle.is_stop_in_progress(job, names)

    def with_suspend(self, job: JsonObject, suspend: bool) -> JsonObject:
        """The job with its suspension set or lifted."""
        return with_value(job, self.lifecycle.suspend_path, suspend)

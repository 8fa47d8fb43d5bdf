"""Every name that carries the API group: labels, annotations, gates, finalizers, field managers.

This is the only module that knows a group name. Everything else takes a `Names`, built once at
start from the setting `apiGroup`, so that one setting turns all of admitq into another group.

The rows below are also the source of the reference page of labels and annotations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self, overload

from admitq_api.webhook_names import WebhookObjects, create_webhook_objects

ApiGroup = Literal["admitq.dev", "kueue.x-k8s.io"]

DEFAULT_GROUP: ApiGroup = "admitq.dev"
"""The API group of admitq itself."""

COMPAT_GROUP: ApiGroup = "kueue.x-k8s.io"
"""The API group in compatibility mode, for those who come from there."""

GROUPS: tuple[ApiGroup, ...] = (DEFAULT_GROUP, COMPAT_GROUP)
"""The groups that admitq can serve."""

DEFAULT_QUEUE = "default"
"""The LocalQueue that, where it exists, takes the jobs of its namespace that name no queue."""

DEFAULT_PRIORITY_CLASS = "default"
"""The WorkloadPriorityClass that, where it exists, applies to jobs that name none."""

PROVISIONING: Final = "provisioning"
"""The concern of who asks an autoscaler for nodes."""

KeyKind = Literal[
    "label", "annotation", "label or annotation", "finalizer", "scheduling gate", "preemption gate"
]


class QualifiedKeyRow(NamedTuple):
    """One line of the reference of names."""

    attribute: str
    key: str
    kind: KeyKind
    on: str
    meaning: str


class QualifiedKey:
    """A name `<group>/<suffix>`, with what it is, what carries it and what it means."""

    __slots__ = ("attribute", "kind", "meaning", "on", "suffix")

    def __init__(self, suffix: str, kind: KeyKind, on: str, meaning: str) -> None:
        self.suffix = suffix
        self.kind: KeyKind = kind
        self.on = on
        self.meaning = meaning
        self.attribute = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name

    @overload
    def __get__(self, names: None, owner: type) -> Self: ...
    @overload
    def __get__(self, names: "Names", owner: type) -> str: ...
    def __get__(self, names: "Names | None", owner: type) -> Self | str:
        return self if names is None else f"{names.group}/{self.suffix}"


@dataclass(frozen=True)
class Names:
    """All names under one API group. Build it with `names_for`."""

    group: str

    version = "v1beta2"
    """The version of our kinds that is stored, and that everything here works with."""

    conversion_path = "/convert"
    """The URL path of the webhook that converts objects, while there is more than one version."""

    # What users set on their jobs.
    queue_name = QualifiedKey("queue-name", "label", "jobs", "The LocalQueue that the job waits in.")
    priority_class = QualifiedKey("priority-class", "label", "jobs", "The WorkloadPriorityClass of the job.")
    max_exec_time = QualifiedKey(
        "max-exec-time-seconds",
        "label",
        "jobs",
        "How long the job may run, in seconds; then it is deactivated.",
    )
    prebuilt_workload_name = QualifiedKey(
        "prebuilt-workload-name",
        "label or annotation",
        "jobs",
        "The existing Workload that the job adopts, instead of getting one made.",
    )
    elastic_job = QualifiedKey(
        "elastic-job", "annotation", "jobs, Workloads", '"true": the job may grow and shrink while it runs.'
    )
    ray_cluster_generation = QualifiedKey(
        "raycluster-generation",
        "annotation",
        "RayJobs, RayClusters, RayServices",
        "Tells apart slices of an elastic job whose RayCluster changed and which did not itself.",
    )
    admission_gated_by = QualifiedKey(
        "admission-gated-by",
        "annotation",
        "jobs, Workloads",
        "Comma-separated gates; while one is left, the job is not considered for admission.",
    )
    job_min_parallelism = QualifiedKey(
        "job-min-parallelism",
        "annotation",
        "Jobs",
        "The fewest pods that the Job can start with (partial admission).",
    )
    job_completions_equal_parallelism = QualifiedKey(
        "job-completions-equal-parallelism",
        "annotation",
        "Jobs",
        '"true": completions follow parallelism when the Job is admitted with fewer pods.',
    )

    # What admitq sets on Workloads.
    job_uid = QualifiedKey(
        "job-uid", "label", "Workloads", "The UID of the job that the Workload stands for."
    )
    job_owner_gvk = QualifiedKey(
        "job-owner-gvk",
        "annotation",
        "Workloads",
        "Group, version and kind of the StatefulSet or LeaderWorkerSet.",
    )
    job_owner_name = QualifiedKey("job-owner-name", "annotation", "Workloads", "The name of that owner.")
    component_workload_index = QualifiedKey(
        "component-workload-index",
        "annotation",
        "Workloads",
        "Which of several Workloads of that owner it is.",
    )
    priority_boost = QualifiedKey(
        "priority-boost",
        "annotation",
        "Workloads",
        "A signed integer that is added to the Workload's priority.",
    )
    workload_slice_name = QualifiedKey(
        "workload-slice-name",
        "annotation",
        "Workloads, pods",
        "The first Workload of an elastic job's chain.",
    )
    workload_slice_replacement_for = QualifiedKey(
        "workload-slice-replacement-for",
        "annotation",
        "Workloads",
        "namespace/name of the Workload that this one replaces when an elastic job grows.",
    )
    workload_allowed_resource_flavors = QualifiedKey(
        "workload-allowed-resource-flavors", "annotation", "Workloads", "The flavors that a variant may use."
    )
    concurrent_admission_parent = QualifiedKey(
        "concurrent-admission-parent",
        "label",
        "Workloads",
        '"true": the Workload is queued through its variants.',
    )
    is_group_workload = QualifiedKey(
        "is-group-workload", "annotation", "Workloads", '"true": the Workload stands for a group of pods.'
    )

    # What admitq sets on pod templates and pods.
    managed = QualifiedKey(
        "managed", "label", "pods", '"true": the pod is queued by itself or with its group.'
    )
    podset = QualifiedKey(
        "podset", "label", "pod templates", "The pod set that the pods belong to; set while admitted."
    )
    local_queue_name = QualifiedKey(
        "local-queue-name", "label", "pod templates", "The LocalQueue of the job; set while admitted."
    )
    cluster_queue_name = QualifiedKey(
        "cluster-queue-name",
        "label",
        "pod templates",
        "The ClusterQueue that admitted the job; set while admitted.",
    )
    workload = QualifiedKey(
        "workload", "annotation", "pod templates", "The Workload that the pods belong to."
    )
    stopping = QualifiedKey(
        "stopping", "annotation", "Jobs", '"true" while a Job is being stopped and restored.'
    )
    pod_group_name = QualifiedKey(
        "pod-group-name", "label or annotation", "pods", "The group that the pod is queued with."
    )
    pod_group_total_count = QualifiedKey(
        "pod-group-total-count", "annotation", "pods", "How many pods the group has."
    )
    pod_group_fast_admission = QualifiedKey(
        "pod-group-fast-admission",
        "annotation",
        "pods",
        '"true": the group is queued before all its pods exist.',
    )
    pod_group_serving = QualifiedKey(
        "pod-group-serving", "annotation", "pods", '"true": the group never finishes by itself.'
    )
    pod_group_pod_index = QualifiedKey(
        "pod-group-pod-index", "label", "pods", "The index of the pod in its group."
    )
    pod_group_pod_index_label = QualifiedKey(
        "pod-group-pod-index-label", "annotation", "pods", "The label of the pod that carries its index."
    )
    pod_suspending_parent = QualifiedKey(
        "pod-suspending-parent", "annotation", "pods", "The kind of owner that holds the pods back."
    )
    role_hash = QualifiedKey(
        "role-hash", "annotation", "pods", "The pod set of the pod in its group; kept if the pod brings it."
    )
    retriable_in_group = QualifiedKey(
        "retriable-in-group", "annotation", "pods", '"false": the group is finished when this pod has failed.'
    )
    safe_to_forcefully_delete = QualifiedKey(
        "safe-to-forcefully-delete",
        "annotation",
        "pods",
        '"true": the pod may be force-deleted on a dead node.',
    )

    # Topology.
    podset_required_topology = QualifiedKey(
        "podset-required-topology", "annotation", "pod templates", "All pods within one domain of this level."
    )
    podset_preferred_topology = QualifiedKey(
        "podset-preferred-topology",
        "annotation",
        "pod templates",
        "Pods within one domain of this level if possible, else of the level above.",
    )
    podset_unconstrained_topology = QualifiedKey(
        "podset-unconstrained-topology",
        "annotation",
        "pod templates",
        '"true": pods anywhere, but counted exactly.',
    )
    podset_slice_required_topology = QualifiedKey(
        "podset-slice-required-topology",
        "annotation",
        "pod templates",
        "Each slice within one domain of this level.",
    )
    podset_slice_size = QualifiedKey(
        "podset-slice-size", "annotation", "pod templates", "How many pods make a slice."
    )
    podset_slice_required_topology_constraints = QualifiedKey(
        "podset-slice-required-topology-constraints",
        "annotation",
        "pod templates",
        "JSON list of levels and slice sizes, outermost first.",
    )
    podset_group_name = QualifiedKey(
        "podset-group-name", "annotation", "pod templates", "Pod sets of the same group are placed together."
    )
    pod_index_offset = QualifiedKey(
        "pod-index-offset", "annotation", "pod templates", "What to subtract from the pods' index."
    )

    # Several clusters.
    multikueue_origin = QualifiedKey(
        "multikueue-origin", "label", "remote objects", "The cluster that dispatched the object to this one."
    )
    multikueue_origin_uid = QualifiedKey(
        "multikueue-origin-uid",
        "annotation",
        "remote objects",
        "The UID of the object in the cluster it came from.",
    )
    multikueue_worker_workload_pod = QualifiedKey(
        "multikueue-worker-workload-pod",
        "label",
        "pod templates",
        '"true": the pods run for another cluster.',
    )

    # Several versions.
    other_version = QualifiedKey(
        "fields-of-other-version",
        "annotation",
        "objects read as v1beta1",
        "What the object has in its other version and cannot say in this one, so that writing it back loses "
        "nothing.",
    )

    # Gates and finalizers.
    finalizer = QualifiedKey(
        "resource-in-use",
        "finalizer",
        "Workloads, ClusterQueues, ResourceFlavors, AdmissionChecks, Topologies",
        "Holds the object back from deletion while it is in use.",
    )
    managed_finalizer = QualifiedKey(
        "managed", "finalizer", "pods", "Holds a pod until its end is accounted for."
    )
    admission_gate = QualifiedKey(
        "admission", "scheduling gate", "pods", "Lifted when the pod, or its group, is admitted."
    )
    topology_gate = QualifiedKey("topology", "scheduling gate", "pods", "Lifted when the pod has its place.")
    elastic_gate = QualifiedKey(
        "elastic-job", "scheduling gate", "pods", "Lifted when the pod's Workload is admitted."
    )
    multikueue_preemption_gate = QualifiedKey(
        "multikueue", "preemption gate", "Workloads", "Opened in one worker cluster at a time."
    )
    concurrent_admission_preemption_gate = QualifiedKey(
        "concurrent-admission", "preemption gate", "Workloads", "Opened for one variant at a time."
    )

    @classmethod
    def list_keys(cls) -> Iterator[QualifiedKey]:
        """Every row of the table above, in order."""
        return (value for value in vars(cls).values() if isinstance(value, QualifiedKey))

    def list_rows(self) -> Iterator[QualifiedKeyRow]:
        """The table above with full names, for reference pages."""
        return (
            QualifiedKeyRow(k.attribute, f"{self.group}/{k.suffix}", k.kind, k.on, k.meaning)
            for k in Names.list_keys()
        )

    @property
    def api_version(self) -> str:
        """What objects of our kinds carry as apiVersion."""
        return f"{self.group}/{self.version}"

    @property
    def older_version(self) -> str | None:
        """The version that is served beside the stored one, if any ("semantics, Appendix G.1")."""
        return "v1beta1" if self.group == COMPAT_GROUP else None

    @property
    def product(self) -> str:
        """The name that messages use for the queue manager."""
        return "Kueue" if self.group == COMPAT_GROUP else "admitq"

    @property
    def product_in_reasons(self) -> str:
        """The same in types and reasons, which are words in CamelCase."""
        return self.product.capitalize()

    @property
    def category(self) -> str | None:
        """What `kubectl get` lists all kinds by; None where CRDs of the group have no category."""
        return None if self.group == COMPAT_GROUP else "admitq"

    @property
    def installation(self) -> str | None:
        """What the names of an installation's objects begin with, whatever the release is called.

        Other projects' manifests name the objects of that group's installations: its ClusterRoles for
        people, its Service. None where they are named after the release.
        """
        return "kueue" if self.group == COMPAT_GROUP else None

    @property
    def metric_prefix(self) -> str:
        """What metric names start with, without the underscore."""
        return self.product.lower()

    @property
    def default_namespace(self) -> str:
        """Where the processes run unless told otherwise."""
        return f"{self.metric_prefix}-system"

    @property
    def config_api_version(self) -> str:
        """What the configuration file carries as apiVersion."""
        return f"config.{self.api_version}"

    @property
    def config_api_versions(self) -> tuple[str, ...]:
        """All that the configuration file may carry as apiVersion, newest first."""
        older = (f"config.{self.group}/v1beta1",) if self.group == COMPAT_GROUP else ()
        return (self.config_api_version, *older)

    @property
    def simulation_api_version(self) -> str:
        """What scenarios of the simulator carry as apiVersion."""
        return f"simulation.{self.group}/v1alpha1"

    @property
    def visibility_group(self) -> str:
        """The group of the aggregated API that shows pending workloads."""
        return f"visibility.{self.group}"

    @property
    def lease_name(self) -> str:
        """The default name of the Lease that managers compete for."""
        return f"c1f6bfd2.{self.group}" if self.group == COMPAT_GROUP else f"manager.{self.group}"

    @property
    def webhook_objects(self) -> WebhookObjects:
        """The default names of the cluster objects of the webhooks."""
        return create_webhook_objects(self.metric_prefix)

    @property
    def provisioning_annotation_prefix(self) -> str:
        """Annotations of jobs that become parameters of a ProvisioningRequest."""
        return f"provreq.{self.group}/"

    @property
    def rbac_prefix(self) -> str:
        """The prefix of the labels by which ClusterRoles are aggregated."""
        return f"rbac.{self.group}/"

    @property
    def provisioning_controller(self) -> str:
        """The controllerName of AdmissionChecks that ask an autoscaler for nodes."""
        return f"{self.group}/provisioning-request"

    @property
    def multikueue_controller(self) -> str:
        """The controllerName of AdmissionChecks, and managedBy of jobs, that are dispatched elsewhere."""
        return f"{self.group}/multikueue"

    @property
    def dispatcher_all_at_once(self) -> str:
        """The dispatcher that offers a Workload to every worker cluster."""
        return f"{self.group}/multikueue-dispatcher-all-at-once"

    @property
    def dispatcher_incremental(self) -> str:
        """The dispatcher that offers a Workload to a few more worker clusters each round."""
        return f"{self.group}/multikueue-dispatcher-incremental"

    @property
    def trainjob_manager(self) -> str:
        """The manager of the RuntimePatch that starts a TrainJob."""
        return f"{self.group}/manager"

    @property
    def untracked_label_value(self) -> str:
        """What a custom metric label reads for values that are not tracked."""
        return f"{self.group}/_UNTRACKED_VALUE_"

    def crd_name(self, plural: str) -> str:
        """The name of the CustomResourceDefinition of one of our kinds."""
        return f"{plural}.{self.group}"

    def field_manager(self, concern: str) -> str:
        """The field manager under which one concern writes, so that concerns do not undo each other.

        Controllers of admission checks write as what AdmissionChecks call them (semantics, Process model).
        """
        return self.provisioning_controller if concern == PROVISIONING else f"{self.metric_prefix}-{concern}"

    def webhook_path(self, verb: Literal["mutate", "validate"], group: str, version: str, kind: str) -> str:
        """The URL path of the webhook for one kind; the core group is the empty string."""
        return f"/{verb}-{group.replace('.', '-')}-{version}-{kind.lower()}"


def names_for(group: str = DEFAULT_GROUP) -> Names:
    """The names under an API group.

    Raises:
        ValueError: the group is none of `GROUPS`.
    """
    if group not in GROUPS:
        raise ValueError(f"unknown API group {group!r}: use {' or '.join(GROUPS)}")
    return Names(group)

"""Every name that carries the API group: labels, annotations, gates, finalizers, field managers.

This is the only module that contains the names of API groups. All other modules take a `Names` object, which
is created once at start from the setting `apiGroup`.

The reference page of labels and annotations is generated from the keys below.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self, overload

from admitq_api.webhook_names import WebhookObjects, create_webhook_objects

ApiGroup = Literal["admitq.dev", "kueue.x-k8s.io"]

DEFAULT_GROUP: ApiGroup = "admitq.dev"
"""The API group of admitq itself."""

COMPAT_GROUP: ApiGroup = "kueue.x-k8s.io"
"""The API group in compatibility mode, for users of Kueue."""

GROUPS: tuple[ApiGroup, ...] = (DEFAULT_GROUP, COMPAT_GROUP)
"""The API groups that admitq can serve."""

DEFAULT_QUEUE = "default"
"""The LocalQueue for jobs that name no queue, if their namespace has one of this name."""

DEFAULT_PRIORITY_CLASS = "default"
"""The WorkloadPriorityClass for jobs that name none, if it exists."""

PROVISIONING: Final = "provisioning"
"""The concern of the controller that requests nodes from an autoscaler."""

KeyKind = Literal[
    "label", "annotation", "label or annotation", "finalizer", "scheduling gate", "preemption gate"
]


class QualifiedKeyRow(NamedTuple):
    """One row of the reference table of labels and annotations."""

    attribute: str
    key: str
    kind: KeyKind
    on: str
    meaning: str


class QualifiedKey:
    """A name `<group>/<suffix>`, with its kind, the objects that have it, and its meaning."""

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
    """All names under one API group. Create it with `names_for`."""

    group: str

    version = "v1beta2"
    """The version of admitq's kinds that is stored. All code works with this version."""

    conversion_path = "/convert"
    """The URL path of the conversion webhook. It is used if more than one version is served."""

    # What users set on their jobs.
    queue_name = QualifiedKey("queue-name", "label", "jobs", "The LocalQueue that the job waits in.")
    priority_class = QualifiedKey("priority-class", "label", "jobs", "The WorkloadPriorityClass of the job.")
    max_exec_time = QualifiedKey(
        "max-exec-time-seconds",
        "label",
        "jobs",
        "The maximum time that the job can run, in seconds. After that time it is deactivated.",
    )
    prebuilt_workload_name = QualifiedKey(
        "prebuilt-workload-name",
        "label or annotation",
        "jobs",
        "The existing Workload that the job adopts. No Workload is created for the job.",
    )
    elastic_job = QualifiedKey(
        "elastic-job", "annotation", "jobs, Workloads", '"true": the job can be scaled while it runs.'
    )
    ray_cluster_generation = QualifiedKey(
        "raycluster-generation",
        "annotation",
        "RayJobs, RayClusters, RayServices",
        "The generation of the RayCluster, which distinguishes slices of an elastic job.",
    )
    admission_gated_by = QualifiedKey(
        "admission-gated-by",
        "annotation",
        "jobs, Workloads",
        "Comma-separated gates. The job is not considered for admission while a gate is listed.",
    )
    job_min_parallelism = QualifiedKey(
        "job-min-parallelism",
        "annotation",
        "Jobs",
        "The minimum number of pods for partial admission.",
    )
    job_completions_equal_parallelism = QualifiedKey(
        "job-completions-equal-parallelism",
        "annotation",
        "Jobs",
        '"true": completions follow parallelism when the Job is admitted with fewer pods.',
    )

    # What admitq sets on Workloads.
    job_uid = QualifiedKey("job-uid", "label", "Workloads", "The UID of the Workload's job.")
    finished = QualifiedKey(
        "finished",
        "label",
        "Workloads",
        '"true": the Workload has finished. A starting manager reads such Workloads last.',
    )
    job_owner_gvk = QualifiedKey(
        "job-owner-gvk",
        "annotation",
        "Workloads",
        "The group, version and kind of the owning StatefulSet or LeaderWorkerSet.",
    )
    job_owner_name = QualifiedKey("job-owner-name", "annotation", "Workloads", "The name of that owner.")
    component_workload_index = QualifiedKey(
        "component-workload-index",
        "annotation",
        "Workloads",
        "The index of the Workload among the Workloads of that owner.",
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
        "workload-allowed-resource-flavors", "annotation", "Workloads", "The flavors that a variant can use."
    )
    concurrent_admission_parent = QualifiedKey(
        "concurrent-admission-parent",
        "label",
        "Workloads",
        '"true": the Workload has variants, which are queued in its place.',
    )
    is_group_workload = QualifiedKey(
        "is-group-workload", "annotation", "Workloads", '"true": the Workload belongs to a group of pods.'
    )

    # What admitq sets on pod templates and pods.
    managed = QualifiedKey(
        "managed", "label", "pods", '"true": the pod is queued, by itself or with its group.'
    )
    podset = QualifiedKey(
        "podset", "label", "pod templates", "The pod set of the pods. It is set while the job is admitted."
    )
    local_queue_name = QualifiedKey(
        "local-queue-name",
        "label",
        "pod templates",
        "The LocalQueue of the job. It is set while the job is admitted.",
    )
    cluster_queue_name = QualifiedKey(
        "cluster-queue-name",
        "label",
        "pod templates",
        "The ClusterQueue that admitted the job. It is set while the job is admitted.",
    )
    workload = QualifiedKey(
        "workload", "annotation", "pod templates", "The Workload that the pods belong to."
    )
    stopping = QualifiedKey(
        "stopping", "annotation", "Jobs", '"true" while admitq stops a Job and restores its pod template.'
    )
    pod_group_name = QualifiedKey(
        "pod-group-name", "label or annotation", "pods", "The group that the pod is queued with."
    )
    pod_group_total_count = QualifiedKey(
        "pod-group-total-count", "annotation", "pods", "The number of pods in the group."
    )
    pod_group_fast_admission = QualifiedKey(
        "pod-group-fast-admission",
        "annotation",
        "pods",
        '"true": the group can be queued before all of its pods exist.',
    )
    pod_group_serving = QualifiedKey(
        "pod-group-serving",
        "annotation",
        "pods",
        '"true": the group serves without end and does not finish when its pods end.',
    )
    pod_group_pod_index = QualifiedKey(
        "pod-group-pod-index", "label", "pods", "The index of the pod in its group."
    )
    pod_group_pod_index_label = QualifiedKey(
        "pod-group-pod-index-label", "annotation", "pods", "The key of the label with the index of the pod."
    )
    pod_suspending_parent = QualifiedKey(
        "pod-suspending-parent", "annotation", "pods", "The kind of the owner that suspends the pods."
    )
    role_hash = QualifiedKey(
        "role-hash",
        "annotation",
        "pods",
        "The pod set of the pod in its group. A value that the creator of the pod sets is kept.",
    )
    retriable_in_group = QualifiedKey(
        "retriable-in-group",
        "annotation",
        "pods",
        '"false": failed pods of the group are not replaced, so that the group ends with them.',
    )
    safe_to_forcefully_delete = QualifiedKey(
        "safe-to-forcefully-delete",
        "annotation",
        "pods",
        '"true": the pod can be force-deleted if its node is unreachable.',
    )

    # Topology.
    podset_required_topology = QualifiedKey(
        "podset-required-topology",
        "annotation",
        "pod templates",
        "All pods must be placed within one domain of this level.",
    )
    podset_preferred_topology = QualifiedKey(
        "podset-preferred-topology",
        "annotation",
        "pod templates",
        "All pods are placed within one domain of this level if possible, otherwise of a higher level.",
    )
    podset_unconstrained_topology = QualifiedKey(
        "podset-unconstrained-topology",
        "annotation",
        "pod templates",
        '"true": pods can be placed in any domain, but the free capacity of nodes is taken into account.',
    )
    podset_slice_required_topology = QualifiedKey(
        "podset-slice-required-topology",
        "annotation",
        "pod templates",
        "Each slice must be placed within one domain of this level.",
    )
    podset_slice_size = QualifiedKey(
        "podset-slice-size", "annotation", "pod templates", "The number of pods in a slice."
    )
    podset_slice_required_topology_constraints = QualifiedKey(
        "podset-slice-required-topology-constraints",
        "annotation",
        "pod templates",
        "A JSON list of levels and slice sizes, outermost first.",
    )
    podset_group_name = QualifiedKey(
        "podset-group-name",
        "annotation",
        "pod templates",
        "The pod set group. Pod sets of one group are placed together.",
    )
    pod_index_offset = QualifiedKey(
        "pod-index-offset",
        "annotation",
        "pod templates",
        "The number that is subtracted from the index of pods.",
    )

    # Several clusters.
    multikueue_origin = QualifiedKey(
        "multikueue-origin", "label", "remote objects", "The cluster that dispatched the object to this one."
    )
    multikueue_origin_uid = QualifiedKey(
        "multikueue-origin-uid",
        "annotation",
        "remote objects",
        "The UID of the object in the cluster that dispatched it.",
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
        "The fields of the object in its other version that this version cannot express, so that no data is "
        "lost when the object is written back.",
    )

    # Gates and finalizers.
    finalizer = QualifiedKey(
        "resource-in-use",
        "finalizer",
        "Workloads, ClusterQueues, ResourceFlavors, AdmissionChecks, Topologies",
        "Delays the deletion of the object while it is in use.",
    )
    managed_finalizer = QualifiedKey(
        "managed", "finalizer", "pods", "Delays the deletion of a pod until its end is recorded."
    )
    admission_gate = QualifiedKey(
        "admission", "scheduling gate", "pods", "Removed when the pod, or its group, is admitted."
    )
    topology_gate = QualifiedKey(
        "topology", "scheduling gate", "pods", "Removed when the pod has its topology assignment."
    )
    elastic_gate = QualifiedKey(
        "elastic-job", "scheduling gate", "pods", "Removed when the pod's Workload is admitted."
    )
    multikueue_preemption_gate = QualifiedKey(
        "multikueue", "preemption gate", "Workloads", "Opened in one worker cluster at a time."
    )
    concurrent_admission_preemption_gate = QualifiedKey(
        "concurrent-admission", "preemption gate", "Workloads", "Opened for one variant at a time."
    )

    @classmethod
    def list_keys(cls) -> Iterator[QualifiedKey]:
        """Yield every key above, in order."""
        return (value for value in vars(cls).values() if isinstance(value, QualifiedKey))

    def list_rows(self) -> Iterator[QualifiedKeyRow]:
        """Yield a row with the full name for every key above, for reference pages."""
        return (
            QualifiedKeyRow(k.attribute, f"{self.group}/{k.suffix}", k.kind, k.on, k.meaning)
            for k in Names.list_keys()
        )

    @property
    def api_version(self) -> str:
        """The apiVersion of objects of admitq's kinds."""
        return f"{self.group}/{self.version}"

    @property
    def older_version(self) -> str | None:
        """The older version that is served besides the stored one, if any (semantics, Appendix G.1)."""
        return "v1beta1" if self.group == COMPAT_GROUP else None

    @property
    def product(self) -> str:
        """The name of the queue manager in messages."""
        return "Kueue" if self.group == COMPAT_GROUP else "admitq"

    @property
    def product_in_reasons(self) -> str:
        """The name of the queue manager in types and reasons, which are CamelCase words."""
        return self.product.capitalize()

    @property
    def category(self) -> str | None:
        """The category by which `kubectl get` lists all kinds; None if the CRDs of the group have none."""
        return None if self.group == COMPAT_GROUP else "admitq"

    @property
    def installation(self) -> str | None:
        """The prefix of the names of an installation's objects; None if they are named after the release.

        Manifests of other projects refer to the objects of installations of the group by name, for example to
        its Service and its ClusterRoles for people.
        """
        return "kueue" if self.group == COMPAT_GROUP else None

    @property
    def metric_prefix(self) -> str:
        """The prefix of metric names, without the underscore."""
        return self.product.lower()

    @property
    def default_namespace(self) -> str:
        """The default namespace of the processes."""
        return f"{self.metric_prefix}-system"

    @property
    def config_api_version(self) -> str:
        """The apiVersion of the configuration file."""
        return f"config.{self.api_version}"

    @property
    def config_api_versions(self) -> tuple[str, ...]:
        """All apiVersions that the configuration file can have, newest first."""
        older = (f"config.{self.group}/v1beta1",) if self.group == COMPAT_GROUP else ()
        return (self.config_api_version, *older)

    @property
    def simulation_api_version(self) -> str:
        """The apiVersion of the simulator's scenarios."""
        return f"simulation.{self.group}/v1alpha1"

    @property
    def visibility_group(self) -> str:
        """The group of the aggregated API that shows pending workloads."""
        return f"visibility.{self.group}"

    @property
    def visibility_service(self) -> str:
        """The default name of the Service of this API."""
        return f"{self.metric_prefix}-visibility-server"

    @property
    def visibility_secret(self) -> str:
        """The default name of the Secret with the serving certificate of this API."""
        return f"{self.metric_prefix}-visibility-server-cert"

    @property
    def lease_name(self) -> str:
        """The default name of the Lease for leader election."""
        return f"c1f6bfd2.{self.group}" if self.group == COMPAT_GROUP else f"manager.{self.group}"

    @property
    def webhook_objects(self) -> WebhookObjects:
        """The default names of the cluster objects of the webhooks."""
        return create_webhook_objects(self.metric_prefix)

    @property
    def provisioning_annotation_prefix(self) -> str:
        """The prefix of job annotations that become parameters of a ProvisioningRequest."""
        return f"provreq.{self.group}/"

    @property
    def rbac_prefix(self) -> str:
        """The prefix of the labels by which ClusterRoles are aggregated."""
        return f"rbac.{self.group}/"

    @property
    def provisioning_controller(self) -> str:
        """The controllerName of AdmissionChecks that request nodes from an autoscaler."""
        return f"{self.group}/provisioning-request"

    @property
    def multikueue_controller(self) -> str:
        """The controllerName of AdmissionChecks that dispatch workloads, and managedBy of dispatched jobs."""
        return f"{self.group}/multikueue"

    @property
    def dispatcher_all_at_once(self) -> str:
        """The dispatcher that nominates all worker clusters for a Workload."""
        return f"{self.group}/multikueue-dispatcher-all-at-once"

    @property
    def dispatcher_incremental(self) -> str:
        """The dispatcher that nominates a few more worker clusters for a Workload in each round."""
        return f"{self.group}/multikueue-dispatcher-incremental"

    @property
    def trainjob_manager(self) -> str:
        """The manager of the RuntimePatch that starts a TrainJob."""
        return f"{self.group}/manager"

    @property
    def untracked_label_value(self) -> str:
        """The value of a custom metric label for values that are not tracked."""
        return f"{self.group}/_UNTRACKED_VALUE_"

    def crd_name(self, plural: str) -> str:
        """Return the name of the CustomResourceDefinition of one of admitq's kinds."""
        return f"{plural}.{self.group}"

    def field_manager(self, concern: str) -> str:
        """Return the field manager of a concern: each has its own, so that none undoes another's writes.

        The field manager of an admission check controller is its controllerName (semantics, Process model).
        """
        return self.provisioning_controller if concern == PROVISIONING else f"{self.metric_prefix}-{concern}"

    def webhook_path(self, verb: Literal["mutate", "validate"], group: str, version: str, kind: str) -> str:
        """Return the URL path of the webhook for one kind; the core group is the empty string."""
        return f"/{verb}-{group.replace('.', '-')}-{version}-{kind.lower()}"


def names_for(group: str = DEFAULT_GROUP) -> Names:
    """Return the names under an API group.

    Raises:
        ValueError: the group is not one of `GROUPS`.
    """
    if group not in GROUPS:
        raise ValueError(f"unknown API group {group!r}: use {' or '.join(GROUPS)}")
    return Names(group)

"""Indexes of the stores, so that an event never makes a controller search all objects."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from admitq.core.topology.domains import HOST_NAME
from admitq.integrations.base import Integration
from admitq.integrations.ownership import get_controller, is_group_workload
from admitq.integrations.references import OwnerKind, ReferencedKind
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import POD_TEMPLATES, PODS, Resource
from admitq.runtime.store import Index, Key
from admitq.workloads.transitions import is_admitted, is_condition_true, reserved_cluster_queue
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, text_at, value_at
from admitq_api.labels import Names
from admitq_api.stored_fields import MalformedField
from admitq_api.topology_assignments import decode

BY_OWNER: Final = "owner"
BY_PARENT: Final = "parent"
BY_NAMESPACE: Final = "namespace"
BY_QUEUE: Final = "queue"
BY_CLUSTER_QUEUE: Final = "cluster-queue"
BY_PRIORITY_CLASS: Final = "priority-class"
BY_PREBUILT_WORKLOAD: Final = "prebuilt-workload"
BY_REFERENCE: Final = "reference"
BY_GROUP: Final = "group"
BY_FLAVOR: Final = "flavor"
BY_CHECK: Final = "check"
BY_TOPOLOGY: Final = "topology"
BY_CONFIG: Final = "config"
BY_CHAIN: Final = "chain"
BY_TOPOLOGY_ASSIGNMENT: Final = "topology-assignment"
BY_ASSIGNED_HOST: Final = "assigned-host"
BY_HOST: Final = "host"


def resource_of(integration: Integration) -> Resource:
    """Return the resource of a kind of job."""
    kind = integration
    return Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=True)


def followed_resource(integration: Integration, followed: ReferencedKind) -> Resource:
    """Return the resource of a kind that jobs refer to, with a store of its own for these jobs."""
    group, version, kind = followed.kind
    view = f"followed by {integration.plural}"
    return Resource(group, version, followed.plural, kind, namespaced=followed.namespaced, view=view)


def reference_index_value(kind: OwnerKind, namespace: str, name: str) -> str:
    """Return the index value of an object that jobs refer to.

    The namespace is empty for cluster-scoped kinds.
    """
    return f"{kind.kind}.{kind.group}/{namespace}/{name}"


def owner_index_value(group: str, kind: str, namespace: str, name: str) -> str:
    """Return the index value of an owner, by kind and name.

    It has no UID, so that deleted owners are found too.
    """
    return f"{kind}.{group}/{namespace}/{name}"


def owner_keys(values: Iterable[str], group: str, kind: str) -> Iterator[Key]:
    """Yield the keys of the owners of one kind among index values."""
    for value in values:
        of_kind, _, group_and_name = value.partition("/")
        if of_kind == f"{kind}.{group}":
            namespace, _, name = group_and_name.partition("/")
            yield Key(namespace, name)


def namespaced_index_value(namespace: str, name: str) -> str:
    """Return the index value of a namespaced object."""
    return f"{namespace}/{name}"


_GROUP: Final = "group/"
"""Prefix of the key name of a pod group. Object names contain no slash."""


def group_key_name(group: str) -> str:
    """Return the name under which the job controller reconciles a pod group."""
    return _GROUP + group


def group_of_key_name(job: str) -> str:
    """Return the pod group of a key name; empty if the name is that of a single object."""
    return job.removeprefix(_GROUP) if job.startswith(_GROUP) else ""


def _namespace(obj: JsonObject) -> str:
    return value_at(obj, ("metadata", "namespace"), "")


def controller_index_values(obj: JsonObject) -> Iterator[str]:
    """Yield the index value of the controller (owner reference) of an object."""
    reference = get_controller(obj)
    if reference is not None:
        group = reference.get("apiVersion", "").rpartition("/")[0]
        yield owner_index_value(group, reference.get("kind", ""), _namespace(obj), reference.get("name", ""))


def _owner_of_workload(names: Names) -> Index:
    def owner(workload: JsonObject) -> Iterator[str]:
        if is_group_workload(workload, names):
            group = group_key_name(value_at(workload, ("metadata", "name"), ""))
            yield owner_index_value(PODS.group, PODS.kind, _namespace(workload), group)
        else:
            yield from controller_index_values(workload)

    return owner


def _parent_of_workload(names: Names) -> Index:
    """Return the index of Workloads by the object, if not their controller, that they were created for."""

    def parent(workload: JsonObject) -> Iterator[str]:
        annotations = value_at(workload, ("metadata", "annotations"), {})
        api_version, _, kind = annotations.get(names.job_owner_gvk, "").partition(", Kind=")
        if name := annotations.get(names.job_owner_name):
            yield owner_index_value(api_version.rpartition("/")[0], kind, _namespace(workload), name)

    return parent


def find_foreign_pods(
    workload: dict[str, Any], pods: Iterable[JsonObject], names: Names, integrations: Iterable[Integration]
) -> list[JsonObject]:
    """Return pods that name the Workload of a serving object without belonging to that object."""
    parents = set(_parent_of_workload(names)(workload))
    kinds = {parent.partition("/")[0] for parent in parents}
    serving = [
        integration
        for integration in integrations
        if integration.serving and f"{integration.kind}.{integration.group}" in kinds
    ]
    if not serving:
        # Kinds that are disabled do not determine which pods belong to them.
        return []
    return [pod for pod in pods if parents.isdisjoint(serving_parents_of_pod(pod, names, serving))]


def job_kind_of_workload(workload: dict[str, Any], names: Names) -> str:
    """Return the kind of the job of a Workload, or else of its controller or group, as in index values."""
    parents_and_owners = (*_parent_of_workload(names)(workload), *_owner_of_workload(names)(workload))
    return parents_and_owners[0].partition("/")[0] if parents_and_owners else ""


def serving_parents_of_pod(
    pod: JsonObject, names: Names, integrations: Iterable[Integration]
) -> Iterator[str]:
    """Yield the index value of the serving object that a pod belongs to."""
    held_by = value_at(pod, ("metadata", "annotations", names.pod_suspending_parent))
    for integration in integrations:
        if integration.serving is None or integration.serving.suspending_parent != held_by:
            continue
        if (place := integration.serving.locate_pod(pod)) is not None:
            yield owner_index_value(integration.group, integration.kind, _namespace(pod), place.parent)


def slice_chain_index(names: Names) -> Index:
    """Return the index of Workloads and pods by the slice chain of their elastic job."""

    def chain(obj: JsonObject) -> Iterator[str]:
        if first := value_at(obj, ("metadata", "annotations", names.workload_slice_name)):
            yield namespaced_index_value(_namespace(obj), first)

    return chain


def topology_assignment_index(names: Names) -> Index:
    """Return the index of Workloads with a topology assignment, by their slice chain or else their name."""

    def assigned(workload: JsonObject) -> Iterator[str]:
        assignments = value_at(workload, ("status", "admission", "podSetAssignments")) or ()
        if any(assignment.get("topologyAssignment") for assignment in assignments):
            metadata = workload["metadata"]
            first = value_at(metadata, ("annotations", names.workload_slice_name))
            yield namespaced_index_value(_namespace(workload), first or metadata["name"])

    return assigned


def host_of_node(node: JsonObject) -> Iterator[str]:
    """Yield the host name of a node, by which topology assignments name it."""
    if host := text_at(node, ("metadata", "labels", HOST_NAME)):
        yield host


def _assigned_hosts(workload: JsonObject) -> Iterator[str]:
    """Yield the hosts to which pods of an admitted Workload are assigned."""
    if not is_admitted(workload):
        return
    hosts: set[str] = set()
    for assignment in value_at(workload, ("status", "admission", "podSetAssignments")) or ():
        if (topology := assignment.get("topologyAssignment")) and topology.get("levels") == [HOST_NAME]:
            # The ungater reports a malformed assignment.
            with contextlib.suppress(MalformedField):
                hosts.update(values[-1] for values, _ in decode(topology, "").domains)
    yield from hosts


def _queue(workload: JsonObject) -> Iterator[str]:
    """Yield the LocalQueue of a Workload. No change of a queue concerns finished Workloads."""
    queue = value_at(workload, ("spec", "queueName"))
    if queue and not is_condition_true(workload, ConditionType.FINISHED):
        yield namespaced_index_value(_namespace(workload), queue)


def _reserved_in(workload: JsonObject) -> Iterator[str]:
    """Yield the ClusterQueue in which a Workload holds quota."""
    cluster_queue = reserved_cluster_queue(workload)
    if cluster_queue and not is_condition_true(workload, ConditionType.FINISHED):
        yield cluster_queue


def workload_priority_class(workload: JsonObject) -> Iterator[str]:
    """Yield the WorkloadPriorityClass that a Workload names."""
    reference = value_at(workload, ("spec", "priorityClassRef"), {})
    if reference.get("kind") == "WorkloadPriorityClass":
        yield reference.get("name", "")


def _spec_cluster_queue(local_queue: JsonObject) -> Iterator[str]:
    if cluster_queue := value_at(local_queue, ("spec", "clusterQueue")):
        yield cluster_queue


def flavors_of(cluster_queue: JsonObject) -> Iterator[str]:
    """Yield the flavors that a ClusterQueue names."""
    for group in value_at(cluster_queue, ("spec", "resourceGroups"), []):
        for flavor in group.get("flavors") or ():
            yield flavor["name"]


def checks_of(cluster_queue: JsonObject) -> Iterator[str]:
    """Yield the admission checks that a ClusterQueue names."""
    for rule in value_at(cluster_queue, ("spec", "admissionChecksStrategy", "admissionChecks"), []):
        yield rule["name"]


def topologies_of(flavor: JsonObject) -> Iterator[str]:
    """Yield the Topology that a ResourceFlavor names."""
    if topology := value_at(flavor, ("spec", "topologyName")):
        yield topology


def _listed_checks(workload: JsonObject) -> Iterator[str]:
    for check in value_at(workload, ("status", "admissionChecks"), []):
        yield check["name"]


def _parameters(check: JsonObject) -> Iterator[str]:
    if name := value_at(check, ("spec", "parameters", "name")):
        yield name


def priority_class_index_value(kind: str, name: str) -> str:
    """Return the index value of a priority class. Both kinds of classes share the index of jobs."""
    return f"{kind}/{name}"


def job_indexes(
    integration: Integration, names: Names, enabled_kinds: Iterable[Integration] = ()
) -> Mapping[str, Index]:
    """Return the indexes of the store of one kind of jobs.

    Args:
        integration: the kind of the jobs.
        names: labels and annotations.
        enabled_kinds: all enabled kinds.
    """

    def priority_classes(job: JsonObject) -> Iterator[str]:
        if label := value_at(job, ("metadata", "labels", names.priority_class)):
            yield priority_class_index_value("WorkloadPriorityClass", label)
        if own := integration.templates.find_priority_class(job):
            yield priority_class_index_value("PriorityClass", own)
        for pod_set in integration.list_pod_sets(job, names):
            if named := value_at(pod_set.get_template(job), ("spec", "priorityClassName")):
                yield priority_class_index_value("PriorityClass", named)

    def prebuilt(job: JsonObject) -> Iterator[str]:
        for place in ("labels", "annotations"):
            if name := value_at(job, ("metadata", place, names.prebuilt_workload_name)):
                yield namespaced_index_value(_namespace(job), name)

    def references(job: JsonObject) -> Iterator[str]:
        for reference in integration.templates.list_references(job):
            yield reference_index_value(*reference)

    indexes = {
        BY_OWNER: controller_index_values,
        BY_PRIORITY_CLASS: priority_classes,
        BY_PREBUILT_WORKLOAD: prebuilt,
        BY_REFERENCE: references,
    }
    composition = integration.composition
    if composition is None:
        return indexes

    def groups(member: JsonObject) -> Iterator[str]:
        if group := composition.get_group(member, names):
            yield namespaced_index_value(_namespace(member), group)

    serving = tuple(integration for integration in enabled_kinds if integration.serving is not None)
    return {**indexes, BY_GROUP: groups, BY_PARENT: lambda pod: serving_parents_of_pod(pod, names, serving)}


def indexes(names: Names) -> Mapping[Resource, Mapping[str, Index]]:
    """Return the indexes of the stores of admitq's kinds."""
    kinds = kinds_of(names)
    return {
        kinds.workloads: {
            BY_OWNER: _owner_of_workload(names),
            BY_PARENT: _parent_of_workload(names),
            BY_QUEUE: _queue,
            BY_CLUSTER_QUEUE: _reserved_in,
            BY_PRIORITY_CLASS: workload_priority_class,
            BY_CHECK: _listed_checks,
            BY_CHAIN: slice_chain_index(names),
            BY_TOPOLOGY_ASSIGNMENT: topology_assignment_index(names),
            BY_ASSIGNED_HOST: _assigned_hosts,
        },
        kinds.admission_checks: {BY_CONFIG: _parameters},
        POD_TEMPLATES: {BY_OWNER: controller_index_values},
        kinds.local_queues: {
            BY_CLUSTER_QUEUE: _spec_cluster_queue,
            BY_NAMESPACE: lambda queue: (_namespace(queue),),
        },
        kinds.cluster_queues: {BY_FLAVOR: flavors_of, BY_CHECK: checks_of},
        kinds.resource_flavors: {BY_TOPOLOGY: topologies_of},
    }

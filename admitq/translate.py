"""Between API objects and the core's values: the only module that knows both.

Objects were validated by the API server and by our webhooks, but an object may have been stored before
either was in place. What cannot be read raises ``Malformed`` with the field and the remedy; the caller
shows that on the object and goes on with the others.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admitq.core.amounts import Amounts, amounts
from admitq.core.model import (
    ONE,
    Admission,
    AdmissionCheck,
    AdmissionCheckRule,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    ConsumedResources,
    ContainerResources,
    ExactAmounts,
    FlavorFungibility,
    FlavorQuotas,
    Instant,
    Labels,
    LabelSelector,
    LimitedType,
    LimitRange,
    LimitRangeItem,
    LocalQueue,
    NodeSelectorTerm,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    PodTemplate,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceProblem,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Taint,
    Toleration,
    Workload,
)
from admitq.core.preemption.policies import NEVER, POLICIES
from admitq.integrations.admission_gates import holding_gates
from admitq.stored_fields import (
    Malformed,
    exact_amount,
    items,
    mapping,
    optional_amount,
    optional_whole,
    quota_amount,
    text,
    texts,
    whole,
)
from admitq_api import conditions
from admitq_api.conditions import ConditionType, Reason
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.labels import Names
from admitq_api.namespaces import NAMESPACE_NAME, SYSTEM_NAMESPACE
from admitq_api.quantity import QuantityError, amount, format_quantity, parse

if TYPE_CHECKING:
    # Its models take long to import, for those who read objects without a configuration file.
    from admitq_api.configuration import Configuration

RawObject = Mapping[str, Any]

MILLISECOND: Final = 1_000_000

_SIGNED_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_INT32: Final = range(-(2**31), 2**31)


# --- pieces ---------------------------------------------------------------------------------------


def key_of(obj: RawObject) -> ObjectKey:
    """Namespace and name of an object."""
    metadata = obj["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])


def labels_of(values: Mapping[str, str] | None, field: str = "labels") -> Labels:
    """Labels in their canonical order.

    Raises:
        Malformed: a value is no text.
    """
    return tuple(sorted([(key, text(value, field)) for key, value in (values or {}).items()]))


def _requirement(raw: Mapping[str, Any], field: str) -> SelectorRequirement:
    try:
        operator = SelectorOperator(raw.get("operator", ""))
    except ValueError as error:
        allowed = ", ".join(SelectorOperator)
        raise Malformed(f"{field}.operator", f"must be one of {allowed}") from error
    return SelectorRequirement(
        text(raw.get("key"), f"{field}.key"), operator, texts(raw.get("values"), f"{field}.values")
    )


def label_selector(raw: Mapping[str, Any] | None, field: str = "selector") -> LabelSelector | None:
    """Read a label selector; an absent one selects nothing and stays absent.

    Raises:
        Malformed: an operator is not known.
    """
    if raw is None:
        return None
    matched = (
        SelectorRequirement(key, SelectorOperator.IN, (text(value, f"{field}.matchLabels"),))
        for key, value in sorted(mapping(raw.get("matchLabels"), f"{field}.matchLabels").items())
    )
    expressed = (
        _requirement(item, f"{field}.matchExpressions[{index}]")
        for index, item in enumerate(items(raw.get("matchExpressions"), f"{field}.matchExpressions"))
    )
    return LabelSelector((*matched, *expressed))


def managed_namespaces(configuration: "Configuration") -> LabelSelector:
    """Return the selector of the namespaces whose jobs are managed.

    Whatever the configuration selects, kube-system and the namespace of admitq are excluded: while no webhook
    answers, the pods that could mend that must start. Webhooks and controllers both use this selector.

    Raises:
        Malformed: an operator of the configuration is not known.
    """
    selector = label_selector(configuration.managed_jobs_namespace_selector, "managedJobsNamespaceSelector")
    selected = () if selector is None else selector.requirements
    never = (SYSTEM_NAMESPACE, configuration.namespace)
    excluded = SelectorRequirement(NAMESPACE_NAME, SelectorOperator.NOT_IN, never)
    return LabelSelector(selected if excluded in selected else (*selected, excluded))


def _tolerations(raw: Any, field: str) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=text(item.get("key"), field),
            operator=text(item.get("operator"), field) or "Equal",
            value=text(item.get("value"), field),
            effect=text(item.get("effect"), field),
            toleration_seconds=item.get("tolerationSeconds"),
        )
        for item in items(raw, field)
    )


def _taints(raw: Any, field: str) -> tuple[Taint, ...]:
    return tuple(
        Taint(*(text(item.get(name), field) for name in ("key", "value", "effect")))
        for item in items(raw, field)
    )


def _stop_policy(raw: Any) -> StopPolicy:
    try:
        return StopPolicy(raw or "None")
    except ValueError as error:
        raise Malformed("spec.stopPolicy", f"must be one of {', '.join(StopPolicy)}") from error


def _preemption_policy(spec: Mapping[str, Any]) -> PreemptionPolicy:
    path = "spec.preemption"
    preemption = mapping(spec.get("preemption"), path)
    borrow = mapping(preemption.get("borrowWithinCohort"), f"{path}.borrowWithinCohort")

    def policy(of: Mapping[str, Any], name: str, field: str) -> str:
        value = of.get(name) or NEVER
        if value not in POLICIES:
            raise Malformed(field, f"must be one of {', '.join(POLICIES)}")
        return value

    return PreemptionPolicy(
        reclaim_within_cohort=policy(preemption, "reclaimWithinCohort", f"{path}.reclaimWithinCohort"),
        within_cluster_queue=policy(preemption, "withinClusterQueue", f"{path}.withinClusterQueue"),
        borrow_within_cohort=BorrowWithinCohort(
            policy(borrow, "policy", f"{path}.borrowWithinCohort.policy"),
            optional_whole(
                borrow.get("maxPriorityThreshold"), f"{path}.borrowWithinCohort.maxPriorityThreshold"
            ),
        ),
    )


def _resource_groups(raw: Any) -> tuple[ResourceGroup, ...]:
    groups: list[ResourceGroup] = []
    for group_index, group in enumerate(items(raw, "spec.resourceGroups")):
        path = f"spec.resourceGroups[{group_index}]"
        covered = texts(group.get("coveredResources"), f"{path}.coveredResources")
        flavors: list[FlavorQuotas] = []
        for flavor_index, flavor in enumerate(items(group.get("flavors"), f"{path}.flavors")):
            flavor_path = f"{path}.flavors[{flavor_index}]"
            quotas: list[tuple[str, ResourceQuota]] = []
            for index, quota in enumerate(items(flavor.get("resources"), f"{flavor_path}.resources")):
                field = f"{flavor_path}.resources[{index}]"
                resource = text(quota["name"], f"{field}.name")
                quotas.append(
                    (
                        resource,
                        ResourceQuota(
                            quota_amount(resource, quota.get("nominalQuota", 0), f"{field}.nominalQuota"),
                            optional_amount(resource, quota, "borrowingLimit", field),
                            optional_amount(resource, quota, "lendingLimit", field),
                        ),
                    )
                )
            flavors.append(FlavorQuotas(text(flavor["name"], f"{flavor_path}.name"), tuple(quotas)))
        groups.append(ResourceGroup(covered, tuple(flavors)))
    return tuple(groups)


def _fair_weight(spec: Mapping[str, Any]) -> Fraction:
    weight = mapping(spec.get("fairSharing"), "spec.fairSharing").get("weight")
    return ONE if weight is None else exact_amount(weight, "spec.fairSharing.weight")


def _consumed(local_queue: RawObject) -> ConsumedResources | None:
    """Read what a LocalQueue's status tells of admission fair sharing; None if it tells nothing.

    Another program may have written what cannot be read, or is negative. Such an amount counts as nothing,
    and the next status replaces it: a status must not put its queue out of service.
    """
    path = "status.fairSharing.admissionFairSharingStatus"
    status = mapping(local_queue.get("status"), "status")
    shares = mapping(status.get("fairSharing"), "status.fairSharing")
    told = mapping(shares.get("admissionFairSharingStatus"), path)
    try:
        at = conditions.parse_time(told.get("lastUpdate") or "")
    except (TypeError, ValueError):
        return None
    consumed: dict[str, int] = {}
    for resource, value in mapping(told.get("consumedResources"), f"{path}.consumedResources").items():
        with suppress(QuantityError):
            consumed[resource] = max(0, amount(resource, value))
    return ConsumedResources(amounts(consumed), at)


# --- kinds ----------------------------------------------------------------------------------------


def admission_check_rules(cluster_queue: RawObject) -> tuple[AdmissionCheckRule, ...]:
    """Read which admission checks a ClusterQueue names, and for which flavors.

    Raises:
        Malformed: a list is not readable.
    """
    path = "spec.admissionChecksStrategy"
    spec = mapping(cluster_queue.get("spec"), "spec")
    checks = mapping(spec.get("admissionChecksStrategy"), path).get("admissionChecks")
    return tuple(
        AdmissionCheckRule(text(rule["name"], path), texts(rule.get("onFlavors"), "onFlavors"))
        for rule in items(checks, f"{path}.admissionChecks")
    )


def cluster_queue(obj: RawObject) -> ClusterQueue:
    """Read a ClusterQueue.

    Raises:
        Malformed: a quantity, operator or enum is not readable.
    """
    metadata, spec = obj["metadata"], mapping(obj.get("spec"), "spec")
    fungibility = mapping(spec.get("flavorFungibility"), "spec.flavorFungibility")
    strategy = spec.get("queueingStrategy") or QueueingStrategy.BEST_EFFORT_FIFO
    try:
        queueing = QueueingStrategy(strategy)
    except ValueError as error:
        raise Malformed("spec.queueingStrategy", f"must be one of {', '.join(QueueingStrategy)}") from error
    return ClusterQueue(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        cohort=text(spec.get("cohortName"), "spec.cohortName") or None,
        resource_groups=_resource_groups(spec.get("resourceGroups")),
        queueing_strategy=queueing,
        namespace_selector=label_selector(spec.get("namespaceSelector"), "spec.namespaceSelector"),
        stop_policy=_stop_policy(spec.get("stopPolicy")),
        admission_checks=admission_check_rules(obj),
        flavor_fungibility=FlavorFungibility(
            when_can_borrow=text(fungibility.get("whenCanBorrow"), "spec.flavorFungibility")
            or "MayStopSearch",
            when_can_preempt=text(fungibility.get("whenCanPreempt"), "spec.flavorFungibility")
            or "TryNextFlavor",
            preference=text(fungibility.get("preference"), "spec.flavorFungibility.preference") or None,
        ),
        preemption=_preemption_policy(spec),
        fair_weight=_fair_weight(spec),
        usage_based_admission=mapping(spec.get("admissionScope"), "spec.admissionScope").get("admissionMode")
        == "UsageBasedAdmissionFairSharing",
        terminating="deletionTimestamp" in metadata,
        created_at=_instant(metadata.get("creationTimestamp")),
    )


def cohort(obj: RawObject) -> Cohort:
    """Read a Cohort.

    Raises:
        Malformed: a quantity is not readable.
    """
    spec = mapping(obj.get("spec"), "spec")
    return Cohort(
        name=obj["metadata"]["name"],
        parent=text(spec.get("parentName"), "spec.parentName") or None,
        resource_groups=_resource_groups(spec.get("resourceGroups")),
        fair_weight=_fair_weight(spec),
    )


def local_queue(obj: RawObject) -> LocalQueue:
    """Read a LocalQueue.

    Raises:
        Malformed: the stop policy is not known.
    """
    metadata, spec = obj["metadata"], mapping(obj.get("spec"), "spec")
    return LocalQueue(
        key=key_of(obj),
        cluster_queue=text(spec.get("clusterQueue"), "spec.clusterQueue"),
        uid=metadata.get("uid", ""),
        stop_policy=_stop_policy(spec.get("stopPolicy")),
        fair_weight=_fair_weight(spec),
        consumed=_consumed(obj),
        terminating="deletionTimestamp" in metadata,
    )


def resource_flavor(obj: RawObject) -> ResourceFlavor:
    """Read a ResourceFlavor."""
    spec = mapping(obj.get("spec"), "spec")
    return ResourceFlavor(
        name=obj["metadata"]["name"],
        node_labels=labels_of(spec.get("nodeLabels"), "spec.nodeLabels"),
        node_taints=_taints(spec.get("nodeTaints"), "spec.nodeTaints"),
        tolerations=_tolerations(spec.get("tolerations"), "spec.tolerations"),
        topology_name=text(spec.get("topologyName"), "spec.topologyName") or None,
    )


def admission_check(obj: RawObject) -> AdmissionCheck:
    """Read an AdmissionCheck."""
    status = mapping(obj.get("status"), "status")
    return AdmissionCheck(
        name=obj["metadata"]["name"],
        controller_name=text(mapping(obj.get("spec"), "spec").get("controllerName"), "spec.controllerName"),
        active=conditions.is_true(status.get("conditions"), ConditionType.ACTIVE),
    )


def limit_range(obj: RawObject) -> LimitRange:
    """Read of a LimitRange what it rules for containers and pods.

    Raises:
        Malformed: a quantity is not readable.
    """
    spec = mapping(obj.get("spec"), "spec")
    limited = {str(one) for one in LimitedType}
    return LimitRange(
        tuple(
            _limit_range_item(item, f"spec.limits[{index}]")
            for index, item in enumerate(items(spec.get("limits"), "spec.limits"))
            if item.get("type") in limited
        )
    )


def _limit_range_item(item: Mapping[str, Any], field: str) -> LimitRangeItem:
    """Read one rule, with the defaults that the API server gives to rules for containers."""
    maximum, minimum, limits, requests = (
        dict(_exact_amounts(item.get(name), f"{field}.{name}"))
        for name in ("max", "min", "default", "defaultRequest")
    )
    limited = LimitedType(item["type"])
    if limited is LimitedType.CONTAINER:
        limits = {**maximum, **limits}
        requests = {**minimum, **limits, **requests}
    return LimitRangeItem(
        limited,
        maximum=tuple(sorted(maximum.items())),
        minimum=tuple(sorted(minimum.items())),
        default_limits=tuple(sorted(limits.items())),
        default_requests=tuple(sorted(requests.items())),
    )


def overhead(runtime_class: RawObject) -> ExactAmounts:
    """Read what a RuntimeClass adds to each of its pods.

    Raises:
        Malformed: a quantity is not readable.
    """
    field = "overhead.podFixed"
    return _exact_amounts(mapping(runtime_class.get("overhead"), "overhead").get("podFixed"), field)


def _exact_amounts(raw: Any, field: str) -> ExactAmounts:
    return tuple(
        sorted((name, exact_amount(value, f"{field}[{name}]")) for name, value in mapping(raw, field).items())
    )


# --- workloads ------------------------------------------------------------------------------------


def _exact(raw: Any, field: str, problems: list[ResourceProblem]) -> ExactAmounts:
    """Read amounts by resource; what cannot be counted is left out and told."""
    result: dict[str, Fraction] = {}
    for resource, quantity in mapping(raw, field).items():
        try:
            value = parse(quantity)
        except QuantityError as error:
            problems.append(ResourceProblem("malformed", f"{field}[{resource}]", str(error)))
            continue
        if value < 0:
            problems.append(ResourceProblem("malformed", f"{field}[{resource}]", "must not be negative"))
            continue
        result[resource] = value
    return tuple(sorted(result.items()))


def _stated(raw: Any, field: str, problems: list[ResourceProblem]) -> tuple[ExactAmounts, ExactAmounts]:
    """Requests and limits."""
    resources = mapping(raw, field)
    return (
        _exact(resources.get("requests"), f"{field}.requests", problems),
        _exact(resources.get("limits"), f"{field}.limits", problems),
    )


def _containers(
    spec: Mapping[str, Any], name: str, field: str, problems: list[ResourceProblem]
) -> Iterator[ContainerResources]:
    for index, item in enumerate(items(spec.get(name), f"{field}.{name}")):
        container = mapping(item, f"{field}.{name}[{index}]")
        stated = _stated(container.get("resources"), f"{field}.{name}[{index}].resources", problems)
        yield ContainerResources(*stated, restartable=container.get("restartPolicy") == "Always")


def _pod_template(spec: Mapping[str, Any], field: str, problems: list[ResourceProblem]) -> PodTemplate:
    requests, limits = _stated(spec.get("resources"), f"{field}.resources", problems)
    overhead = spec.get("overhead")
    return PodTemplate(
        containers=tuple(_containers(spec, "containers", field, problems)),
        init_containers=tuple(_containers(spec, "initContainers", field, problems)),
        requests=requests,
        limits=limits,
        overhead=None if overhead is None else _exact(overhead, f"{field}.overhead", problems),
        runtime_class=text(spec.get("runtimeClassName"), f"{field}.runtimeClassName") or None,
    )


def pod_template(spec: Mapping[str, Any]) -> PodTemplate:
    """Read what a stored pod asks for. Requests that cannot be read are left out.

    Raises:
        Malformed: the structure of the spec is not readable.
    """
    return _pod_template(spec, "spec", [])


def _required_node_affinity(spec: Mapping[str, Any], field: str) -> tuple[NodeSelectorTerm, ...] | None:
    affinity = mapping(spec.get("affinity"), f"{field}.affinity")
    node = mapping(affinity.get("nodeAffinity"), f"{field}.affinity.nodeAffinity")
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    path = f"{field}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    return tuple(
        NodeSelectorTerm(
            tuple(
                _requirement(item, f"{path}[{index}].matchExpressions[{place}]")
                for place, item in enumerate(items(term.get("matchExpressions"), path))
            )
        )
        for index, term in enumerate(items(required.get("nodeSelectorTerms"), path))
    )


def pod_set(raw: Mapping[str, Any], field: str, problems: list[ResourceProblem]) -> PodSet:
    """Read a podset of a Workload; what is wrong with its requests is added to ``problems``.

    Raises:
        Malformed: the template's structure or an operator is not readable.
    """
    spec_field = f"{field}.template.spec"
    template = mapping(raw.get("template"), f"{field}.template")
    spec = mapping(template.get("spec"), spec_field)
    topology = mapping(raw.get("topologyRequest"), f"{field}.topologyRequest")
    group = topology.get("podSetGroupName")
    return PodSet(
        name=text(raw.get("name", "main"), f"{field}.name"),
        count=whole(raw.get("count", 1), f"{field}.count"),
        template=_pod_template(spec, spec_field, problems),
        min_count=optional_whole(raw.get("minCount"), f"{field}.minCount"),
        group=None if group is None else text(group, f"{field}.topologyRequest.podSetGroupName"),
        node_selector=labels_of(spec.get("nodeSelector"), f"{spec_field}.nodeSelector"),
        required_node_affinity=_required_node_affinity(spec, spec_field),
        tolerations=_tolerations(spec.get("tolerations"), f"{spec_field}.tolerations"),
    )


@lru_cache(4096)
def _shared(pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """The podsets of the first workload that has these: equal ones are kept in memory once."""
    return pod_sets


def admission(raw: Mapping[str, Any], pods: Mapping[str, int] = MappingProxyType({})) -> Admission:
    """Read ``status.admission``.

    Args:
        raw: the admission.
        pods: how many pods each podset has; an assignment that states no count is for all of them.

    Raises:
        Malformed: a usage is not a readable quantity.
    """
    path = "status.admission.podSetAssignments"
    return Admission(
        text(raw["clusterQueue"], "status.admission.clusterQueue"),
        tuple(
            _assignment(item, f"{path}[{index}]", pods)
            for index, item in enumerate(items(raw.get("podSetAssignments"), path))
        ),
    )


def _assignment(item: Mapping[str, Any], path: str, pods: Mapping[str, int]) -> PodSetAssignment:
    name, count = text(item.get("name", "main"), f"{path}.name"), item.get("count")
    usage = {
        resource: quota_amount(resource, value, f"{path}.resourceUsage[{resource}]")
        for resource, value in mapping(item.get("resourceUsage"), path).items()
    }
    return PodSetAssignment(
        name=name,
        flavors=labels_of(mapping(item.get("flavors"), f"{path}.flavors"), f"{path}.flavors"),
        resource_usage=amounts(usage),
        count=pods.get(name, 0) if count is None else whole(count, f"{path}.count"),
        is_place_open=item.get("delayedTopologyRequest") == "Pending" and not item.get("topologyAssignment"),
    )


def _readable_admission(raw: Mapping[str, Any]) -> Admission:
    """Read of an admission all that can be read: what cannot, or is negative, counts as nothing."""
    assignments: list[PodSetAssignment] = []
    for item in items(raw.get("podSetAssignments"), "status.admission.podSetAssignments"):
        usage: dict[str, int] = {}
        with suppress(Malformed, AttributeError):
            for resource, value in mapping(item.get("resourceUsage"), "resourceUsage").items():
                with suppress(QuantityError):
                    usage[resource] = max(0, amount(resource, value))
            flavors = labels_of(mapping(item.get("flavors"), "flavors"))
            # No count: the usage does not shrink with the pods that remain, for they are not known either.
            name = text(item.get("name", "main"), "name")
            assignments.append(PodSetAssignment(name, flavors, amounts(usage), 0))
    return Admission(text(raw["clusterQueue"], "status.admission.clusterQueue"), tuple(assignments))


def admission_status(value: Admission) -> dict[str, Any]:
    """Write an admission as ``status.admission`` holds it."""
    return {
        "clusterQueue": value.cluster_queue,
        "podSetAssignments": [_assignment_status(assignment) for assignment in value.pod_set_assignments],
    }


def _assignment_status(value: PodSetAssignment) -> dict[str, Any]:
    maps = {"flavors": dict(value.flavors), "resourceUsage": quantities(value.resource_usage)}
    return {"name": value.name, **_without_empty(maps), "count": value.count}


def pod_set_request(name: str, of: Amounts) -> dict[str, Any]:
    """Write what a podset asks for as an item of ``status.resourceRequests``."""
    return {"name": name, **_without_empty({"resources": quantities(of)})}


def _without_empty(maps: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """The maps that have entries: typed clients drop the others when they write an object back."""
    return {name: value for name, value in maps.items() if value}


def quantities(of: Amounts) -> dict[str, str]:
    """Write amounts as quantities by resource name; an unlimited amount is written as the largest one."""
    return {resource: format_quantity(resource, value) for resource, value in of}


@dataclass(frozen=True, slots=True)
class Reading:
    """What configuration and feature gates say of how Workloads are read."""

    eviction_moves_to_back: bool = True
    """Whether a PodsReady timeout costs the place in the queue: requeuingStrategy.timestamp is Eviction."""
    reclaim_moves_to_back: bool = False
    """Whether being preempted by a borrower does: gate PrioritySortingWithinCohort is off."""
    boosts: bool = False
    """Whether an annotation may add to the priority: gate PriorityBoost."""
    gated: bool = True
    """Whether an annotation may hold it back: gate AdmissionGatedBy."""
    replaces: bool = False
    """Whether an annotation may name a Workload to take over from: gate ElasticJobsViaWorkloadSlices."""


def reading(configuration: "Configuration", gates: FeatureGates) -> Reading:
    """How Workloads are read under a configuration."""
    wait = configuration.wait_for_pods_ready
    return Reading(
        eviction_moves_to_back=wait is None or wait.requeuing_strategy.timestamp == "Eviction",
        reclaim_moves_to_back=not gates[Gate.PRIORITY_SORTING_WITHIN_COHORT],
        boosts=gates[Gate.PRIORITY_BOOST],
        gated=gates[Gate.ADMISSION_GATED_BY],
        replaces=gates[Gate.ELASTIC_JOBS],
    )


def queue_order_timestamp(obj: RawObject, how: Reading) -> Instant:
    """When the workload counts as having been queued.

    That is its creation; after an admission check's Retry, and where the configuration says so after a
    PodsReady timeout, it is the eviction. Ordinary preemption keeps the old place.
    """
    state = mapping(obj.get("status"), "status").get("conditions")
    evicted = conditions.find(state, ConditionType.EVICTED)
    if evicted is not None and evicted.get("status") == "True":
        reason = evicted.get("reason")
        if reason == Reason.ADMISSION_CHECK or (
            reason == Reason.PODS_READY_TIMEOUT and how.eviction_moves_to_back
        ):
            return conditions.parse_time(evicted["lastTransitionTime"])
    preempted = conditions.find(state, ConditionType.PREEMPTED)
    if (
        how.reclaim_moves_to_back
        and preempted is not None
        and (preempted.get("status"), preempted.get("reason"))
        == ("True", Reason.IN_COHORT_RECLAIM_WHILE_BORROWING)
    ):
        return conditions.parse_time(preempted["lastTransitionTime"]) + MILLISECOND
    return conditions.parse_time(obj["metadata"]["creationTimestamp"])


class Priority(NamedTuple):
    """The priority that a Workload states, and what its annotation adds to it."""

    base: int
    boost: int


def priority_of(obj: RawObject, names: Names, how: Reading) -> Priority:
    """Read a Workload's priority; the sum is the effective one.

    Raises:
        Malformed: the boost is not a whole number.
    """
    base = whole(mapping(obj.get("spec"), "spec").get("priority") or 0, "spec.priority")
    annotations = mapping(obj["metadata"].get("annotations"), "metadata.annotations")
    boost = annotations.get(names.priority_boost) if how.boosts else None
    if boost is None:
        return Priority(base, 0)
    if not _SIGNED_INTEGER.fullmatch(boost) or int(boost) not in _INT32:
        field = f"metadata.annotations[{names.priority_boost}]"
        raise Malformed(field, "must be a whole number of 32 bits, such as 10 or -10")
    return Priority(base, int(boost))


def readable_priority(obj: RawObject, names: Names, how: Reading) -> Priority:
    """Read of a Workload's priority what can be read: 0 stands for the rest."""
    with suppress(Malformed):
        return priority_of(obj, names, how)
    return Priority(_stated_priority(obj), 0)


def _stated_priority(obj: RawObject) -> int:
    stated = mapping(obj.get("spec"), "spec").get("priority")
    return stated if isinstance(stated, int) else 0


def replaced(obj: RawObject, names: Names) -> ObjectKey | None:
    """The Workload of the same namespace that this one replaces; None if it replaces none."""
    metadata = obj["metadata"]
    annotations = mapping(metadata.get("annotations"), "metadata.annotations")
    namespace, _, name = str(annotations.get(names.workload_slice_replacement_for, "")).partition("/")
    return ObjectKey(namespace, name) if name and namespace == metadata["namespace"] else None


def _instant(text: str | None) -> Instant:
    """Read a time; 0 if it is not stated."""
    return conditions.parse_time(text) if text else 0


def _reserved_at(state: list[Any]) -> Instant:
    return _instant((conditions.find(state, ConditionType.QUOTA_RESERVED) or {}).get("lastTransitionTime"))


def _evicted_at(state: list[Any]) -> Instant:
    evicted = conditions.find(state, ConditionType.EVICTED) or {}
    return _instant(evicted.get("lastTransitionTime")) if evicted.get("status") == "True" else 0


def holder(obj: RawObject) -> Workload:
    """Read of a Workload only what it holds, where the rest cannot be read.

    It keeps its stated priority, so that it does not become the first to be preempted.

    Raises:
        Malformed: it holds nothing, or what it holds is not readable either.
    """
    status = mapping(obj.get("status"), "status")
    state = items(status.get("conditions"), "status.conditions")
    if not conditions.is_true(state, ConditionType.QUOTA_RESERVED):
        raise Malformed("status.conditions", "QuotaReserved must be True for the Workload to hold quota")
    if not status.get("admission"):
        raise Malformed("status.admission", "must be set for the Workload to hold quota")
    spec = mapping(obj.get("spec"), "spec")
    return Workload(
        key=key_of(obj),
        uid=obj["metadata"]["uid"],
        queue_name=str(spec.get("queueName", "")),
        queued_at=0,
        pod_sets=(),
        priority=_stated_priority(obj),
        active=spec.get("active") is not False,
        finished=conditions.is_true(state, ConditionType.FINISHED),
        admission=_readable_admission(status["admission"]),
        reserved_at=_reserved_at(state),
        admitted=conditions.is_true(state, ConditionType.ADMITTED),
        pods_ready=conditions.is_true(state, ConditionType.PODS_READY),
        evicted=conditions.is_true(state, ConditionType.EVICTED),
    )


def _admission_gates(obj: RawObject, state: list[Any], names: Names, how: Reading) -> tuple[str, ...]:
    """Read what holds a Workload back: its gates, or else those that its status has not taken back yet.

    That they are gone is told before anything comes of it.
    """
    gates = holding_gates(obj, names) if how.gated else ()
    return tuple(gates) or conditions.gates_told(state)


_AS_BY_DEFAULT = Reading()


def _counts(pod_sets: tuple[PodSet, ...]) -> dict[str, int]:
    return {one.name: one.count for one in pod_sets}


def workload(obj: RawObject, names: Names, how: Reading = _AS_BY_DEFAULT) -> Workload:
    """Read a Workload in whatever phase it is.

    Raises:
        Malformed: the object's structure, an operator or an assigned usage is not readable.
    """
    metadata, spec = obj["metadata"], mapping(obj.get("spec"), "spec")
    status = mapping(obj.get("status"), "status")
    state = items(status.get("conditions"), "status.conditions")
    problems: list[ResourceProblem] = []
    pod_sets = tuple(
        pod_set(item, f"spec.podSets[{index}]", problems)
        for index, item in enumerate(items(spec.get("podSets"), "spec.podSets"))
    )
    # The condition alone decides: an admission without it is a leftover, and nothing is held.
    reserved = conditions.is_true(state, ConditionType.QUOTA_RESERVED)
    if reserved and not status.get("admission"):
        raise Malformed("status.admission", "must be set while the QuotaReserved condition is true")
    quota = conditions.find(state, ConditionType.QUOTA_RESERVED) or {}
    requeued = conditions.find(state, ConditionType.REQUEUED) or {}
    requeue_at = mapping(status.get("requeueState"), "status.requeueState").get("requeueAt")
    return Workload(
        key=key_of(obj),
        uid=metadata["uid"],
        queue_name=text(spec.get("queueName"), "spec.queueName"),
        queued_at=queue_order_timestamp(obj, how),
        pod_sets=_shared(pod_sets),
        priority=sum(priority_of(obj, names, how)),
        generation=metadata.get("generation", 1),
        active=spec.get("active", True),
        finished=conditions.is_true(state, ConditionType.FINISHED),
        deleting="deletionTimestamp" in metadata,
        admission=admission(status["admission"], _counts(pod_sets)) if reserved else None,
        reserved_at=_reserved_at(state) if reserved else 0,
        admitted=reserved and conditions.is_true(state, ConditionType.ADMITTED),
        pods_ready=conditions.is_true(state, ConditionType.PODS_READY),
        evicted=conditions.is_true(state, ConditionType.EVICTED),
        evicted_at=_evicted_at(state),
        requeue_at=conditions.parse_time(requeue_at) if requeue_at else None,
        requeue_blocked=requeued.get("status") == "False",
        on_hold=quota.get("status") == "False" and quota.get("reason") == Reason.ON_HOLD,
        waiting_for_replacement_pods=conditions.is_true(state, ConditionType.WAITING_FOR_REPLACEMENT_PODS),
        admission_gates=_admission_gates(obj, state, names, how),
        reclaimable_pods=tuple(
            sorted(
                (
                    text(item["name"], "status.reclaimablePods"),
                    whole(item["count"], f"status.reclaimablePods[{index}].count"),
                )
                for index, item in enumerate(items(status.get("reclaimablePods"), "status.reclaimablePods"))
            )
        ),
        admission_checks=tuple(
            sorted(
                (
                    text(item["name"], "status.admissionChecks"),
                    text(item["state"], "status.admissionChecks"),
                )
                for item in items(status.get("admissionChecks"), "status.admissionChecks")
            )
        ),
        has_closed_preemption_gate=any(
            gate.get("position") == "Closed"
            for gate in items(status.get("preemptionGates"), "status.preemptionGates")
        ),
        resource_problems=tuple(problems),
        replaces=replaced(obj, names) if how.replaces else None,
    )

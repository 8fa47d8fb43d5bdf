"""Read the objects of a scenario: YAML becomes the values of the core's model.

README.md in this folder lists the keys. An unknown key is an error.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, cast

from admitq.core.amounts import Amounts, amounts
from admitq.core.model import (
    SECOND,
    AdmissionCheck,
    AdmissionCheckRule,
    BorrowWithinCohort,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    ConsumedResources,
    ContainerResources,
    ExactAmounts,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorFungibilityPreference,
    FlavorQuotas,
    LabelSelector,
    LimitedType,
    LimitRange,
    LimitRangeItem,
    LocalQueue,
    NodeSelectorTerm,
    ObjectKey,
    PodSet,
    PodTemplate,
    PreemptionPolicy,
    PreferredTerm,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Taint,
    Toleration,
)
from admitq.core.settings import (
    AdmissionFairSharing,
    CoreSettings,
    FairSharing,
    Gates,
    Placement,
    PreemptionStrategy,
    Resources,
    Transformation,
    TransformationOutput,
)
from admitq.core.topology.domains import HOST_NAME, Node
from admitq.core.topology.request import SliceLayer, TopologyRequest
from admitq.core.topology.rules import PlacementRules
from admitq.core.topology.topologies import PodOnNode
from admitq_api.json_objects import JsonObject
from admitq_api.quantity import parse_amount, parse_quantity

START = 1_000 * SECOND
ALL_NAMESPACES = LabelSelector()


class StoryError(Exception):
    """The scenario is not valid."""


class Keys:
    """A mapping of which all keys must be read. `end` raises an error for unread keys."""

    def __init__(self, raw: Any, where: str) -> None:
        if not isinstance(raw, Mapping):
            raise StoryError(f"{where}: {raw!r} must be a mapping")
        self._left: dict[str, Any] = dict(cast("JsonObject", raw))
        self._where = where

    def take(self, key: str, default: Any = None) -> Any:
        return self._left.pop(key, default)

    def has(self, key: str) -> bool:
        return key in self._left

    def rest(self) -> dict[str, Any]:
        rest, self._left = self._left, {}
        return rest

    def end(self) -> None:
        if self._left:
            raise StoryError(f"{self._where}: unknown keys {sorted(self._left)}")


def key_of(name: str) -> ObjectKey:
    namespace, slash, rest = name.partition("/")
    return ObjectKey(namespace, rest) if slash else ObjectKey("default", name)


def name_of(key: ObjectKey) -> str:
    return key.name if key.namespace == "default" else str(key)


def instant(seconds: float) -> int:
    return START + round(seconds * SECOND)


# --- values ---------------------------------------------------------------------------------------------


def requirements(raw: Any) -> tuple[SelectorRequirement, ...]:
    """Read ``{zone: a}``, ``{zone: [a, b]}``, or ``{zone: {NotIn: [a]}}``."""

    def requirement(key: str, value: Any) -> SelectorRequirement:
        if isinstance(value, Mapping):
            ((operator, values),) = cast("JsonObject", value).items()
            return SelectorRequirement(key, SelectorOperator(operator), tuple(map(str, values or ())))
        values = value if isinstance(value, list) else [value]
        return SelectorRequirement(key, SelectorOperator.IN, tuple(map(str, cast("list[Any]", values))))

    return tuple(requirement(key, value) for key, value in cast("JsonObject", raw).items())


def labels(raw: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in cast("JsonObject", raw or {}).items()))


def exact(raw: Any) -> ExactAmounts:
    """Return quantities exactly as stated."""
    return tuple(
        sorted((resource, parse_quantity(value)) for resource, value in cast("JsonObject", raw or {}).items())
    )


def weight(raw: Any) -> Fraction:
    return Fraction(1) if raw is None else Fraction(str(raw))


def quota(resource: str, raw: Any) -> ResourceQuota:
    if not isinstance(raw, Mapping):
        return ResourceQuota(parse_amount(resource, raw))
    keys = Keys(raw, f"quota of {resource}")
    nominal, borrow, lend = (keys.take(key) for key in ("nominal", "borrow", "lend"))
    keys.end()
    return ResourceQuota(
        parse_amount(resource, nominal or 0),
        None if borrow is None else parse_amount(resource, borrow),
        None if lend is None else parse_amount(resource, lend),
    )


def groups(raw: Any) -> tuple[ResourceGroup, ...]:
    """Read one group as ``{flavor: {resource: quota}}``, or a list of groups."""
    result: list[ResourceGroup] = []
    for group in raw if isinstance(raw, list) else [raw or {}]:
        flavors = tuple(
            FlavorQuotas(
                flavor, tuple((resource, quota(resource, value)) for resource, value in resources.items())
            )
            for flavor, resources in cast("JsonObject", group).items()
        )
        if flavors:
            result.append(ResourceGroup(tuple(name for name, _ in flavors[0].resources), flavors))
    return tuple(result)


def taint(text: str) -> Taint:
    """Read ``key=value:Effect``."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key, value, effect)


def toleration(text: str) -> Toleration:
    """Read ``key=value``, ``key`` for Exists, or ``*`` for all; with ``:Effect`` for one effect."""
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if key == "*":
        return Toleration(operator="Exists", effect=effect)
    return Toleration(key, "Equal" if equals else "Exists", value, effect)


# --- objects of the world -------------------------------------------------------------------------------


def preemption(raw: Any) -> ClusterQueuePreemption:
    """Read the fields of the API. ``borrowWithinCohort`` can be only its policy."""
    keys = Keys(raw or {}, "preemption")
    borrow = keys.take("borrowWithinCohort", "Never")
    borrow_keys = Keys(borrow if isinstance(borrow, Mapping) else {"policy": borrow}, "borrowWithinCohort")
    result = ClusterQueuePreemption(
        PreemptionPolicy(keys.take("reclaimWithinCohort", "Never")),
        PreemptionPolicy(keys.take("withinClusterQueue", "Never")),
        BorrowWithinCohort(
            PreemptionPolicy(borrow_keys.take("policy", "LowerPriority")),
            borrow_keys.take("maxPriorityThreshold"),
        ),
    )
    borrow_keys.end()
    keys.end()
    return result


def cluster_queue(name: str, raw: Any) -> ClusterQueue:
    keys = Keys(raw, f"clusterQueue {name}")
    selector, preference = keys.take("namespaces", "all"), keys.take("preference")
    queue = ClusterQueue(
        name,
        cohort=keys.take("cohort"),
        resource_groups=groups(keys.take("quota")),
        queueing_strategy=QueueingStrategy(keys.take("strategy", "BestEffortFIFO")),
        namespace_selector=(
            ALL_NAMESPACES
            if selector == "all"
            else None
            if selector == "none"
            else LabelSelector(requirements(selector))
        ),
        stop_policy=StopPolicy(keys.take("stop", "None")),
        admission_checks=tuple(
            AdmissionCheckRule(check, tuple(flavors or ()))
            for check, flavors in keys.take("checks", {}).items()
        ),
        flavor_fungibility=FlavorFungibility(
            FlavorFungibilityPolicy(keys.take("whenCanBorrow", "MayStopSearch")),
            FlavorFungibilityPolicy(keys.take("whenCanPreempt", "TryNextFlavor")),
            None if preference is None else FlavorFungibilityPreference(preference),
        ),
        preemption=preemption(keys.take("preemption")),
        fair_weight=weight(keys.take("weight")),
        usage_based_admission=keys.take("usageBased", False),
        terminating=keys.take("terminating", False),
    )
    keys.end()
    return queue


def cohort(name: str, raw: Any) -> Cohort:
    keys = Keys(raw or {}, f"cohort {name}")
    result = Cohort(
        name, keys.take("parent"), groups(keys.take("quota")), fair_weight=weight(keys.take("weight"))
    )
    keys.end()
    return result


def admission_check(name: str, raw: Any) -> AdmissionCheck:
    keys = Keys(raw or {}, f"check {name}")
    result = AdmissionCheck(name, keys.take("controller", "example.com/check"), keys.take("active", True))
    keys.end()
    return result


def local_queue(name: str, raw: Any) -> LocalQueue:
    keys = Keys(raw if isinstance(raw, Mapping) else {"clusterQueue": raw}, f"localQueue {name}")
    consumed = keys.take("consumed")
    queue = LocalQueue(
        key_of(name),
        keys.take("clusterQueue"),
        stop_policy=StopPolicy(keys.take("stop", "None")),
        fair_weight=weight(keys.take("weight")),
        consumed=(
            None
            if consumed is None
            else ConsumedResources(
                amounts({resource: parse_amount(resource, value) for resource, value in consumed.items()}),
                START,
            )
        ),
        terminating=keys.take("terminating", False),
    )
    keys.end()
    return queue


def flavor(name: str, raw: Any) -> ResourceFlavor:
    keys = Keys(raw or {}, f"flavor {name}")
    result = ResourceFlavor(
        name,
        labels(keys.take("labels")),
        tuple(taint(text) for text in keys.take("taints", [])),
        tuple(toleration(text) for text in keys.take("tolerations", [])),
        keys.take("topology"),
    )
    keys.end()
    return result


def levels(raw: Any) -> tuple[str, ...]:
    """Read the levels of a topology, the widest first; ``host`` is the label of host names."""
    return tuple(HOST_NAME if level == "host" else str(level) for level in raw or ())


def node(name: str, raw: Any) -> Node:
    """Read a node. Unknown fields are its allocatable amounts; it has room for many pods."""
    keys = Keys(raw, f"node {name}")
    own_labels = {**keys.take("labels", {}), HOST_NAME: name}
    taints, ready = tuple(taint(text) for text in keys.take("taints", [])), keys.take("ready", True)
    schedulable = keys.take("schedulable", True)
    allocatable = {"pods": 110, **keys.rest()}
    return Node(name, labels(own_labels), taints, parsed(allocatable), ready, schedulable)


def pod_of_others(name: str, raw: Any) -> PodOnNode:
    """Read the node of a pod that admitq does not manage, and what the pod requests."""
    keys = Keys(raw, f"pod {name}")
    return PodOnNode(keys.take("node"), parsed(keys.rest()))


def parsed(raw: Mapping[str, Any]) -> Amounts:
    return amounts({resource: parse_amount(resource, value) for resource, value in raw.items()})


def topology_request(raw: Any) -> TopologyRequest:
    """Read ``{required: rack}``, ``{preferred: rack}`` or ``{unconstrained: true}``, with ``slices``.

    Slices are ``{level: pods}``, the largest first.
    """
    keys = Keys(raw, "topology")
    slices = tuple(
        SliceLayer(level, size)
        for label, size in keys.take("slices", {}).items()
        for level in levels([label])
    )
    required, preferred = (
        levels([label])[0] if label else None for label in (keys.take("required"), keys.take("preferred"))
    )
    request = TopologyRequest(required, preferred, keys.take("unconstrained", False), slices)
    keys.end()
    return request


def limit_range(name: str, raw: Any) -> LimitRange:
    """Read ``{Container: {max, min, default, defaultRequest}, Pod: {max, min}}``."""

    def item(limited_type: str, bounds: Any) -> LimitRangeItem:
        keys = Keys(bounds, f"limitRange {name}")
        maximum, minimum, limits, requests = (
            exact(keys.take(key)) for key in ("max", "min", "default", "defaultRequest")
        )
        keys.end()
        return LimitRangeItem(LimitedType(limited_type), maximum, minimum, limits, requests)

    return LimitRange(
        tuple(item(limited_type, bounds) for limited_type, bounds in cast("JsonObject", raw).items())
    )


# --- pods -----------------------------------------------------------------------------------------------


def container(raw: Any) -> ContainerResources:
    """Read requests by resource, ``limits``, and ``restartable`` of an init container."""
    keys = Keys(raw, "container")
    limits, restartable = exact(keys.take("limits")), keys.take("restartable", False)
    return ContainerResources(exact(keys.rest()), limits, restartable)


def pod_set(name: str, raw: Any) -> PodSet:
    """Read a podset. Unknown fields are the requests of its only container."""
    keys = Keys(raw, f"podset {name}")
    affinity, overhead = keys.take("affinity"), keys.take("overhead")
    pod_level = Keys(keys.take("pod", {}), f"podset {name}")
    pod_limits, pod_requests = exact(pod_level.take("limits")), exact(pod_level.rest())
    given: dict[str, Any] = {
        "count": keys.take("count", 1),
        "min_count": keys.take("minCount"),
        "group": keys.take("group"),
        "topology_request": topology_request(keys.take("topology")) if keys.has("topology") else None,
        "preferred_node_affinity": tuple(
            PreferredTerm(weight, NodeSelectorTerm(requirements(term)))
            for weight, term in keys.take("prefers", {}).items()
        ),
        "node_selector": labels(keys.take("nodeSelector")),
        "tolerations": tuple(toleration(text) for text in keys.take("tolerates", [])),
        "required_node_affinity": (
            None if affinity is None else tuple(NodeSelectorTerm(requirements(term)) for term in affinity)
        ),
    }
    init_containers = tuple(container(item) for item in keys.take("initContainers", ()))
    runtime_class = keys.take("runtimeClass")
    containers = keys.take("containers")
    rest = keys.rest()
    if containers is not None and rest:
        raise StoryError(f"podset {name}: unknown keys {sorted(rest)}")
    template = PodTemplate(
        tuple(container(item) for item in (containers or [rest])),
        init_containers,
        pod_requests,
        pod_limits,
        None if overhead is None else exact(overhead),
        runtime_class,
    )
    return PodSet(name, template=template, **given)


# --- settings -------------------------------------------------------------------------------------------


def transformation(raw: Any) -> Transformation:
    keys = Keys(raw, "transformation")
    strategy = keys.take("strategy", "Retain")
    if strategy not in ("Retain", "Replace"):
        raise StoryError(f"transformation: unknown strategy {strategy}")
    result = Transformation(
        keys.take("input"),
        tuple(
            TransformationOutput(output, parse_quantity(factor))
            for output, factor in keys.take("outputs", {}).items()
        ),
        retain=strategy == "Retain",
        multiply_by=keys.take("multiplyBy"),
    )
    keys.end()
    return result


def resources(raw: Any) -> Resources:
    keys = Keys(raw or {}, "resources")
    strategy = keys.take("quotaCheckStrategy", "BlockUndeclared")
    if strategy not in ("BlockUndeclared", "IgnoreUndeclared"):
        raise StoryError(f"resources: unknown quotaCheckStrategy {strategy}")
    result = Resources(
        ignore_undeclared=strategy == "IgnoreUndeclared",
        excluded_prefixes=tuple(keys.take("excludeResourcePrefixes", ())),
        transformations=tuple(transformation(item) for item in keys.take("transformations", ())),
    )
    keys.end()
    return result


def admission_fair_sharing(raw: Any) -> AdmissionFairSharing:
    """Read the settings, with durations in seconds."""
    keys = Keys(raw, "admissionFairSharing")
    default = AdmissionFairSharing()
    half_life, sampling = keys.take("usageHalfLifeTime"), keys.take("usageSamplingInterval")
    result = AdmissionFairSharing(
        default.half_life if half_life is None else half_life * SECOND,
        default.sampling_interval if sampling is None else sampling * SECOND,
        exact(keys.take("resourceWeights")),
    )
    keys.end()
    return result


def placement(raw: Any) -> Placement:
    """Read the fields of ``Placement`` and of its rules that differ from the defaults."""
    given = {_snake_case(name): value for name, value in cast("JsonObject", raw).items()}
    rules = {each.name: given.pop(each.name) for each in fields(PlacementRules) if each.name in given}
    return Placement(rules=PlacementRules(**rules), **given)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def gates(raw: Any) -> Gates:
    """Read gates by name."""
    named = {_snake_case(gate): value for gate, value in cast("JsonObject", raw).items()}
    return replace(Gates(), **named)


def settings(raw: Any) -> CoreSettings:
    keys = Keys(raw, "settings")
    fair_sharing = keys.take("fairSharing")
    usage_based = keys.take("admissionFairSharing")
    result = CoreSettings(
        multikueue_controller=keys.take("multikueueController", ""),
        provisioning_controller=keys.take("provisioningController", ""),
        fair_sharing=(
            None
            if fair_sharing is None
            else FairSharing(tuple(PreemptionStrategy(item) for item in fair_sharing))
        ),
        admission_fair_sharing=None if usage_based is None else admission_fair_sharing(usage_based),
        resources=resources(keys.take("resources")),
        block_admission=keys.take("blockAdmission", False),
        placement=placement(keys.take("placement") or {}) if keys.has("placement") else None,
        gates=gates(keys.take("gates", {})),
    )
    keys.end()
    return result

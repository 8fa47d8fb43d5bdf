"""Reads the objects of a scenario: what is written in YAML becomes the values that the core decides over.

README.md beside this file lists the words; one that is not known is an error.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

from admitq.core.amounts import amounts
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
    FairSharing,
    Gates,
    PreemptionStrategy,
    Resources,
    Settings,
    Transformation,
    TransformationOutput,
)
from admitq_api.json_objects import JsonObject
from admitq_api.quantity import parse_amount, parse_quantity

BEGINNING = 1_000 * SECOND
EVERYONE = LabelSelector()


class StoryError(Exception):
    """The scenario is not valid."""


class Words:
    """A mapping with keys that must all be read; `end` reports the others."""

    def __init__(self, raw: Any, where: str) -> None:
        if not isinstance(raw, Mapping):
            raise StoryError(f"{where}: {raw!r} must be a mapping")
        self._left: dict[str, Any] = dict(cast("JsonObject", raw))
        self._where = where

    def take(self, word: str, default: Any = None) -> Any:
        return self._left.pop(word, default)

    def has(self, word: str) -> bool:
        return word in self._left

    def rest(self) -> dict[str, Any]:
        rest, self._left = self._left, {}
        return rest

    def end(self) -> None:
        if self._left:
            raise StoryError(f"{self._where}: unknown words {sorted(self._left)}")


def key_of(name: str) -> ObjectKey:
    namespace, slash, rest = name.partition("/")
    return ObjectKey(namespace, rest) if slash else ObjectKey("default", name)


def name_of(key: ObjectKey) -> str:
    return key.name if key.namespace == "default" else str(key)


def instant(seconds: float) -> int:
    return BEGINNING + round(seconds * SECOND)


# --- values ---------------------------------------------------------------------------------------------


def requirements(raw: Any) -> tuple[SelectorRequirement, ...]:
    """``{zone: a}``, ``{zone: [a, b]}``, or ``{zone: {NotIn: [a]}}``."""

    def one(key: str, what: Any) -> SelectorRequirement:
        if isinstance(what, Mapping):
            ((operator, values),) = cast("JsonObject", what).items()
            return SelectorRequirement(key, SelectorOperator(operator), tuple(map(str, values or ())))
        values = what if isinstance(what, list) else [what]
        return SelectorRequirement(key, SelectorOperator.IN, tuple(map(str, cast("list[Any]", values))))

    return tuple(one(key, what) for key, what in cast("JsonObject", raw).items())


def labels(raw: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in cast("JsonObject", raw or {}).items()))


def exact(raw: Any) -> ExactAmounts:
    """Return quantities exactly as stated."""
    return tuple(
        sorted((resource, parse_quantity(of)) for resource, of in cast("JsonObject", raw or {}).items())
    )


def weight(raw: Any) -> Fraction:
    return Fraction(1) if raw is None else Fraction(str(raw))


def quota(resource: str, raw: Any) -> ResourceQuota:
    if not isinstance(raw, Mapping):
        return ResourceQuota(parse_amount(resource, raw))
    words = Words(raw, f"quota of {resource}")
    nominal, borrow, lend = (words.take(word) for word in ("nominal", "borrow", "lend"))
    words.end()
    return ResourceQuota(
        parse_amount(resource, nominal or 0),
        None if borrow is None else parse_amount(resource, borrow),
        None if lend is None else parse_amount(resource, lend),
    )


def groups(raw: Any) -> tuple[ResourceGroup, ...]:
    """One group as ``{flavor: {resource: quota}}``, or a list of them."""
    result: list[ResourceGroup] = []
    for group in raw if isinstance(raw, list) else [raw or {}]:
        flavors = tuple(
            FlavorQuotas(flavor, tuple((resource, quota(resource, of)) for resource, of in resources.items()))
            for flavor, resources in cast("JsonObject", group).items()
        )
        if flavors:
            result.append(ResourceGroup(tuple(name for name, _ in flavors[0].resources), flavors))
    return tuple(result)


def taint(text: str) -> Taint:
    """``key=value:Effect``."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key, value, effect)


def toleration(text: str) -> Toleration:
    """``key=value``, ``key`` for Exists, ``*`` for all; with ``:Effect`` for one effect."""
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if key == "*":
        return Toleration(operator="Exists", effect=effect)
    return Toleration(key, "Equal" if equals else "Exists", value, effect)


# --- objects of the world -------------------------------------------------------------------------------


def preemption(raw: Any) -> ClusterQueuePreemption:
    """Values as in the API; ``borrowWithinCohort`` may be just its policy."""
    words = Words(raw or {}, "preemption")
    borrow = words.take("borrowWithinCohort", "Never")
    of_borrowers = Words(borrow if isinstance(borrow, Mapping) else {"policy": borrow}, "borrowWithinCohort")
    result = ClusterQueuePreemption(
        PreemptionPolicy(words.take("reclaimWithinCohort", "Never")),
        PreemptionPolicy(words.take("withinClusterQueue", "Never")),
        BorrowWithinCohort(
            PreemptionPolicy(of_borrowers.take("policy", "LowerPriority")),
            of_borrowers.take("maxPriorityThreshold"),
        ),
    )
    of_borrowers.end()
    words.end()
    return result


def cluster_queue(name: str, raw: Any) -> ClusterQueue:
    words = Words(raw, f"clusterQueue {name}")
    selector, preference = words.take("namespaces", "all"), words.take("preference")
    queue = ClusterQueue(
        name,
        cohort=words.take("cohort"),
        resource_groups=groups(words.take("quota")),
        queueing_strategy=QueueingStrategy(words.take("strategy", "BestEffortFIFO")),
        namespace_selector=(
            EVERYONE
            if selector == "all"
            else None
            if selector == "none"
            else LabelSelector(requirements(selector))
        ),
        stop_policy=StopPolicy(words.take("stop", "None")),
        admission_checks=tuple(
            AdmissionCheckRule(check, tuple(flavors or ()))
            for check, flavors in words.take("checks", {}).items()
        ),
        flavor_fungibility=FlavorFungibility(
            FlavorFungibilityPolicy(words.take("whenCanBorrow", "MayStopSearch")),
            FlavorFungibilityPolicy(words.take("whenCanPreempt", "TryNextFlavor")),
            None if preference is None else FlavorFungibilityPreference(preference),
        ),
        preemption=preemption(words.take("preemption")),
        fair_weight=weight(words.take("weight")),
        usage_based_admission=words.take("usageBased", False),
        terminating=words.take("terminating", False),
    )
    words.end()
    return queue


def cohort(name: str, raw: Any) -> Cohort:
    words = Words(raw or {}, f"cohort {name}")
    result = Cohort(
        name, words.take("parent"), groups(words.take("quota")), fair_weight=weight(words.take("weight"))
    )
    words.end()
    return result


def admission_check(name: str, raw: Any) -> AdmissionCheck:
    words = Words(raw or {}, f"check {name}")
    result = AdmissionCheck(name, words.take("controller", "example.com/check"), words.take("active", True))
    words.end()
    return result


def local_queue(name: str, raw: Any) -> LocalQueue:
    words = Words(raw if isinstance(raw, Mapping) else {"clusterQueue": raw}, f"localQueue {name}")
    consumed = words.take("consumed")
    queue = LocalQueue(
        key_of(name),
        words.take("clusterQueue"),
        stop_policy=StopPolicy(words.take("stop", "None")),
        fair_weight=weight(words.take("weight")),
        consumed=(
            None
            if consumed is None
            else ConsumedResources(
                amounts({of: parse_amount(of, value) for of, value in consumed.items()}), BEGINNING
            )
        ),
        terminating=words.take("terminating", False),
    )
    words.end()
    return queue


def flavor(name: str, raw: Any) -> ResourceFlavor:
    words = Words(raw or {}, f"flavor {name}")
    result = ResourceFlavor(
        name,
        labels(words.take("labels")),
        tuple(taint(each) for each in words.take("taints", [])),
        tuple(toleration(each) for each in words.take("tolerations", [])),
        words.take("topology"),
    )
    words.end()
    return result


def limit_range(name: str, raw: Any) -> LimitRange:
    """``{Container: {max, min, default, defaultRequest}, Pod: {max, min}}``."""

    def item(of: str, bounds: Any) -> LimitRangeItem:
        words = Words(bounds, f"limitRange {name}")
        maximum, minimum, limits, requests = (
            exact(words.take(word)) for word in ("max", "min", "default", "defaultRequest")
        )
        words.end()
        return LimitRangeItem(LimitedType(of), maximum, minimum, limits, requests)

    return LimitRange(tuple(item(of, bounds) for of, bounds in cast("JsonObject", raw).items()))


# --- pods -----------------------------------------------------------------------------------------------


def container(raw: Any) -> ContainerResources:
    """Requests by resource; ``limits``, and ``restartable`` of an init container."""
    words = Words(raw, "container")
    limits, restartable = exact(words.take("limits")), words.take("restartable", False)
    return ContainerResources(exact(words.rest()), limits, restartable)


def pod_set(name: str, raw: Any) -> PodSet:
    """Return the requests of the only container: all fields beside the known ones."""
    words = Words(raw, f"podset {name}")
    affinity, overhead = words.take("affinity"), words.take("overhead")
    pod_level = Words(words.take("pod", {}), f"podset {name}")
    pod_limits, pod_requests = exact(pod_level.take("limits")), exact(pod_level.rest())
    fixed: dict[str, Any] = {
        "count": words.take("count", 1),
        "min_count": words.take("minCount"),
        "group": words.take("group"),
        "node_selector": labels(words.take("nodeSelector")),
        "tolerations": tuple(toleration(each) for each in words.take("tolerates", [])),
        "required_node_affinity": (
            None if affinity is None else tuple(NodeSelectorTerm(requirements(term)) for term in affinity)
        ),
    }
    init_containers = tuple(container(each) for each in words.take("initContainers", ()))
    runtime_class = words.take("runtimeClass")
    containers = words.take("containers")
    rest = words.rest()
    if containers is not None and rest:
        raise StoryError(f"podset {name}: unknown words {sorted(rest)}")
    template = PodTemplate(
        tuple(container(each) for each in (containers or [rest])),
        init_containers,
        pod_requests,
        pod_limits,
        None if overhead is None else exact(overhead),
        runtime_class,
    )
    return PodSet(name, template=template, **fixed)


# --- settings -------------------------------------------------------------------------------------------


def transformation(raw: Any) -> Transformation:
    words = Words(raw, "transformation")
    strategy = words.take("strategy", "Retain")
    if strategy not in ("Retain", "Replace"):
        raise StoryError(f"transformation: unknown strategy {strategy}")
    result = Transformation(
        words.take("input"),
        tuple(
            TransformationOutput(to, parse_quantity(factor))
            for to, factor in words.take("outputs", {}).items()
        ),
        retain=strategy == "Retain",
        multiply_by=words.take("multiplyBy"),
    )
    words.end()
    return result


def resources(raw: Any) -> Resources:
    words = Words(raw or {}, "resources")
    strategy = words.take("quotaCheckStrategy", "BlockUndeclared")
    if strategy not in ("BlockUndeclared", "IgnoreUndeclared"):
        raise StoryError(f"resources: unknown quotaCheckStrategy {strategy}")
    result = Resources(
        ignore_undeclared=strategy == "IgnoreUndeclared",
        excluded_prefixes=tuple(words.take("excludeResourcePrefixes", ())),
        transformations=tuple(transformation(each) for each in words.take("transformations", ())),
    )
    words.end()
    return result


def admission_fair_sharing(raw: Any) -> AdmissionFairSharing:
    """Durations in seconds."""
    words = Words(raw, "admissionFairSharing")
    default = AdmissionFairSharing()
    half_life, sampling = words.take("usageHalfLifeTime"), words.take("usageSamplingInterval")
    result = AdmissionFairSharing(
        default.half_life if half_life is None else half_life * SECOND,
        default.sampling_interval if sampling is None else sampling * SECOND,
        exact(words.take("resourceWeights")),
    )
    words.end()
    return result


def gates(raw: Any) -> Gates:
    """By the names of the gates."""
    named = {
        re.sub(r"(?<!^)(?=[A-Z])", "_", gate).lower(): value
        for gate, value in cast("JsonObject", raw).items()
    }
    return replace(Gates(), **named)


def settings(raw: Any) -> Settings:
    words = Words(raw, "settings")
    fair_sharing = words.take("fairSharing")
    usage_based = words.take("admissionFairSharing")
    result = Settings(
        multikueue_controller=words.take("multikueueController", ""),
        provisioning_controller=words.take("provisioningController", ""),
        fair_sharing=(
            None
            if fair_sharing is None
            else FairSharing(tuple(PreemptionStrategy(each) for each in fair_sharing))
        ),
        admission_fair_sharing=None if usage_based is None else admission_fair_sharing(usage_based),
        resources=resources(words.take("resources")),
        block_admission=words.take("blockAdmission", False),
        gates=gates(words.take("gates", {})),
    )
    words.end()
    return result

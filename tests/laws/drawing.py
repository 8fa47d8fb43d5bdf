"""Draw objects of every kind for small, crowded clusters: few names, little quota, many conflicts.

Amounts are small integers (CPU in milli-CPU, so that a container requests thousandths of a core).
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from admitq.core import events as happened
from admitq.core.amounts import amounts
from admitq.core.model import (
    SECOND,
    AdmissionCheck,
    AdmissionCheckRule,
    BorrowWithinCohort,
    CheckState,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    ContainerResources,
    ExactAmounts,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorFungibilityPreference,
    FlavorQuotas,
    Instant,
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
    ResourceProblem,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Taint,
    Toleration,
    Workload,
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
from admitq.core.topology.domains import HOST_NAME, PODS, Node
from admitq.core.topology.request import SliceLayer, TopologyRequest
from admitq.core.topology.rules import PlacementRules
from admitq.core.topology.topologies import PodOnNode

QUEUES = ("a", "b", "c", "d", "e")
COHORTS = ("w", "x", "y", "z")
FLAVORS = ("f1", "f2", "f3")
NAMESPACES = ("n1", "n2")
LOCAL_QUEUES = tuple(ObjectKey(namespace, name) for namespace in NAMESPACES for name in ("l1", "l2"))
WORKLOADS = tuple(ObjectKey(namespace, f"w{n}") for namespace in NAMESPACES for n in range(9))
CHECKS = ("check", "other")
RUNTIME_CLASSES = ("sandboxed",)
TOPOLOGY = "racks"
NODES = ("h1", "h2", "h3", "h4", "h5", "h6")
PODS_OF_OTHERS = tuple(ObjectKey("others", f"p{n}") for n in range(6))

TEAM_BLUE = LabelSelector((SelectorRequirement("team", SelectorOperator.IN, ("blue",)),))
NOT_RED = LabelSelector((SelectorRequirement("team", SelectorOperator.NOT_IN, ("red",)),))
SPOT = Taint("spot", "", "NoSchedule")

IN_TWO_POOLS = NodeSelectorTerm((SelectorRequirement("pool", SelectorOperator.IN, ("f2", "f3")),))

T = TypeVar("T")


def exact(**amounts: int) -> ExactAmounts:
    """Return amounts as a pod states them, from amounts in the units of quota."""
    return tuple(
        sorted((name, Fraction(amount, 1000 if name == "cpu" else 1)) for name, amount in amounts.items())
    )


def requesting(**amounts: int) -> PodTemplate:
    """Return a pod with one container that requests these amounts."""
    return PodTemplate((ContainerResources(exact(**amounts)),))


_USUAL_TEMPLATES = (
    *(requesting(cpu=amount) for amount in (1, 1, 1, 2, 2, 2, 3, 3, 4)),
    requesting(cpu=1, mem=1),
    requesting(cpu=2, mem=1),
    requesting(cpu=1, gpu=1),
)

_ODD_TEMPLATES = (
    requesting(),
    requesting(cpu=0),
    requesting(cpu=1, disk=1),
    requesting(cpu=1, disk=0),
    PodTemplate(),
    PodTemplate((ContainerResources(limits=exact(cpu=2)),)),
    PodTemplate((ContainerResources(),)),
    PodTemplate((ContainerResources(exact(cpu=1)), ContainerResources(exact(mem=1), exact(cpu=1)))),
    PodTemplate((ContainerResources(exact(cpu=1)),), (ContainerResources(exact(cpu=2)),)),
    PodTemplate(
        (ContainerResources(exact(cpu=1)),),
        (ContainerResources(exact(cpu=1), restartable=True), ContainerResources(exact(cpu=2))),
    ),
    PodTemplate((ContainerResources(exact(cpu=1)),), requests=exact(cpu=2)),
    PodTemplate((ContainerResources(exact(cpu=1)),), limits=exact(cpu=3)),
    PodTemplate((ContainerResources(exact(cpu=1)),), runtime_class="sandboxed"),
    PodTemplate((ContainerResources(exact(cpu=1)),), overhead=exact(cpu=1), runtime_class="sandboxed"),
    PodTemplate((ContainerResources(exact(cpu=3), exact(cpu=2)),)),
    PodTemplate((ContainerResources((("cpu", Fraction(1, 3000)),)),)),
)

_TRANSFORMATIONS = (
    Transformation("gpu", (TransformationOutput("cpu", Fraction(1, 500)),)),
    Transformation("disk", (TransformationOutput("mem", Fraction(1)),), retain=False),
    Transformation("mem", (TransformationOutput("gpu", Fraction(1, 3)),), retain=False),
    Transformation("cpu", (TransformationOutput("mem", Fraction(500)),), multiply_by="gpu"),
    Transformation("gpu", (TransformationOutput("cpu", Fraction(-1, 1000)),)),
)

_STRATEGIES = (
    tuple(PreemptionStrategy),
    (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,),
    (PreemptionStrategy.LESS_THAN_INITIAL_SHARE,),
)

_POLICIES = ("Never", "LowerPriority", "LowerPriority", "Any", "Any")
_OWN_POLICIES = ("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")


class Draw(random.Random):
    """A random source that draws objects. The same seed draws the same objects.

    If it is *crowded*, nearly everything is in one cohort and contends for one flavor. If it is *placed*,
    flavors have topologies, and the core assigns pods to the domains of these. If it is *peaceful*, no
    ClusterQueue preempts.
    """

    crowded = False
    placed = False
    peaceful = False

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability

    def often(self, usual: T, *others: T) -> T:
        """Draw the usual value four times out of five."""
        return usual if self.chance(0.8) else self.choice(others)

    def mostly(self, usual: T, *others: T) -> T:
        """Draw the usual value nineteen times out of twenty."""
        return usual if self.chance(0.95) else self.choice(others)

    def some(self, of: Sequence[T], probability: float = 0.6) -> list[T]:
        """Draw a part of the values, in order."""
        return [each for each in of if self.chance(probability)]

    # --- configuration ----------------------------------------------------------------------------

    def settings(self) -> CoreSettings:
        """Draw a configuration."""
        if self.placed:
            return self.settings_with_placement()
        return CoreSettings(
            fair_sharing=FairSharing(self.choice(_STRATEGIES)) if self.chance(0.4) else None,
            admission_fair_sharing=self.admission_fair_sharing() if self.chance(0.25) else None,
            resources=self.resources(),
            block_admission=self.chance(0.06),
            gates=self.gates(),
        )

    def settings_with_placement(self) -> CoreSettings:
        """Draw a configuration with which pods are placed."""
        return CoreSettings(
            fair_sharing=FairSharing() if self.chance(0.2) else None,
            block_admission=self.chance(0.15),
            placement=Placement(
                shares_hosts=self.often(True, False),
                rules=PlacementRules(
                    small_gaps_first=self.often(True, False),
                    balanced=self.often(False, True),
                    prefers_nodes=self.often(False, True),
                ),
                places_again=self.often(True, False),
                replaces_hosts=self.mostly(True, False),
                evicts_unplaced=self.often(True, False),
                leaves_single_pods=self.often(True, False),
            ),
        )

    def admission_fair_sharing(self) -> AdmissionFairSharing:
        """Draw how past usage counts."""
        half_life = self.choice((0, 10, 100)) * SECOND
        weights = self.choice(((), (("cpu", Fraction(2)),), (("cpu", Fraction(0)), ("mem", Fraction(1, 2)))))
        return AdmissionFairSharing(half_life, 5 * SECOND, weights)

    def resources(self) -> Resources:
        """Draw how requests are counted: uncovered resources are excluded, ignored or refused."""
        if self.chance(0.6):
            return Resources()
        ignore = self.chance(0.4)
        return Resources(
            ignore_undeclared=ignore,
            excluded_prefixes=() if ignore or self.chance(0.5) else ("di",),
            transformations=tuple(self.some(_TRANSFORMATIONS, 0.25)),
        )

    def gates(self) -> Gates:
        """Draw feature gates, mostly the defaults."""
        if self.chance(0.6):
            return Gates()
        return Gates(
            partial_admission=self.often(True, False),
            flavor_fungibility=self.often(True, False),
            flavor_fungibility_preserve_scan_progress=self.often(True, False),
            priority_sorting_within_cohort=self.often(True, False),
            fair_sharing_preempt_within_nominal=self.often(True, False),
            fair_sharing_prioritize_non_borrowing=self.often(True, False),
            admission_fair_sharing=self.often(True, False),
            reclaimable_pods=self.often(True, False),
            recompute_assignment_upon_preemption_targets_overlap=self.often(True, False),
            prioritize_preemptor_workloads=self.often(False, True),
            quota_check_strategy=self.often(True, False),
            scheduling_equivalence_hashing=self.often(True, False),
        )

    # --- quota ------------------------------------------------------------------------------------

    def quota(self) -> ResourceQuota:
        """Draw a small quota, mostly without limits."""
        if self.placed:
            return ResourceQuota(self.randint(2, 8), self.often(None, 2), self.mostly(None, 2))
        if self.crowded:
            unlimited = self.often(None, 1, 2)
            return ResourceQuota(self.choice((1, 2, 3, 4)), unlimited, self.mostly(None, 1, 2))
        limits = (None, None, None, None, 0, 1, 2, 4)
        return ResourceQuota(self.choice((0, 1, 2, 3, 4, 5, 6)), self.choice(limits), self.choice(limits))

    def groups(self) -> tuple[ResourceGroup, ...]:
        """Draw a group of CPU with up to three flavors, and sometimes a second group of GPUs."""
        if self.crowded:
            names = self.often(("f1",), ("f1", "f2"))
            return (ResourceGroup(("cpu",), tuple(self.flavor_quotas(name, ("cpu",)) for name in names)),)
        covered = self.choice((("cpu",), ("cpu",), ("cpu", "mem"), ("cpu", "mem"), ("cpu", "pods")))
        names = self.choice((("f1",), ("f1",), ("f1", "f2"), ("f2", "f1"), ("f1", "f2", "f3")))
        groups = [ResourceGroup(covered, tuple(self.flavor_quotas(name, covered) for name in names))]
        rest = [name for name in FLAVORS if name not in names]
        if rest and self.chance(0.4):
            groups.append(ResourceGroup(("gpu",), tuple(self.flavor_quotas(name, ("gpu",)) for name in rest)))
        return tuple(groups)

    def flavor_quotas(self, name: str, resources: tuple[str, ...]) -> FlavorQuotas:
        """Draw the quotas of one flavor."""
        return FlavorQuotas(name, tuple((resource, self.quota()) for resource in resources))

    def weight(self) -> Fraction:
        """Draw a weight, rarely 0."""
        return self.often(Fraction(1), Fraction(2), Fraction(1, 2), Fraction(0))

    def preemption(self) -> ClusterQueuePreemption:
        """Draw a preemption policy; borrowing while preempting requires reclaiming."""
        if self.peaceful:
            return ClusterQueuePreemption()
        reclaim = self.choice(_POLICIES)
        borrow = self.choice(("Never", "LowerPriority")) if reclaim != "Never" else "Never"
        threshold = self.choice((None, 0, 1, 2)) if borrow != "Never" else None
        return ClusterQueuePreemption(
            PreemptionPolicy(reclaim),
            PreemptionPolicy(self.choice(_OWN_POLICIES)),
            BorrowWithinCohort(PreemptionPolicy(borrow), threshold),
        )

    def fungibility(self) -> FlavorFungibility:
        """Draw how flavors are searched; a preference only where both policies are TryNextFlavor."""
        borrow = self.choice(("MayStopSearch", "MayStopSearch", "TryNextFlavor"))
        preempt = self.choice(("TryNextFlavor", "TryNextFlavor", "MayStopSearch"))
        preference = None
        if borrow == preempt == "TryNextFlavor":
            preference = self.choice((None, "BorrowingOverPreemption", "PreemptionOverBorrowing"))
        return FlavorFungibility(
            FlavorFungibilityPolicy(borrow),
            FlavorFungibilityPolicy(preempt),
            None if preference is None else FlavorFungibilityPreference(preference),
        )

    def selector(self) -> LabelSelector | None:
        """Draw a namespace selector, mostly of all namespaces."""
        return self.often(LabelSelector(), TEAM_BLUE, NOT_RED, self.choice((TEAM_BLUE, None)))

    def stop_policy(self) -> StopPolicy:
        """Draw a stop policy, mostly none."""
        if self.chance(0.95):
            return StopPolicy.NONE
        return self.choice((StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN))

    def check_rules(self) -> tuple[AdmissionCheckRule, ...]:
        """Draw admission checks, mostly none."""
        if self.chance(0.9):
            return ()
        return tuple(
            AdmissionCheckRule(name, self.choice(((), ("f1",), ("f2",)))) for name in self.some(CHECKS)
        )

    def cluster_queue(self, name: str, now: Instant = 0) -> ClusterQueue:
        """Draw a ClusterQueue, mostly in a cohort, with the present or an unknown time of creation."""
        return ClusterQueue(
            name,
            cohort=self.often("w", "x")
            if self.crowded
            else self.choice((*COHORTS, "w", "w", "x", "x", None)),
            resource_groups=self.groups(),
            queueing_strategy=self.often(QueueingStrategy.BEST_EFFORT_FIFO, QueueingStrategy.STRICT_FIFO),
            namespace_selector=self.selector(),
            stop_policy=self.stop_policy(),
            admission_checks=self.check_rules(),
            flavor_fungibility=self.fungibility(),
            preemption=self.preemption(),
            fair_weight=self.weight(),
            usage_based_admission=self.chance(0.4),
            terminating=self.chance(0.02),
            created_at=self.choice((0, now)) if now else 0,
        )

    def cohort(self, name: str) -> Cohort:
        """Draw a cohort, sometimes with a parent, rarely in a cycle."""
        groups = self.groups() if self.chance(0.1 if self.crowded else 0.4) else ()
        above = COHORTS if self.chance(0.1) else COHORTS[COHORTS.index(name) + 1 :]
        return Cohort(name, self.choice((None, *above)), groups, self.weight())

    def local_queue(self, key: ObjectKey) -> LocalQueue:
        """Draw a LocalQueue."""
        return LocalQueue(
            key,
            self.choice(QUEUES),
            stop_policy=self.stop_policy(),
            fair_weight=self.weight(),
            terminating=self.chance(0.02),
        )

    # --- what ClusterQueues refer to --------------------------------------------------------------

    def flavor(self, name: str) -> ResourceFlavor:
        """Draw a flavor, mostly without taints."""
        return ResourceFlavor(
            name,
            self.choice(((), (("pool", name),), (("pool", name), ("zone", "one")))),
            () if self.crowded else self.often((), (SPOT,), (Taint("old", "", "PreferNoSchedule"),)),
            self.mostly((), (Toleration("spot", "Exists"),)),
            self.often(TOPOLOGY, None) if self.placed else self.mostly(None, TOPOLOGY),
        )

    def topology(self) -> happened.TopologyChanged:
        """Draw the levels of the topology; without placement they do not matter."""
        if not self.placed:
            return happened.TopologyChanged(TOPOLOGY)
        levels = self.often(
            ("rack", HOST_NAME), ("block", "rack"), ("block", "rack", HOST_NAME), (HOST_NAME,)
        )
        return happened.TopologyChanged(TOPOLOGY, levels)

    def node(self, name: str) -> Node:
        """Draw a node, mostly in the rack of its name, ready, schedulable and without taints."""
        number = NODES.index(name)
        rack = self.mostly(f"r{number // 2}", "r0", "r1", None)
        labels = {
            "block": f"b{number // 4}",
            "rack": rack,
            HOST_NAME: name,
            "pool": self.often("f1", "f2"),
            "zone": "one",
        }
        return Node(
            name,
            tuple(sorted((key, value) for key, value in labels.items() if value is not None)),
            self.mostly((), (SPOT,)),
            amounts(
                {"cpu": self.randint(0, 6), "mem": self.randint(0, 3), "gpu": 1, PODS: self.randint(1, 6)}
            ),
            ready=self.mostly(True, False),
            schedulable=self.mostly(True, False),
        )

    def pod_of_others(self) -> PodOnNode:
        """Draw a pod that belongs to no workload, on a node that need not exist."""
        return PodOnNode(self.choice(NODES), amounts({"cpu": self.randint(0, 2)}))

    def topology_request(self, count: int) -> TopologyRequest | None:
        """Draw a request, sometimes of levels that the topology does not have."""
        level = self.often("rack", "block", HOST_NAME)
        slices = (SliceLayer(self.often(HOST_NAME, "rack"), self.randint(1, max(1, count))),)
        return self.choice(
            (
                None,
                TopologyRequest(required=level),
                TopologyRequest(required=level),
                TopologyRequest(preferred=level),
                TopologyRequest(unconstrained=True),
                TopologyRequest(required=level, slices=slices),
                TopologyRequest(slices=slices),
            )
        )

    def check(self, name: str) -> AdmissionCheck:
        """Draw an admission check, mostly active."""
        return AdmissionCheck(name, "controller", self.chance(0.9))

    def limit_range(self) -> LimitRange:
        """Draw bounds and defaults that some of the templates meet."""
        items = (
            LimitRangeItem(LimitedType.CONTAINER, maximum=exact(cpu=3)),
            LimitRangeItem(LimitedType.CONTAINER, maximum=exact(cpu=2, mem=4)),
            LimitRangeItem(LimitedType.CONTAINER, minimum=exact(cpu=1)),
            LimitRangeItem(LimitedType.CONTAINER, default_requests=exact(cpu=1)),
            LimitRangeItem(LimitedType.CONTAINER, default_requests=exact(mem=1), default_limits=exact(mem=2)),
            LimitRangeItem(LimitedType.POD, maximum=exact(cpu=3)),
            LimitRangeItem(LimitedType.POD, minimum=exact(cpu=1)),
        )
        return LimitRange(tuple(self.some(items, 0.25)))

    # --- workloads --------------------------------------------------------------------------------

    def template(self) -> PodTemplate:
        """Draw a pod template."""
        if self.crowded and self.chance(0.95):
            return requesting(cpu=self.choice((1, 1, 2, 2, 3)))
        return self.choice(_USUAL_TEMPLATES if self.chance(0.92) else _ODD_TEMPLATES)

    def pod_set(self, name: str, group: str | None) -> PodSet:
        """Draw a podset."""
        count = self.mostly(self.choice((1, 1, 1, 2, 2, 3)), 0)
        return PodSet(
            name,
            count,
            self.template(),
            min_count=self.choice((1, max(1, count - 1))) if count > 1 and self.chance(0.35) else None,
            group=group,
            node_selector=self.mostly((), (("pool", "f1"),), (("pool", "f2"),), (("rack", "r1"),)),
            required_node_affinity=self.mostly(None, (IN_TWO_POOLS,)),
            tolerations=self.often((), (Toleration("spot", "Exists"),)),
        )

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Draw one or two podsets, sometimes of one group; at most one has a ``min_count``."""
        if self.placed:
            return self.placed_pod_sets()
        if self.chance(0.95 if self.crowded else 0.7):
            return (self.pod_set("main", None),)
        group = "together" if self.chance(0.3) else None
        first, second = self.pod_set("main", group), self.pod_set("workers", group)
        if first.min_count is not None and second.min_count is not None:
            second = PodSet(second.name, second.count, second.template, group=group)
        return first, second

    def placed_pod_sets(self) -> tuple[PodSet, ...]:
        """Draw one or two podsets with requests of a topology. Of a group, the first has one pod."""
        main = self.pod_set("main", None)
        main = replace(
            main,
            topology_request=self.topology_request(main.count),
            preferred_node_affinity=self.often((), (PreferredTerm(2, IN_TWO_POOLS),)),
        )
        if self.chance(0.8):
            return (main,)
        if self.chance(0.5):
            other = replace(self.pod_set("other", None), min_count=None)
            return main, replace(other, topology_request=self.topology_request(other.count))
        request = self.choice((TopologyRequest(required="rack"), TopologyRequest(preferred="rack")))
        leader = replace(main, count=1, min_count=None, group="together", topology_request=request)
        workers = replace(self.pod_set("workers", "together"), min_count=None, topology_request=request)
        return leader, replace(workers, count=max(1, workers.count))

    def grown(self, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        """Return the podsets with more pods; podsets of elastic jobs have no ``min_count``."""
        return tuple(
            replace(each, count=each.count + self.choice((0, 1, 1, 2)), min_count=None) for each in pod_sets
        )

    def shrunk(self, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        """Return the podsets with as many pods or fewer."""
        return tuple(replace(each, count=self.randint(0, each.count), min_count=None) for each in pod_sets)

    def queued_at(self, now: Instant) -> Instant:
        """Return the present time; three times in ten a time that many workloads share."""
        return now // (8 * SECOND) * 8 * SECOND if self.chance(0.3) else now

    def workload(self, key: ObjectKey, uid: str, now: Instant) -> Workload:
        """Draw a new workload."""
        return Workload(
            key,
            uid,
            self.mostly(self.choice(("l1", "l2")), "nowhere"),
            self.queued_at(now),
            self.pod_sets(),
            self.choice((0, 0, 1, 2, 3)),
            has_closed_preemption_gate=self.chance(0.04),
            admission_checks=(("check", CheckState.READY), ("other", CheckState.READY))
            if self.chance(0.5)
            else (),
            resource_problems=(ResourceProblem("f", "d"),) if self.chance(0.01) else (),
            is_single_pod=self.placed and self.chance(0.1),
        )

"""Requests of podsets, computed from their pod templates."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.amounts import UNLIMITED
from admitq.core.limit_ranges import NamespaceLimits
from admitq.core.model import (
    ContainerResources,
    ExactAmounts,
    PodSet,
    PodTemplate,
)
from admitq.core.refusals import Bound, OutOfBounds
from admitq.core.requests import RequestRules, demands, pod_requests, resolve, template_requesting
from admitq.core.settings import Resources, Transformation, TransformationOutput
from tests.unit.core.fractions_drawn import fractions

CONTAINER = "spec.podSets[0].template.spec.containers[0].resources.requests"


def exact(**of: float | Fraction) -> ExactAmounts:
    return tuple(sorted((resource, Fraction(amount)) for resource, amount in of.items()))


def cpu(amount: float) -> ContainerResources:
    return ContainerResources(exact(cpu=amount))


def sidecar(amount: float) -> ContainerResources:
    return ContainerResources(exact(cpu=amount), restartable=True)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(PodTemplate(), exact(), id="no request"),
        pytest.param(PodTemplate((cpu(1), cpu(2))), exact(cpu=3), id="containers run together"),
        pytest.param(
            PodTemplate((cpu(1),), (cpu(5), cpu(4))),
            exact(cpu=5),
            id="init containers run in sequence",
        ),
        pytest.param(PodTemplate((cpu(4),), (cpu(3),)), exact(cpu=4), id="the larger phase counts"),
        pytest.param(
            PodTemplate((cpu(1),), (sidecar(2),)), exact(cpu=3), id="sidecar runs with the containers"
        ),
        pytest.param(
            PodTemplate((cpu(1),), (sidecar(2), cpu(5))),
            exact(cpu=7),
            id="sidecar runs with the init containers after it",
        ),
        pytest.param(
            PodTemplate((cpu(1),), (cpu(5), sidecar(2))),
            exact(cpu=5),
            id="sidecar does not run with the init containers before it",
        ),
        pytest.param(
            PodTemplate((cpu(1),), (sidecar(1), sidecar(2))), exact(cpu=4), id="several sidecars run together"
        ),
        pytest.param(
            PodTemplate((cpu(1),), overhead=exact(cpu=1, memory=7)),
            exact(cpu=2, memory=7),
            id="overhead is added",
        ),
        pytest.param(
            PodTemplate(
                (ContainerResources(exact(cpu=1, memory=2)),), requests=exact(cpu=9), overhead=exact(cpu=1)
            ),
            exact(cpu=10, memory=2),
            id="pod-level request replaces those of containers, and overhead is added",
        ),
        pytest.param(
            PodTemplate((cpu(1),), limits=exact(cpu=4)),
            exact(cpu=4),
            id="pod-level limit is used without pod-level request",
        ),
        pytest.param(
            PodTemplate((cpu(1),), requests=exact(cpu=2), limits=exact(cpu=4)),
            exact(cpu=2),
            id="pod-level limit is not used with pod-level request",
        ),
        pytest.param(
            PodTemplate(
                (ContainerResources(limits=exact(cpu=2)),), (ContainerResources(limits=exact(cpu=3)),)
            ),
            exact(cpu=3),
            id="limits are used for containers and init containers without request",
        ),
        pytest.param(
            PodTemplate((ContainerResources(exact(cpu=0), exact(cpu=2)),)),
            exact(cpu=0),
            id="limit is not used with request of 0",
        ),
        pytest.param(
            PodTemplate((cpu(1), ContainerResources(exact(gpu=1))), (ContainerResources(exact(disk=3)),)),
            exact(cpu=1, disk=3, gpu=1),
            id="resources are independent",
        ),
        pytest.param(
            PodTemplate((cpu(-5), cpu(3)), (cpu(-9),), requests=exact(memory=-1), overhead=exact(cpu=-1)),
            exact(cpu=3, memory=0),
            id="negative amounts count as 0",
        ),
    ],
)
def test_request_of_pod_follows_kubernetes_rules(template: PodTemplate, expected: ExactAmounts) -> None:
    assert pod_requests(template) == expected


OVERHEADS = RequestRules(overheads=(("kata", exact(cpu=2)),))


@pytest.mark.parametrize(
    ("runtime_class", "stated", "expected"),
    [
        ("kata", None, exact(cpu=3)),
        ("kata", exact(cpu=1), exact(cpu=2)),
        ("kata", exact(), exact(cpu=1)),
        ("unknown", None, exact(cpu=1)),
        (None, None, exact(cpu=1)),
    ],
    ids=["of the class", "as stated", "stated as empty", "unknown class", "no class"],
)
def test_overhead_of_runtime_class_is_used_when_template_states_none(
    runtime_class: str | None, stated: ExactAmounts | None, expected: ExactAmounts
) -> None:
    template = PodTemplate((cpu(1),), overhead=stated, runtime_class=runtime_class)
    assert pod_requests(template, OVERHEADS) == expected


DEFAULTS = RequestRules(
    limits=NamespaceLimits(default_limits=exact(cpu=4, memory=8), default_requests=exact(cpu=3))
)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (ContainerResources(), exact(cpu=3, memory=8)),
        (ContainerResources(exact(cpu=1)), exact(cpu=1, memory=8)),
        (ContainerResources(limits=exact(cpu=2)), exact(cpu=2, memory=8)),
        (ContainerResources(exact(gpu=1)), exact(cpu=3, gpu=1, memory=8)),
    ],
    ids=["nothing stated", "request stated", "limit stated", "other resources"],
)
def test_defaults_of_namespace_are_used_for_what_container_does_not_state(
    container: ContainerResources, expected: ExactAmounts
) -> None:
    assert pod_requests(PodTemplate((container,)), DEFAULTS) == expected
    assert pod_requests(PodTemplate((), (container,)), DEFAULTS) == expected


@pytest.mark.parametrize(
    ("count", "reclaimable", "left", "total"),
    [(4, 0, 4, 8), (4, 1, 3, 6), (4, 4, 0, 0), (4, 9, 0, 0), (0, 0, 0, 0)],
)
def test_demand_of_podset_excludes_reclaimable_pods(
    count: int, reclaimable: int, left: int, total: int
) -> None:
    pod_sets = (PodSet("main", count, template_requesting({"cpu": 2})),)
    (demand,) = demands(pod_sets, (("main", reclaimable),))
    assert (demand.count, demand.totals) == (left, (("cpu", total),))


@pytest.mark.parametrize(("count", "reclaimable"), [(4, 0), (4, 1), (4, 4), (4, 9), (0, 0)])
def test_demand_of_podset_includes_reclaimable_pods_when_gate_is_off(count: int, reclaimable: int) -> None:
    pod_sets = (PodSet("main", count, template_requesting({"cpu": 2})),)
    (demand,) = demands(pod_sets, (("main", reclaimable),), RequestRules(reclaimable_pods=False))
    assert demand.count == count


def test_reclaimable_pods_are_subtracted_from_their_podset() -> None:
    pod_sets = (
        PodSet("a", 2, template_requesting({"cpu": 1})),
        PodSet("b", 2, template_requesting({"cpu": 1})),
    )
    podset_demands = demands(pod_sets, (("b", 1), ("unknown", 5)))
    assert [each.count for each in podset_demands] == [2, 1]


@pytest.mark.parametrize(
    ("amount", "count", "totals"),
    [
        (exact(cpu=Fraction(1, 2)), 3, (("cpu", 1500),)),
        (exact(cpu=Fraction(1, 3000)), 1, (("cpu", 1),)),
        (exact(cpu=Fraction(1, 3000)), 4, (("cpu", 4),)),
        (exact(memory=Fraction(3, 2)), 3, (("memory", 6),)),
        (exact(memory=Fraction(1, 1000)), 0, (("memory", 0),)),
        (exact(memory=2**63), 1, (("memory", UNLIMITED),)),
    ],
)
def test_request_of_pod_is_rounded_up_before_multiplication_by_count(
    amount: ExactAmounts, count: int, totals: tuple[tuple[str, int], ...]
) -> None:
    (demand,) = demands((PodSet("main", count, PodTemplate((ContainerResources(amount),))),))
    assert demand.totals == totals


def test_demand_scales_to_fewer_pods() -> None:
    (demand,) = demands((PodSet("main", 10, PodTemplate((ContainerResources(exact(memory=1.5)),))),))
    assert demand.totals == (("memory", 20),)
    assert demand.for_pods(10) is demand
    assert (demand.for_pods(3).count, demand.for_pods(3).totals) == (3, (("memory", 6),))


def test_configuration_excludes_and_transforms_resources() -> None:
    as_credits = Transformation("cpu", (TransformationOutput("credits", Fraction(10)),), retain=False)
    rules = RequestRules(Resources(excluded_prefixes=("example.com/",), transformations=(as_credits,)))
    pod_sets = (PodSet("main", 2, template_requesting({"cpu": 150, "example.com/nic": 1, "memory": 3})),)
    (demand,) = demands(pod_sets, (), rules)
    assert demand.totals == (("credits", 4), ("memory", 6))


def test_demands_of_equal_podsets_are_computed_once() -> None:
    first, second = ((PodSet("main", 2, template_requesting({"cpu": 1})),) for _ in range(2))
    assert first == second
    assert first is not second
    assert hash(first) == hash(second)
    assert demands(first) is demands(second)


def limited(limits: ExactAmounts, requests: ExactAmounts = ()) -> ContainerResources:
    return ContainerResources(requests, limits)


@pytest.mark.parametrize(
    ("template", "limits", "problems"),
    [
        pytest.param(
            PodTemplate((limited(exact(cpu=1), exact(cpu=1)),)), NamespaceLimits(), (), id="at the limit"
        ),
        pytest.param(
            PodTemplate((limited(exact(cpu=1, memory=9), exact(cpu=2, memory=8)),)),
            NamespaceLimits(),
            (OutOfBounds(Bound.LIMIT, f"{CONTAINER}[cpu]", "cpu", Fraction(2), Fraction(1)),),
            id="above the limit",
        ),
        pytest.param(
            PodTemplate((), (limited(exact(cpu=1), exact(cpu=2)),), exact(cpu=4), exact(cpu=3)),
            NamespaceLimits(),
            (
                OutOfBounds(
                    Bound.LIMIT,
                    "spec.podSets[0].template.spec.initContainers[0].resources.requests[cpu]",
                    "cpu",
                    Fraction(2),
                    Fraction(1),
                ),
                OutOfBounds(
                    Bound.LIMIT,
                    "spec.podSets[0].template.spec.resources.requests[cpu]",
                    "cpu",
                    Fraction(4),
                    Fraction(3),
                ),
            ),
            id="in an init container and at the pod level",
        ),
        pytest.param(
            PodTemplate((cpu(5),)),
            NamespaceLimits(default_limits=exact(cpu=4)),
            (OutOfBounds(Bound.LIMIT, f"{CONTAINER}[cpu]", "cpu", Fraction(5), Fraction(4)),),
            id="above the limit that the namespace sets by default",
        ),
        pytest.param(
            PodTemplate((cpu(2), cpu(5)), (cpu(6),)),
            NamespaceLimits(
                container_maximum=exact(cpu=5, memory=1), container_minimum=exact(cpu=3, memory=1)
            ),
            (
                OutOfBounds(
                    Bound.MAXIMUM,
                    "spec.podSets[0].template.spec.initContainers[0].resources.requests[cpu]",
                    "cpu",
                    Fraction(6),
                    Fraction(5),
                ),
                OutOfBounds(Bound.MINIMUM, f"{CONTAINER}[cpu]", "cpu", Fraction(2), Fraction(3)),
            ),
            id="bounds for containers",
        ),
        pytest.param(
            PodTemplate((cpu(3),)),
            NamespaceLimits(container_maximum=exact(cpu=3), container_minimum=exact(cpu=3)),
            (),
            id="at the bounds",
        ),
        pytest.param(
            PodTemplate((cpu(2), cpu(2)), overhead=exact(cpu=1)),
            NamespaceLimits(pod_maximum=exact(cpu=4), pod_minimum=exact(cpu=6)),
            (
                OutOfBounds(
                    Bound.MAXIMUM,
                    "spec.podSets[0].template.spec.resources.requests[cpu]",
                    "cpu",
                    Fraction(5),
                    Fraction(4),
                ),
                OutOfBounds(
                    Bound.MINIMUM,
                    "spec.podSets[0].template.spec.resources.requests[cpu]",
                    "cpu",
                    Fraction(5),
                    Fraction(6),
                ),
            ),
            id="bounds for pods",
        ),
        pytest.param(
            PodTemplate((limited(exact(cpu=1), exact(cpu=2)),)),
            NamespaceLimits(container_maximum=exact(cpu=1)),
            (OutOfBounds(Bound.LIMIT, f"{CONTAINER}[cpu]", "cpu", Fraction(2), Fraction(1)),),
            id="limits are reported before LimitRanges",
        ),
    ],
)
def test_requests_out_of_bounds_are_reported_as_problems(
    template: PodTemplate, limits: NamespaceLimits, problems: tuple[OutOfBounds, ...]
) -> None:
    assert resolve((PodSet("main", 1, template),), (), RequestRules(limits=limits)).problems == problems


def test_output_of_transformation_that_overflows_is_unlimited() -> None:
    huge = Transformation("cpu", (TransformationOutput("credits", Fraction(2**62)),))
    rules = RequestRules(Resources(transformations=(huge,)))
    (demand,) = demands((PodSet("main", 1, template_requesting({"cpu": 9000})),), (), rules)
    assert dict(demand.totals) == {"cpu": 9000, "credits": UNLIMITED}


amounts_ = st.dictionaries(
    st.sampled_from(("cpu", "memory")), fractions(9, max_denominator=3), max_size=2
).map(lambda of: tuple(sorted(of.items())))
containers = st.builds(ContainerResources, requests=amounts_, limits=amounts_, restartable=st.booleans())
templates = st.builds(
    PodTemplate,
    containers=st.lists(containers, max_size=3).map(tuple),
    init_containers=st.lists(containers, max_size=4).map(tuple),
    requests=amounts_,
    limits=amounts_,
    overhead=st.none() | amounts_,
    runtime_class=st.none() | st.just("kata"),
)
rules = st.builds(
    RequestRules,
    limits=st.builds(NamespaceLimits, default_limits=amounts_, default_requests=amounts_),
    overheads=st.just((("kata", exact(cpu=Fraction(1, 4))),)),
)


@given(templates, rules)
def test_request_of_pod_is_maximum_over_all_moments(template: PodTemplate, rules: RequestRules) -> None:
    def amount_of(container: ContainerResources, resource: str) -> Fraction:
        sources = (
            container.requests,
            container.limits,
            rules.limits.default_requests,
            rules.limits.default_limits,
        )
        return next((dict(source)[resource] for source in sources if resource in dict(source)), Fraction())

    for resource in ("cpu", "memory"):
        moments = [Fraction()]
        for index, starting in enumerate(template.init_containers):
            running = [each for each in template.init_containers[:index] if each.restartable]
            moments.append(sum((amount_of(each, resource) for each in (*running, starting)), Fraction()))
        running = [each for each in template.init_containers if each.restartable]
        moments.append(
            sum((amount_of(each, resource) for each in (*running, *template.containers)), Fraction())
        )
        pod_level = {**dict(template.limits), **dict(template.requests)}
        overhead = template.overhead
        if overhead is None:
            overhead = dict(rules.overheads).get(template.runtime_class or "", ())
        expected = pod_level.get(resource, max(moments)) + dict(overhead).get(resource, 0)
        assert dict(pod_requests(template, rules)).get(resource, 0) == expected

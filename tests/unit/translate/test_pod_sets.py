"""Translation of podsets and of resource requests."""

from fractions import Fraction
from typing import Any

import pytest

from admitq.core.amounts import UNLIMITED
from admitq.core.model import (
    ContainerResources,
    NodeSelectorTerm,
    PodTemplate,
    PreferredTerm,
    ResourceProblem,
    SelectorOperator,
    SelectorRequirement,
    Toleration,
)
from admitq.core.requests import resolve
from admitq.translate.pod_sets import read_pod_set
from admitq.translate.workloads import read_workload
from admitq_api.stored_fields import MalformedField
from tests.unit.translate.builders import NAMES, container, workload


@pytest.mark.parametrize(
    ("pod", "requests"),
    [
        (container(cpu="500m", memory="1Gi"), {"cpu": 500, "memory": 2**30}),
        (container(limits={"cpu": "2"}), {"cpu": 2000}),
        (container(limits={"cpu": "2"}, cpu="1"), {"cpu": 1000}),
        ({**container(cpu="1"), "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
        ({**container(cpu="1"), "resources": {"requests": {"cpu": "4"}}}, {"cpu": 4000}),
        (
            {**container(cpu="1"), "initContainers": [{"resources": {"requests": {"cpu": "3"}}}]},
            {"cpu": 3000},
        ),
        (
            {
                **container(cpu="1"),
                "initContainers": [
                    {"restartPolicy": "Always", "resources": {"requests": {"cpu": "3"}}},
                ],
            },
            {"cpu": 4000},
        ),
    ],
    ids=["requests", "limits", "both", "overhead", "pod level", "init container", "sidecar"],
)
def test_requests_of_pod_are_computed_as_in_kubernetes(pod: dict[str, Any], requests: dict[str, int]) -> None:
    read = read_workload(workload(pod=pod), NAMES)
    resolved = resolve(read.pod_sets)
    assert {resource: amount // 2 for resource, amount in resolved.demands[0].totals} == requests
    assert (read.resource_problems, resolved.problems) == ((), ())


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (container(cpu="-1"), "containers[0].resources.requests[cpu]"),
        (container(cpu="lots"), "containers[0].resources.requests[cpu]"),
        (container(limits={"cpu": "-1"}), "containers[0].resources.limits[cpu]"),
        ({**container(), "overhead": {"cpu": "-1"}}, "template.spec.overhead[cpu]"),
        (
            {**container(), "resources": {"requests": {"cpu": ""}}},
            "spec.resources.requests[cpu]",
        ),
    ],
)
def test_invalid_request_is_a_problem_and_counts_as_zero(pod: dict[str, Any], field: str) -> None:
    read = read_workload(workload(pod=pod), NAMES)
    (problem,) = read.resource_problems
    assert field in problem.field
    assert dict(resolve(read.pod_sets).demands[0].totals) in ({}, {"cpu": 0})


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ("memory", "1e30"),
        ("memory", "8Ei"),
        ("cpu", "1E"),
        ("cpu", "9223372036854775807"),
        ("cpu", "1e99999"),
    ],
)
def test_c16_request_beyond_int64_is_unlimited(resource: str, text: str) -> None:
    pod = {"containers": [{"name": "c", "resources": {"requests": {resource: text}}}]}
    read = read_workload(workload(pod=pod), NAMES)
    assert read.resource_problems == ()
    assert dict(resolve(read.pod_sets).demands[0].totals)[resource] == UNLIMITED


def test_pod_template_is_read_with_all_resources_and_runtime_class() -> None:
    template = {
        "containers": [{"resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "1Gi"}}}, {}],
        "initContainers": [{"restartPolicy": "Always"}, {"resources": {"requests": {"cpu": "2"}}}],
        "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}},
        "runtimeClassName": "kata",
    }
    read = read_workload(workload(pod=template), NAMES).pod_sets[0].template
    assert read == PodTemplate(
        containers=(
            ContainerResources((("cpu", Fraction(3, 2)),), (("memory", Fraction(2**30)),)),
            ContainerResources(),
        ),
        init_containers=(
            ContainerResources(restartable=True),
            ContainerResources((("cpu", Fraction(2)),)),
        ),
        requests=(("cpu", Fraction(3)),),
        limits=(("cpu", Fraction(4)),),
        runtime_class="kata",
    )
    with_overhead = read_workload(workload(pod={**template, "overhead": {}}), NAMES).pod_sets[0].template
    assert with_overhead.overhead == ()


def test_podset_group_is_read() -> None:
    obj = workload()
    obj["spec"]["podSets"][0]["topologyRequest"] = {"podSetGroupName": "g"}
    assert read_workload(obj, NAMES).pod_sets[0].group == "g"


@pytest.mark.parametrize("containers", ["c", ["c"], [{"resources": []}], [{"resources": {"requests": []}}]])
def test_template_of_other_structure_is_malformed(containers: Any) -> None:
    with pytest.raises(MalformedField) as error:
        read_workload(workload(pod={"containers": containers}), NAMES)
    assert error.value.field.startswith("spec.podSets[0].template.spec.containers")


@pytest.mark.parametrize(
    ("amount", "other"),
    [("1G", "1000M"), ("1500m", "1.5"), ("1Ki", "1024"), ("1e3", "1k"), ("0.5Gi", "512Mi")],
)
def test_equal_amounts_in_different_notation_give_the_same_podsets(amount: str, other: str) -> None:
    first, second = (
        read_workload(workload(pod=container(memory=text)), NAMES).pod_sets for text in (amount, other)
    )
    assert first is second


def test_placement_of_pods_is_read() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}]}
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": term}],
    }
    read = read_workload(
        workload(
            pod={
                **container(cpu="1"),
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "spot", "effect": "NoSchedule"}],
                "affinity": {"nodeAffinity": affinity},
            }
        ),
        NAMES,
    ).pod_sets[0]
    assert read.node_selector == (("disk", "ssd"),)
    assert read.tolerations == (Toleration("spot", "Equal", "", "NoSchedule"),)
    selected = NodeSelectorTerm((SelectorRequirement("zone", SelectorOperator.NOT_IN, ("b",)),))
    assert read.required_node_affinity == (selected,)
    assert read.preferred_node_affinity == (PreferredTerm(7, selected),)


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"count": 3},
        {"minCount": 1},
        {"topologyRequest": {"podSetGroupName": "group"}},
        *(
            {"template": {"spec": spec}}
            for spec in (
                container(cpu="2"),
                container(limits={"cpu": "4"}, cpu="1"),
                {"initContainers": container(cpu="1")["containers"], **container(cpu="1")},
                {**container(cpu="1"), "resources": {"requests": {"cpu": "4"}}},
                {**container(cpu="1"), "overhead": {"cpu": "1"}},
                {**container(cpu="1"), "runtimeClassName": "sandbox"},
                {**container(cpu="1"), "nodeSelector": {"zone": "a"}},
                {**container(cpu="1"), "tolerations": [{"operator": "Exists"}]},
                {
                    **container(cpu="1"),
                    "affinity": {
                        "nodeAffinity": {
                            REQUIRED: {
                                "nodeSelectorTerms": [
                                    {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
                                ]
                            }
                        }
                    },
                },
            )
        ),
    ],
)
def test_podset_that_differs_in_one_field_is_read_anew(changed: dict[str, Any]) -> None:
    first = {"name": "main", "count": 2, "template": {"spec": container(cpu="1")}}
    assert read_pod_set(first, "spec.podSets[0]", []) is read_pod_set({**first}, "spec.podSets[0]", [])
    assert read_pod_set({**first, **changed}, "spec.podSets[0]", []) != read_pod_set(
        first, "spec.podSets[0]", []
    )


def test_problems_of_equal_podsets_are_reported_for_each() -> None:
    raw = {"name": "main", "count": 2, "template": {"spec": container(cpu="lots")}}
    for field in ("spec.podSets[0]", "spec.podSets[1]", "spec.podSets[0]"):
        problems: list[ResourceProblem] = []
        read_pod_set(raw, field, problems)
        assert [problem.field for problem in problems] == [
            f"{field}.template.spec.containers[0].resources.requests[cpu]"
        ]

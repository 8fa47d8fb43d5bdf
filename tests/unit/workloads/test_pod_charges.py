"""What pods are charged, compared between pods that name one podset."""

from typing import Any

import pytest

from admitq.workloads.pod_charges import NO_CHARGE, find_role_mismatch, granted_charges, pod_charge


def a_spec(cpu: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **fields}


def a_pod(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def a_container(**resources: Any) -> dict[str, Any]:
    return {"name": "i", "resources": {"requests": resources}}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        (a_spec(), []),
        (a_spec("1000m"), []),
        (a_spec("500m"), []),
        (a_spec(2), ["cpu"]),
        (a_spec(1, containers=[a_container(cpu="500m"), a_container(cpu="500m")]), []),
        (a_spec(1, containers=[a_container(cpu=1), a_container(cpu="1m")]), ["cpu"]),
        (a_spec(1, containers=[a_container(cpu=1, memory="1Gi")]), ["memory"]),
        (a_spec(1, containers=[{"name": "c", "resources": {"limits": {"cpu": 3}}}]), ["cpu"]),
        (a_spec(1, initContainers=[a_container(cpu=1)]), []),
        (a_spec(1, initContainers=[a_container(cpu=5)]), ["cpu"]),
        (a_spec(1, initContainers=[{**a_container(cpu="1m"), "restartPolicy": "Always"}]), ["cpu"]),
        (a_spec(1, overhead={"cpu": "1m"}), ["cpu"]),
        (a_spec(1, resources={"requests": {"cpu": 2}}), ["cpu"]),
        (a_spec(1, resources={"requests": {"hugepages-2Mi": "2Mi"}}), ["hugepages-2Mi"]),
        (
            a_spec(1, resourceClaims=[{"name": "a", "resourceClaimTemplateName": "gpu"}]),
            ["resource claim template gpu"],
        ),
        (a_spec(1, resourceClaims=[{"name": "a", "resourceClaimName": "gpu"}]), ["resource claim gpu"]),
    ],
)
def test_pod_asks_beyond_another_where_any_part_that_counts_is_more(
    spec: dict[str, Any], more: list[str]
) -> None:
    assert pod_charge(spec).resources_above(pod_charge(a_spec())) == more


def test_claims_are_counted_and_not_only_named() -> None:
    one = {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "gpu"}]}
    two = {"resourceClaims": [*one["resourceClaims"], {"name": "b", "resourceClaimTemplateName": "gpu"}]}
    assert pod_charge(a_spec(**two)).resources_above(pod_charge(a_spec(**one))) == [
        "resource claim template gpu"
    ]
    assert pod_charge(a_spec(**one)).resources_above(pod_charge(a_spec(**two))) == []


def test_pods_of_one_role_that_ask_for_more_than_the_first_are_a_mismatch() -> None:
    small, big = a_pod("g-0", a_spec(1)), a_pod("g-1", a_spec(30))
    assert find_role_mismatch({"r": [small, big]}) == (
        "pods 'g-0' and 'g-1' name the same role 'r', and 'g-1' asks for more cpu: give them different roles"
    )
    assert find_role_mismatch({"r": [small], "s": [big]}) is None
    assert find_role_mismatch({"r": [big, small]}) is None
    assert find_role_mismatch({}) is None


def test_grant_is_the_larger_of_template_and_charge_for_each_pod() -> None:
    workload = {
        "spec": {
            "podSets": [
                {"name": "a", "count": 2, "template": {"spec": a_spec(1)}},
                {"name": "b", "count": 2, "template": {"spec": a_spec(1)}},
            ]
        },
        "status": {
            "admission": {
                "podSetAssignments": [
                    {"name": "a", "count": 2, "resourceUsage": {"cpu": "3", "memory": "4Gi", "odd": "x"}},
                    {"name": "b", "count": 0, "resourceUsage": {"cpu": "9"}},
                    {"name": "unknown", "count": 1, "resourceUsage": {"cpu": "9"}},
                ]
            }
        },
    }
    found = granted_charges(workload)
    assert set(found) == {"a", "b"}
    assert {name: str(amount) for name, amount in found["a"].requests.items()} == {
        "cpu": "3/2",
        "memory": str(2 * 2**30),
        "odd": "0",
    }
    assert {name: str(amount) for name, amount in found["b"].requests.items()} == {"cpu": "1"}


def test_pod_that_asks_for_nothing_fits_everywhere() -> None:
    assert pod_charge({}) == NO_CHARGE
    assert NO_CHARGE.resources_above(NO_CHARGE) == []
    assert pod_charge(a_spec(0)).resources_above(NO_CHARGE) == []

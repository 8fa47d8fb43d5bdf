"""Charges of pods: requests and resource claims, compared between pods of one podset."""

from typing import Any

import pytest

from admitq.workloads.pod_charges import NO_CHARGE, find_role_mismatch, granted_charges, pod_charge


def pod_spec(cpu: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **fields}


def pod(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "i", "resources": {"requests": resources}}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        (pod_spec(), []),
        (pod_spec("1000m"), []),
        (pod_spec("500m"), []),
        (pod_spec(2), ["cpu"]),
        (pod_spec(1, containers=[container(cpu="500m"), container(cpu="500m")]), []),
        (pod_spec(1, containers=[container(cpu=1), container(cpu="1m")]), ["cpu"]),
        (pod_spec(1, containers=[container(cpu=1, memory="1Gi")]), ["memory"]),
        (pod_spec(1, containers=[{"name": "c", "resources": {"limits": {"cpu": 3}}}]), ["cpu"]),
        (pod_spec(1, initContainers=[container(cpu=1)]), []),
        (pod_spec(1, initContainers=[container(cpu=5)]), ["cpu"]),
        (pod_spec(1, initContainers=[{**container(cpu="1m"), "restartPolicy": "Always"}]), ["cpu"]),
        (pod_spec(1, overhead={"cpu": "1m"}), ["cpu"]),
        (pod_spec(1, resources={"requests": {"cpu": 2}}), ["cpu"]),
        (pod_spec(1, resources={"requests": {"hugepages-2Mi": "2Mi"}}), ["hugepages-2Mi"]),
        (
            pod_spec(1, resourceClaims=[{"name": "a", "resourceClaimTemplateName": "gpu"}]),
            ["resource claim template gpu"],
        ),
        (pod_spec(1, resourceClaims=[{"name": "a", "resourceClaimName": "gpu"}]), ["resource claim gpu"]),
    ],
)
def test_pod_charge_exceeds_other_charge_by_each_larger_resource(
    spec: dict[str, Any], more: list[str]
) -> None:
    assert pod_charge(spec).resources_above(pod_charge(pod_spec())) == more


def test_pod_charge_counts_resource_claims_of_equal_template() -> None:
    claim, other = ({"name": name, "resourceClaimTemplateName": "gpu"} for name in "ab")
    one_claim = pod_charge(pod_spec(resourceClaims=[claim]))
    two_claims = pod_charge(pod_spec(resourceClaims=[claim, other]))
    assert two_claims.resources_above(one_claim) == ["resource claim template gpu"]
    assert one_claim.resources_above(two_claims) == []


def test_pod_that_requests_more_than_first_pod_of_role_is_a_mismatch() -> None:
    small, large = pod("g-0", pod_spec(1)), pod("g-1", pod_spec(30))
    assert find_role_mismatch({"r": [small, large]}) == (
        "pods 'g-0' and 'g-1' name the same role 'r', and 'g-1' requests more cpu: give them different roles"
    )


@pytest.mark.parametrize(
    "pods_by_role",
    [
        {"r": [pod("g-0", pod_spec(1))], "s": [pod("g-1", pod_spec(30))]},
        {"r": [pod("g-1", pod_spec(30)), pod("g-0", pod_spec(1))]},
        {},
    ],
    ids=["different roles", "first pod requests most", "no pods"],
)
def test_pods_that_request_no_more_than_first_pod_of_role_match(pods_by_role: dict[str, Any]) -> None:
    assert find_role_mismatch(pods_by_role) is None


def test_granted_charge_is_maximum_of_template_and_admission_per_pod() -> None:
    workload = {
        "spec": {
            "podSets": [
                {"name": "a", "count": 2, "template": {"spec": pod_spec(1)}},
                {"name": "b", "count": 2, "template": {"spec": pod_spec(1)}},
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
    charges = granted_charges(workload)
    assert set(charges) == {"a", "b"}
    assert {name: str(amount) for name, amount in charges["a"].requests.items()} == {
        "cpu": "3/2",
        "memory": str(2 * 2**30),
        "odd": "0",
    }
    assert {name: str(amount) for name, amount in charges["b"].requests.items()} == {"cpu": "1"}


def test_pod_without_requests_has_no_charge() -> None:
    assert pod_charge({}) == NO_CHARGE
    assert NO_CHARGE.resources_above(NO_CHARGE) == []
    assert pod_charge(pod_spec(0)).resources_above(NO_CHARGE) == []

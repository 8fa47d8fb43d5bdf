"""The shape of pods and its hash, compared with hashes of the output of Kubernetes' JSON encoder."""

from typing import Any

import pytest

from admitq.integrations.pod_shape import compute_role_hash, get_spec_shape

SINGLE_CONTAINER: dict[str, Any] = {
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
}
ALL_FIELDS: dict[str, Any] = {
    "initContainers": [{"name": "i", "image": "i", "resources": {}, "restartPolicy": "Always"}],
    "containers": [
        {
            "name": "c",
            "image": "i",
            "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
            "env": [{"name": "A", "value": "b"}],
            "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
        },
        {"name": "d", "image": "i", "resources": {}},
    ],
    "nodeSelector": {"a": "<1>", "b": "2"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x&y"]}]}
                ]
            }
        }
    },
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
    "priority": 7,
    "runtimeClassName": "gv",
    "overhead": {"cpu": "100m"},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ],
    "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
    "resources": {"requests": {"cpu": "3"}},
}
ONLY_LIMITS: dict[str, Any] = {
    "containers": [{"name": "c", "image": "i", "resources": {}}],
    "priority": 0,
    "resources": {"limits": {"cpu": "3"}},
}


@pytest.mark.parametrize(
    ("spec", "role_hash"),
    [(SINGLE_CONTAINER, "dc85db45"), (ALL_FIELDS, "e10d4807"), (ONLY_LIMITS, "17b35bde")],
)
def test_role_hash_is_that_of_the_json_of_kubernetes(spec: Any, role_hash: str) -> None:
    assert compute_role_hash(spec) == role_hash


@pytest.mark.parametrize(
    "change",
    [
        {"volumes": [{"name": "v"}]},
        {
            "containers": [
                {**SINGLE_CONTAINER["containers"][0], "name": "other", "image": "j", "env": [{"name": "A"}]}
            ]
        },
        {
            "containers": [
                {
                    **SINGLE_CONTAINER["containers"][0],
                    "resources": {**SINGLE_CONTAINER["containers"][0]["resources"], "limits": {}},
                }
            ]
        },
        {"schedulingGates": [{"name": "x"}], "nodeName": "n", "tolerations": [], "nodeSelector": {}},
        {"resources": {"limits": {"cpu": "1"}}},
    ],
)
def test_fields_irrelevant_to_scheduling_are_no_part_of_the_shape(change: Any) -> None:
    assert get_spec_shape({**SINGLE_CONTAINER, **change}) == get_spec_shape(SINGLE_CONTAINER)


@pytest.mark.parametrize(
    "change",
    [
        {"containers": [{"resources": {"requests": {"cpu": "2"}}}]},
        {"containers": [{**SINGLE_CONTAINER["containers"][0], "ports": [{"containerPort": 1}]}]},
        {"initContainers": [{"name": "i"}]},
        {"nodeSelector": {"a": "1"}},
        {"priority": 0},
        {"resources": {"requests": {"cpu": "1"}}},
    ],
)
def test_fields_relevant_to_scheduling_change_the_role_hash(change: Any) -> None:
    assert compute_role_hash({**SINGLE_CONTAINER, **change}) != compute_role_hash(SINGLE_CONTAINER)


@pytest.mark.parametrize("value", [None, 1, "x", [], [None, 1], {}, {"x": None}])
@pytest.mark.parametrize("field", ["containers", "initContainers", "resources", "tolerations", "priority"])
def test_malformed_pod_spec_has_a_role_hash(field: str, value: Any) -> None:
    assert len(compute_role_hash({**SINGLE_CONTAINER, field: value})) == 8

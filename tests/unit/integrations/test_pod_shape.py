"""The shape of pods and its hash, with known answers of Kubernetes' own JSON encoder."""

from typing import Any

import pytest

from admitq.integrations.pod_shape import compute_role_hash, get_spec_shape

ONE: dict[str, Any] = {
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
}
RICH: dict[str, Any] = {
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
LIMITED: dict[str, Any] = {
    "containers": [{"name": "c", "image": "i", "resources": {}}],
    "priority": 0,
    "resources": {"limits": {"cpu": "3"}},
}


@pytest.mark.parametrize(("spec", "known"), [(ONE, "dc85db45"), (RICH, "e10d4807"), (LIMITED, "17b35bde")])
def test_the_hash_is_that_of_the_shape_as_kubernetes_writes_it(spec: Any, known: str) -> None:
    assert compute_role_hash(spec) == known


@pytest.mark.parametrize(
    "change",
    [
        {"volumes": [{"name": "v"}]},
        {"containers": [{**ONE["containers"][0], "name": "other", "image": "j", "env": [{"name": "A"}]}]},
        {
            "containers": [
                {**ONE["containers"][0], "resources": {**ONE["containers"][0]["resources"], "limits": {}}}
            ]
        },
        {"schedulingGates": [{"name": "x"}], "nodeName": "n", "tolerations": [], "nodeSelector": {}},
        {"resources": {"limits": {"cpu": "1"}}},
    ],
)
def test_what_does_not_decide_over_place_and_use_is_no_part_of_the_shape(change: Any) -> None:
    assert get_spec_shape({**ONE, **change}) == get_spec_shape(ONE)


@pytest.mark.parametrize(
    "change",
    [
        {"containers": [{"resources": {"requests": {"cpu": "2"}}}]},
        {"containers": [{**ONE["containers"][0], "ports": [{"containerPort": 1}]}]},
        {"initContainers": [{"name": "i"}]},
        {"nodeSelector": {"a": "1"}},
        {"priority": 0},
        {"resources": {"requests": {"cpu": "1"}}},
    ],
)
def test_what_decides_over_place_and_use_is(change: Any) -> None:
    assert compute_role_hash({**ONE, **change}) != compute_role_hash(ONE)


@pytest.mark.parametrize("value", [None, 1, "x", [], [None, 1], {}, {"x": None}])
@pytest.mark.parametrize("field", ["containers", "initContainers", "resources", "tolerations", "priority"])
def test_specs_of_any_shape_have_one(field: str, value: Any) -> None:
    assert len(compute_role_hash({**ONE, field: value})) == 8

"""Fields of an admission are injected into pod templates without overwriting others, and removed again."""

import copy
from typing import Any

import pytest

from admitq.workloads.template_injection import (
    FlavorMissing,
    InjectedMarks,
    InjectionConflict,
    PodSetInfo,
    has_same_charges,
    inject_into_template,
    pod_set_infos,
    restore_template,
    sanitise_template,
)
from admitq_api.json_objects import value_at
from admitq_api.labels import names_for

NAMES = names_for()
ALL_MARKS = InjectedMarks()

FLAVORS: dict[str, Any] = {
    "spot": {
        "spec": {
            "nodeLabels": {"kind": "spot"},
            "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        }
    },
    "gpu": {"spec": {"nodeLabels": {"gpu": "a100"}}},
    "other-kind": {"spec": {"nodeLabels": {"kind": "on-demand"}}},
    "plain": {},
}


def workload(flavors: dict[str, str], *, queue: str = "main-queue", checks: Any = ()) -> dict[str, Any]:
    return {
        "metadata": {"name": "job-a-12345"},
        "spec": {"queueName": queue},
        "status": {
            "admission": {
                "clusterQueue": "cluster",
                "podSetAssignments": [{"name": "main", "count": 3, "flavors": flavors}],
            },
            "admissionChecks": list(checks),
        },
    }


def only_info(obj: dict[str, Any], marks: InjectedMarks = ALL_MARKS) -> PodSetInfo:
    [info] = pod_set_infos(obj, FLAVORS.get, NAMES, marks)
    return info


def test_info_has_node_labels_and_tolerations_of_all_flavors_once() -> None:
    info = only_info(workload({"cpu": "spot", "memory": "spot", "example.com/gpu": "gpu"}))
    assert info.node_selector == {"kind": "spot", "gpu": "a100"}
    assert info.tolerations == tuple(FLAVORS["spot"]["spec"]["tolerations"])
    assert info.count == 3


@pytest.mark.parametrize("count", [{}, {"count": None}])
def test_e_assignment_without_count_is_for_all_pods_of_podset(count: dict[str, Any]) -> None:
    obj = workload({"cpu": "plain"})
    obj["spec"]["podSets"] = [{"name": "main", "count": 4}]
    obj["status"]["admission"]["podSetAssignments"] = [{"name": "main", "flavors": {"cpu": "plain"}, **count}]
    assert only_info(obj).count == 4


def test_info_has_marks_of_podset_queues_and_workload() -> None:
    info = only_info(workload({"cpu": "plain"}))
    assert info.labels == {
        NAMES.podset: "main",
        NAMES.local_queue_name: "main-queue",
        NAMES.cluster_queue_name: "cluster",
    }
    assert info.annotations == {NAMES.workload: "job-a-12345"}


def test_queue_name_that_is_no_label_value_is_not_injected() -> None:
    info = only_info(workload({"cpu": "plain"}, queue="a.queue"))
    assert NAMES.local_queue_name not in info.labels
    assert NAMES.cluster_queue_name in info.labels


def test_disabled_marks_are_not_injected() -> None:
    info = only_info(workload({}), InjectedMarks(False, False, False))
    assert (info.labels, info.annotations) == ({NAMES.podset: "main"}, {})


PLACED = {"topologyAssignment": {"levels": ["host"], "slices": [{"domainCount": 1}]}}


@pytest.mark.parametrize(
    ("assigned", "template", "request_", "marks", "has_gate", "is_implied"),
    [
        ({}, {}, {}, ALL_MARKS, False, False),
        ({"delayedTopologyRequest": "Pending"}, {}, {}, ALL_MARKS, False, False),
        (PLACED, {}, {}, ALL_MARKS, True, True),
        (PLACED, {}, {"podIndexLabel": "index"}, ALL_MARKS, True, True),
        (PLACED, {}, {"required": "rack"}, ALL_MARKS, True, False),
        (
            PLACED,
            {},
            {"podSetSliceRequiredTopology": "rack"},
            ALL_MARKS,
            True,
            False,
        ),
        (
            PLACED,
            {NAMES.podset_preferred_topology: "rack"},
            {},
            ALL_MARKS,
            True,
            False,
        ),
        (PLACED, {}, {}, InjectedMarks(topology=False), False, False),
    ],
)
def test_assigned_topology_injects_gate_and_annotation_of_implied_request(
    assigned: dict[str, Any],
    template: dict[str, str],
    request_: dict[str, Any],
    marks: InjectedMarks,
    has_gate: bool,
    is_implied: bool,
) -> None:
    obj = workload({})
    obj["spec"]["podSets"] = [
        {"name": "main", "template": {"metadata": {"annotations": template}}, "topologyRequest": request_}
    ]
    obj["status"]["admission"]["podSetAssignments"][0] |= assigned
    info = only_info(obj, marks)
    assert info.scheduling_gates == ((NAMES.topology_gate,) if has_gate else ())
    assert (NAMES.podset_unconstrained_topology in info.annotations) == is_implied


def test_updates_of_checks_are_added_to_their_podset() -> None:
    update = {
        "name": "main",
        "labels": {"l": "1"},
        "annotations": {"a": "2"},
        "nodeSelector": {"n": "3"},
        "tolerations": [{"key": "t", "operator": "Exists"}],
    }
    of_other_podset = {"name": "worker", "labels": {"l": "other"}}
    info = only_info(workload({"cpu": "gpu"}, checks=[{"podSetUpdates": [update, of_other_podset]}, {}]))
    assert info.labels["l"] == "1"
    assert info.annotations["a"] == "2"
    assert info.node_selector == {"gpu": "a100", "n": "3"}
    assert info.tolerations == ({"key": "t", "operator": "Exists"},)


def test_contradicting_node_labels_of_flavors_are_a_conflict() -> None:
    with pytest.raises(InjectionConflict, match="kind"):
        only_info(workload({"cpu": "spot", "memory": "other-kind"}))


def test_check_update_that_contradicts_flavor_is_a_conflict() -> None:
    check = {"podSetUpdates": [{"name": "main", "nodeSelector": {"kind": "x"}}]}
    with pytest.raises(InjectionConflict, match="kind"):
        only_info(workload({"cpu": "spot"}, checks=[check]))


def test_unknown_flavor_raises_error() -> None:
    with pytest.raises(FlavorMissing, match="missing"):
        only_info(workload({"cpu": "missing"}))


INFO = PodSetInfo(
    "main",
    3,
    node_selector={"kind": "spot"},
    tolerations=({"key": "spot", "operator": "Exists"},),
    labels={"l": "1"},
    annotations={"a": "2"},
    scheduling_gates=("g",),
)

TEMPLATES: list[dict[str, Any]] = [
    {},
    {"spec": {"containers": [{"name": "c"}]}},
    {
        "metadata": {"labels": {"app": "x", "l": "1"}, "annotations": {"note": "y"}},
        "spec": {
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "spot", "operator": "Exists"}, {"key": "own"}],
            "schedulingGates": [{"name": "own"}, {"name": "g"}],
        },
    },
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_restored_template_equals_template_before_injection(template: Any) -> None:
    unchanged = copy.deepcopy(template)
    injected = inject_into_template(template, INFO)
    assert template == unchanged
    for path in (
        ("metadata", "labels"),
        ("metadata", "annotations"),
        ("spec", "nodeSelector"),
        ("spec", "tolerations"),
        ("spec", "schedulingGates"),
    ):
        assert value_at(injected, path)
    assert restore_template(injected, template) == template


@pytest.mark.parametrize("template", TEMPLATES)
def test_injecting_twice_gives_same_template(template: Any) -> None:
    injected = inject_into_template(template, INFO)
    assert inject_into_template(injected, INFO) == injected


def test_injecting_empty_info_does_not_change_template() -> None:
    assert inject_into_template(TEMPLATES[2], PodSetInfo("main", 1)) == TEMPLATES[2]


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"nodeSelector": {"kind": "other"}}},
        {"metadata": {"labels": {"l": "other"}}},
        {"metadata": {"annotations": {"a": "other"}}},
    ],
)
def test_injecting_over_a_different_value_is_a_conflict(template: Any) -> None:
    with pytest.raises(InjectionConflict, match="other"):
        inject_into_template(template, INFO)


def test_equal_toleration_in_other_notation_is_not_added() -> None:
    template = {"spec": {"tolerations": [{"key": "k", "operator": "", "value": "v"}]}}
    info = PodSetInfo("main", 1, tolerations=({"key": "k", "operator": "Equal", "value": "v"},))
    assert inject_into_template(template, info) == template


def test_restored_template_keeps_given_labels() -> None:
    running = {"metadata": {"labels": {"controller-uid": "u", "added": "x", "app": "a"}}}
    original = {"metadata": {"labels": {"app": "a"}}}
    restored = restore_template(running, original, keep_labels=["controller-uid", "absent"])
    assert restored["metadata"]["labels"] == {"app": "a", "controller-uid": "u"}


def test_sanitised_template_keeps_only_labels_and_annotations_of_metadata() -> None:
    template = {
        "metadata": {
            "creationTimestamp": None,
            "name": "n",
            "labels": {"a": "b", "controller-uid": "u"},
            "annotations": {"c": "d"},
        },
        "spec": {"containers": [{"name": "c", "brandNewField": {"x": 1}}]},
    }
    assert sanitise_template(template, ["controller-uid"]) == {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"containers": [{"name": "c", "brandNewField": {"x": 1}}]},
    }


def test_sanitised_template_keeps_last_item_of_repeated_merge_keys() -> None:
    container = {
        "name": "c",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}],
        "ports": [
            {"containerPort": 80, "protocol": "TCP"},
            {"containerPort": 80, "protocol": "UDP"},
            {"containerPort": 80, "name": "http"},
        ],
    }
    template = {
        "spec": {
            "containers": [container],
            "initContainers": [container],
            "imagePullSecrets": [{"name": "s"}, {"name": "s"}],
        }
    }
    kept = sanitise_template(template)["spec"]
    for sanitised in (*kept["containers"], *kept["initContainers"]):
        assert sanitised["env"] == [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
        assert [port.get("name") for port in sanitised["ports"]] == [None, "http"]
    assert kept["imagePullSecrets"] == [{"name": "s"}]


def test_port_without_protocol_is_sanitised_to_tcp() -> None:
    job = with_container(ports=[{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}])
    stored = with_container(
        ports=[{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
    )
    assert sanitise_template(job) == sanitise_template(stored) == stored


def with_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i", **fields}]}}


def with_spec(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c"}], **fields}}


def sidecar(cpu: str) -> dict[str, Any]:
    return {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}}


def claim(name: str, template: str = "device") -> dict[str, Any]:
    return {"name": name, "resourceClaimTemplateName": template}


def requesting(cpu: Any) -> dict[str, Any]:
    return with_container(resources={"requests": {"cpu": cpu}})


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (with_container(), with_container(), True),
        (with_container(), with_container(image="other"), False),
        (requesting("1"), requesting("1000m"), True),
        (requesting("1"), requesting(1), True),
        (requesting("1"), requesting("1001m"), False),
        (requesting("odd"), requesting("odd"), True),
        (with_container(), with_container(resources={}), True),
        (with_container(resources={"requests": {}}), with_container(), True),
        (with_container(args=[], env=[], securityContext={}), with_container(), True),
        (with_container(env=[{"name": "A", "value": ""}]), with_container(env=[{"name": "A"}]), True),
        (with_container(env=[{"name": "A", "value": "b"}]), with_container(env=[{"name": "A"}]), False),
        (with_container(args=["a"]), with_container(args=["b"]), False),
        ({"spec": {"initContainers": [{"name": "i"}]}}, {"spec": {}}, False),
        ({"spec": {"nodeSelector": {"a": "b"}}}, {"spec": {"affinity": {}}}, True),
        (
            {"spec": {"tolerations": [{"key": "a"}, {"key": "b", "operator": "Equal"}]}},
            {"spec": {"tolerations": [{"key": "b"}, {"key": "a"}]}},
            True,
        ),
        ({"spec": {"tolerations": [{"key": "a"}]}}, {}, False),
        (with_spec(initContainers=[sidecar("1")]), with_spec(initContainers=[sidecar("1000m")]), True),
        (with_spec(initContainers=[sidecar("1")]), with_spec(initContainers=[sidecar("2")]), False),
        (
            with_spec(resources={"requests": {"cpu": "1"}}),
            with_spec(resources={"requests": {"cpu": 1}}),
            True,
        ),
        (
            with_spec(resources={"requests": {"cpu": "1"}}),
            with_spec(resources={"requests": {"cpu": 2}}),
            False,
        ),
        (with_spec(resources={"requests": {"cpu": "1"}}), with_spec(), False),
        (with_spec(resources={"limits": {"cpu": "1"}}), with_spec(), False),
        (with_spec(resources={"requests": {}}), with_spec(), True),
        (with_spec(overhead={"cpu": "1"}), with_spec(overhead={"cpu": "1000m"}), True),
        (with_spec(overhead={"cpu": "1"}), with_spec(overhead={"cpu": "2"}), False),
        (with_spec(overhead={"cpu": "1"}), with_spec(), False),
        (with_spec(overhead={"cpu": "1"}, runtimeClassName="r"), with_spec(runtimeClassName="r"), True),
        (with_spec(overhead={"cpu": "1"}, runtimeClassName="r"), with_spec(runtimeClassName="s"), False),
        (with_spec(runtimeClassName="r"), with_spec(), False),
        (
            with_spec(resourceClaims=[claim("a"), claim("b")]),
            with_spec(resourceClaims=[claim("b"), claim("a")]),
            True,
        ),
        (
            with_spec(resourceClaims=[claim("a")]),
            with_spec(resourceClaims=[claim("a", "two-devices")]),
            False,
        ),
        (with_spec(resourceClaims=[claim("a")]), with_spec(), False),
    ],
)
def test_templates_have_same_charges_regardless_of_notation(left: Any, right: Any, same: bool) -> None:
    assert has_same_charges(left, right) is same


def test_comparison_of_charges_can_ignore_tolerations() -> None:
    assert has_same_charges({"spec": {"tolerations": [{"key": "a"}]}}, {}, tolerations=False)

"""The podsets for which nodes are requested."""

from typing import Any

import pytest

from admitq.controllers.provisioning.requests import pod_set_updates, requested_pod_sets, template_name
from admitq_api.json_objects import without_value
from tests.unit.controllers.builders import reserved
from tests.unit.controllers.provisioning.cases import (
    FLAVORS,
    NAME,
    assigned,
    case,
    check,
    check_after,
    config,
    container,
    pod_set,
    request,
)


def test_e_nodes_are_requested_for_all_pods_of_assignment_without_count() -> None:
    path = ("status", "admission", "podSetAssignments", 0, "count")
    counted = reserved()
    [requested] = requested_pod_sets(without_value(counted, path), config(), FLAVORS.get)
    assert requested.count == counted["spec"]["podSets"][0]["count"]


GPU = {"example.com/gpu": "1"}


@pytest.mark.parametrize(
    ("pod_sets", "counts", "managed", "requested"),
    [
        ([pod_set("a", container({"cpu": "1"}))], [("a", 1)], [], ["a"]),
        ([pod_set("a", container({"cpu": "1"}))], [("a", 1)], ["example.com/gpu"], []),
        ([pod_set("a", container({"cpu": "1"}, GPU))], [("a", 1)], ["example.com/gpu"], ["a"]),
        ([pod_set("a", container(GPU)), pod_set("b", container())], [("a", 1), ("b", 1)], [*GPU], ["a"]),
        ([pod_set("a", initContainers=[container(GPU)])], [("a", 1)], ["example.com/gpu"], ["a"]),
        ([pod_set("a", container(), count=0)], [("a", 0)], [], []),
        ([pod_set("a", container(), count=2)], [("a", 0)], [], []),
    ],
)
def test_nodes_are_requested_only_for_podsets_that_need_them(
    pod_sets: Any, counts: Any, managed: Any, requested: list[str]
) -> None:
    obj = reserved(
        admissionChecks=[check("Rejected")], admission=assigned(*counts), spec={"podSets": pod_sets}
    )
    config_ = config(managedResources=managed)
    assert [pod_set.name for pod_set in requested_pod_sets(obj, config_, FLAVORS.get)] == requested
    if not requested:
        state, notes = check_after(case(obj, config=config_))
        assert (state["state"], state["message"]) == ("Ready", "the provisioning request is not needed")
        assert "podSetUpdates" not in state
        assert notes == [
            (
                "Admission check c updated state from Rejected to Ready"
                " with message: the provisioning request is not needed"
            )
        ]


def test_request_template_equals_template_of_started_pods() -> None:
    limited = container({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"})
    obj = reserved(
        admission=assigned(("main", 2)),
        spec={"podSets": [pod_set("main", limited, initContainers=[container(limits=GPU)], count=3)]},
    )
    [requested] = requested_pod_sets(obj, config(), FLAVORS.get)
    spec = requested.template["spec"]
    assert requested.count == 2
    assert spec["containers"] == [
        container({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}),
    ]
    assert spec["initContainers"] == [container(GPU, GPU)]
    assert spec["nodeSelector"] == {"pool": "f"}
    assert spec["tolerations"] == [{"key": "pool", "operator": "Exists"}]


SAME = pod_set("a", container({"cpu": "1"}, image="one"))

OTHER_IMAGE = pod_set("b", container({"cpu": "1000m"}, image="other"))

OTHER_SIZE = pod_set("c", container({"cpu": "2"}, image="one"))

TOLERANT = pod_set("d", container({"cpu": "1"}, image="one"), tolerations=[{"key": "x"}])


@pytest.mark.parametrize(
    ("policy", "pod_sets", "requested"),
    [
        (None, [SAME, {**SAME, "name": "b"}], [("a", 1), ("b", 1)]),
        ("IdenticalPodTemplates", [SAME, {**SAME, "name": "b", "count": 1}], [("a", 2)]),
        ("IdenticalPodTemplates", [SAME, OTHER_IMAGE], [("a", 1), ("b", 1)]),
        ("IdenticalWorkloadSchedulingRequirements", [SAME, OTHER_IMAGE], [("a", 2)]),
        ("IdenticalWorkloadSchedulingRequirements", [SAME, OTHER_SIZE], [("a", 1), ("c", 1)]),
        ("IdenticalWorkloadSchedulingRequirements", [SAME, TOLERANT], [("a", 1), ("d", 1)]),
        (
            "IdenticalWorkloadSchedulingRequirements",
            [SAME, OTHER_SIZE, OTHER_IMAGE],
            [("a", 2), ("c", 1)],
        ),
    ],
)
def test_podsets_are_merged_by_configured_policy(policy: str | None, pod_sets: Any, requested: Any) -> None:
    obj = reserved(
        admission=assigned(*((pod_set["name"], pod_set["count"]) for pod_set in pod_sets)),
        spec={"podSets": pod_sets},
    )
    merged = requested_pod_sets(obj, config(podSetMergePolicy=policy), FLAVORS.get)
    assert [(pod_set.name, pod_set.count) for pod_set in merged] == requested


def test_podsets_on_different_flavors_are_not_merged() -> None:
    admission = assigned(("a", 1))
    admission["podSetAssignments"] += assigned(("b", 1), flavor="g")["podSetAssignments"]
    obj = reserved(admission=admission, spec={"podSets": [SAME, {**SAME, "name": "b"}]})
    for policy in ("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"):
        assert len(requested_pod_sets(obj, config(podSetMergePolicy=policy), FLAVORS.get)) == 2


def test_podset_updates_cover_only_podsets_of_the_request() -> None:
    obj = reserved(spec={"podSets": [SAME, OTHER_IMAGE]})
    listed = [{"podTemplateRef": {"name": template_name(NAME, "b")}, "count": 1}]
    listed.append({"podTemplateRef": {"name": "foreign"}, "count": 1})
    updates = pod_set_updates(obj, request(spec={"podSets": listed}), config())
    assert [(update["name"], "nodeSelector" in update) for update in updates] == [("b", False)]

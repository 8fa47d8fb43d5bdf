"""Objects as the API stores them become the values that decisions are made of, or say what is wrong."""

import copy
from fractions import Fraction
from typing import Any

import pytest

from admitq import translate
from admitq.core.amounts import UNLIMITED, FlavorResource
from admitq.core.ledger import usage_of
from admitq.core.model import (
    SECOND,
    Admission,
    AdmissionCheckRule,
    ContainerResources,
    LabelSelector,
    NodeSelectorTerm,
    ObjectKey,
    PodSetAssignment,
    PodTemplate,
    QueueingStrategy,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Toleration,
)
from admitq.core.requests import resolve
from admitq.core.selectors import matches
from admitq.integrations.paths import with_value
from admitq.translate import Malformed, Reading
from admitq_api import conditions
from admitq_api.configuration import load_configuration
from admitq_api.labels import DEFAULT_GROUP, names_for
from admitq_api.namespaces import NAMESPACE_NAME

NAMES = names_for(DEFAULT_GROUP)
HEAD = f"apiVersion: {NAMES.config_api_version}\nkind: Configuration\n"
CREATED = "2026-03-01T10:00:00Z"


def workload(*, pod: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> Any:
    return {
        "metadata": {"name": "w", "namespace": "team", "uid": "u-1", "creationTimestamp": CREATED},
        "spec": {
            "queueName": "main",
            "podSets": [{"name": "main", "count": 2, "template": {"spec": pod or container(cpu="500m")}}],
            **spec,
        },
        "status": status or {},
    }


def container(limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": requests}
    if limits is not None:
        resources["limits"] = limits
    return {"containers": [{"name": "c", "resources": resources}]}


def condition(type_: str, status: str = "True", reason: str = "R", at: str = CREATED) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


def cluster_queue(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "cq", "uid": "u"}, "spec": spec}


def group(**quota: str) -> list[dict[str, Any]]:
    return [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "default", "resources": [{"name": "cpu", **quota}]}],
        }
    ]


def test_a_cluster_queue_is_read_whole() -> None:
    read = translate.cluster_queue(
        cluster_queue(
            cohortName="org",
            queueingStrategy="StrictFIFO",
            stopPolicy="Hold",
            namespaceSelector={"matchLabels": {"team": "a"}},
            resourceGroups=group(nominalQuota="9", borrowingLimit="500m", lendingLimit="0"),
            admissionChecksStrategy={"admissionChecks": [{"name": "budget", "onFlavors": ["default"]}]},
        )
    )
    assert (read.cohort, read.queueing_strategy, read.stop_policy) == (
        "org",
        QueueingStrategy.STRICT_FIFO,
        StopPolicy.HOLD,
    )
    assert read.namespace_selector == LabelSelector(
        (SelectorRequirement("team", SelectorOperator.IN, ("a",)),)
    )
    assert read.resource_groups[0].flavors[0].resources == (("cpu", ResourceQuota(9000, 500, 0)),)
    assert read.admission_checks == (AdmissionCheckRule("budget", ("default",)),)


def test_an_absent_limit_is_none_and_an_absent_selector_selects_nothing() -> None:
    read = translate.cluster_queue(cluster_queue(resourceGroups=group(nominalQuota="1")))
    assert read.resource_groups[0].flavors[0].resources[0][1] == ResourceQuota(1000, None, None)
    assert read.namespace_selector is None
    everything = translate.cluster_queue(cluster_queue(namespaceSelector={}))
    assert everything.namespace_selector == LabelSelector(())


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"resourceGroups": group(nominalQuota="-1")},
            "resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
        ({"resourceGroups": group(nominalQuota="1 Gi")}, "resources[0].nominalQuota"),
        ({"resourceGroups": group(nominalQuota="1", borrowingLimit="1 Gi")}, "borrowingLimit"),
        ({"queueingStrategy": "LIFO"}, "spec.queueingStrategy"),
        ({"stopPolicy": "Maybe"}, "spec.stopPolicy"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
            "spec.namespaceSelector.matchExpressions[0].operator",
        ),
        ({"resourceGroups": "all"}, "spec.resourceGroups"),
    ],
)
def test_a_malformed_cluster_queue_names_the_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(Malformed) as caught:
        translate.cluster_queue(cluster_queue(**spec))
    assert field in caught.value.field
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("preemption", "field"),
    [
        ({"reclaimWithinCohort": "Borrowers"}, "spec.preemption.reclaimWithinCohort"),
        ({"withinClusterQueue": "Borrowers"}, "spec.preemption.withinClusterQueue"),
        ({"borrowWithinCohort": {"policy": "Borrowers"}}, "spec.preemption.borrowWithinCohort.policy"),
        (
            {"borrowWithinCohort": {"maxPriorityThreshold": "10"}},
            "spec.preemption.borrowWithinCohort.maxPriorityThreshold",
        ),
    ],
)
def test_e_cluster_queue_with_unknown_preemption_policy_is_malformed(
    preemption: dict[str, Any], field: str
) -> None:
    with pytest.raises(Malformed) as caught:
        translate.cluster_queue(cluster_queue(preemption=preemption))
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "priority"),
        ("spec", "podSets", 0, "count"),
        ("spec", "podSets", 0, "minCount"),
        ("status", "reclaimablePods", 0, "count"),
        ("status", "admission", "podSetAssignments", 0, "count"),
    ],
)
@pytest.mark.parametrize("value", ["3", 1.5, True])
def test_e_number_of_a_workload_that_is_no_whole_number_is_malformed(
    path: tuple[str | int, ...], value: object
) -> None:
    status: dict[str, Any] = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2}]},
        "reclaimablePods": [{"name": "main", "count": 1}],
    }
    with pytest.raises(Malformed) as caught:
        translate.workload(with_value(workload(status=status), path, value), NAMES)
    assert str(path[-1]) in caught.value.field


_TOLERATION: dict[str, Any] = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}
_RESERVED: dict[str, Any] = {
    "conditions": [condition("QuotaReserved")],
    "admission": {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "spot"}}],
    },
    "reclaimablePods": [{"name": "main", "count": 1}],
    "admissionChecks": [{"name": "check", "state": "Ready"}],
}


@pytest.mark.parametrize("value", [1, True, ["x"], {"x": "y"}])
@pytest.mark.parametrize(
    "path",
    [
        ("spec", "queueName"),
        ("spec", "podSets", 0, "name"),
        ("spec", "podSets", 0, "topologyRequest", "podSetGroupName"),
        ("spec", "podSets", 0, "template", "spec", "runtimeClassName"),
        ("spec", "podSets", 0, "template", "spec", "nodeSelector", "zone"),
        *(("spec", "podSets", 0, "template", "spec", "tolerations", 0, field) for field in _TOLERATION),
        ("status", "admission", "clusterQueue"),
        ("status", "admission", "podSetAssignments", 0, "name"),
        ("status", "admission", "podSetAssignments", 0, "flavors", "cpu"),
        ("status", "reclaimablePods", 0, "name"),
        ("status", "admissionChecks", 0, "name"),
        ("status", "admissionChecks", 0, "state"),
    ],
)
def test_e_name_in_a_workload_that_is_no_text_is_malformed(path: tuple[str | int, ...], value: Any) -> None:
    pod = {**container(cpu="1"), "tolerations": [_TOLERATION]}
    with pytest.raises(Malformed, match="must be a text"):
        translate.workload(with_value(workload(pod=pod, status=_RESERVED), path, value), NAMES)


@pytest.mark.parametrize("value", [1, True, ["x"], {"x": "y"}])
@pytest.mark.parametrize(
    "path",
    [
        ("cohortName",),
        ("resourceGroups", 0, "coveredResources", 0),
        ("resourceGroups", 0, "flavors", 0, "name"),
        ("resourceGroups", 0, "flavors", 0, "resources", 0, "name"),
        ("admissionChecksStrategy", "admissionChecks", 0, "name"),
        ("admissionChecksStrategy", "admissionChecks", 0, "onFlavors", 0),
        ("flavorFungibility", "preference"),
        ("namespaceSelector", "matchExpressions", 0, "key"),
        ("namespaceSelector", "matchExpressions", 0, "values", 0),
        ("namespaceSelector", "matchLabels", "team"),
    ],
)
def test_e_name_in_a_cluster_queue_that_is_no_text_is_malformed(
    path: tuple[str | int, ...], value: Any
) -> None:
    spec = {
        "resourceGroups": group(nominalQuota="1"),
        "admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["default"]}]},
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]},
    }
    with pytest.raises(Malformed, match="must be a text"):
        translate.cluster_queue(cluster_queue(**with_value(spec, path, value)))


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
    ids=["plain", "limits only", "both", "overhead", "pod level", "init", "sidecar"],
)
def test_requests_are_reckoned_as_kubernetes_does(pod: dict[str, Any], requests: dict[str, int]) -> None:
    read = translate.workload(workload(pod=pod), NAMES)
    asked = resolve(read.pod_sets)
    assert {resource: amount // 2 for resource, amount in asked.demands[0].totals} == requests
    assert (read.resource_problems, asked.problems) == ((), ())


@pytest.mark.parametrize(
    ("pod", "rule", "field"),
    [
        (container(cpu="-1"), "malformed", "containers[0].resources.requests[cpu]"),
        (container(cpu="lots"), "malformed", "containers[0].resources.requests[cpu]"),
        (container(limits={"cpu": "-1"}), "malformed", "containers[0].resources.limits[cpu]"),
        ({**container(), "overhead": {"cpu": "-1"}}, "malformed", "template.spec.overhead[cpu]"),
        (
            {**container(), "resources": {"requests": {"cpu": ""}}},
            "malformed",
            "spec.resources.requests[cpu]",
        ),
    ],
)
def test_impossible_requests_are_problems_and_never_credit(
    pod: dict[str, Any], rule: str, field: str
) -> None:
    read = translate.workload(workload(pod=pod), NAMES)
    assert [problem.rule for problem in read.resource_problems] == [rule]
    assert field in read.resource_problems[0].field
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
def test_c16_request_beyond_int64_is_the_largest_amount(resource: str, text: str) -> None:
    pod = {"containers": [{"name": "c", "resources": {"requests": {resource: text}}}]}
    read = translate.workload(workload(pod=pod), NAMES)
    assert read.resource_problems == ()
    assert dict(resolve(read.pod_sets).demands[0].totals)[resource] == UNLIMITED


@pytest.mark.parametrize("text", ["1E", "1e30", "8Ei"])
def test_c16_quota_beyond_int64_is_unlimited(text: str) -> None:
    spec = group(nominalQuota=text, borrowingLimit=text, lendingLimit=text)
    read = translate.cluster_queue(cluster_queue(resourceGroups=spec))
    assert read.resource_groups[0].flavors[0].resources == (("cpu", ResourceQuota(*[UNLIMITED] * 3)),)


def test_c16_resource_usage_beyond_int64_is_the_largest_amount() -> None:
    part = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1E"}, "count": 2}
    read = translate.admission({"clusterQueue": "cq", "podSetAssignments": [part]})
    assert read.pod_set_assignments[0].resource_usage == (("cpu", UNLIMITED),)
    written = translate.admission_status(read)["podSetAssignments"][0]["resourceUsage"]
    assert written == {"cpu": "9223372036854775807m"}


def test_all_of_a_pod_template_that_decides_is_read() -> None:
    template = {
        "containers": [{"resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "1Gi"}}}, {}],
        "initContainers": [{"restartPolicy": "Always"}, {"resources": {"requests": {"cpu": "2"}}}],
        "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}},
        "runtimeClassName": "kata",
    }
    read = translate.workload(workload(pod=template), NAMES).pod_sets[0].template
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
    stated = translate.workload(workload(pod={**template, "overhead": {}}), NAMES).pod_sets[0].template
    assert stated.overhead == ()


def test_the_podset_group_is_read() -> None:
    obj = workload()
    obj["spec"]["podSets"][0]["topologyRequest"] = {"podSetGroupName": "g"}
    assert translate.workload(obj, NAMES).pod_sets[0].group == "g"


@pytest.mark.parametrize("containers", ["c", ["c"], [{"resources": []}], [{"resources": {"requests": []}}]])
def test_a_template_of_another_structure_is_malformed(containers: Any) -> None:
    with pytest.raises(Malformed) as caught:
        translate.workload(workload(pod={"containers": containers}), NAMES)
    assert caught.value.field.startswith("spec.podSets[0].template.spec.containers")


@pytest.mark.parametrize(
    ("one", "other"),
    [("1G", "1000M"), ("1500m", "1.5"), ("1Ki", "1024"), ("1e3", "1k"), ("0.5Gi", "512Mi")],
)
def test_equal_amounts_are_equal_however_they_are_written(one: str, other: str) -> None:
    first, second = (
        translate.workload(workload(pod=container(memory=text)), NAMES).pod_sets for text in (one, other)
    )
    assert first is second


def test_placement_of_the_pods_is_read() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    read = translate.workload(
        workload(
            pod={
                **container(cpu="1"),
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "spot", "effect": "NoSchedule"}],
                "affinity": {"nodeAffinity": required},
            }
        ),
        NAMES,
    ).pod_sets[0]
    assert read.node_selector == (("disk", "ssd"),)
    assert read.tolerations == (Toleration("spot", "Equal", "", "NoSchedule"),)
    assert read.required_node_affinity == (
        NodeSelectorTerm((SelectorRequirement("zone", SelectorOperator.NOT_IN, ("b",)),)),
    )


def test_the_phase_of_a_workload_is_read_from_its_status() -> None:
    status = {
        "conditions": [
            condition("QuotaReserved"),
            condition("Admitted"),
            condition("Evicted"),
            condition("Requeued", "False"),
        ],
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
                {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1"}, "count": 2}
            ],
        },
        "requeueState": {"count": 1, "requeueAt": "2026-03-01T10:01:00Z"},
        "reclaimablePods": [{"name": "main", "count": 1}],
        "admissionChecks": [{"name": "budget", "state": "Ready"}],
    }
    read = translate.workload(workload(status=status, priority=7, active=False), NAMES)
    assert (read.key, read.uid, read.priority, read.active) == (ObjectKey("team", "w"), "u-1", 7, False)
    assert read.admitted
    assert read.evicted
    assert read.requeue_blocked
    assert read.requeue_at == conditions.parse_time(CREATED) + 60 * SECOND
    assert read.reclaimable_pods == (("main", 1),)
    assert read.admission_checks == (("budget", "Ready"),)
    assert read.admission is not None
    assert translate.admission_status(read.admission) == status["admission"]


@pytest.mark.parametrize(
    ("evicted", "moves", "moved"),
    [
        (condition("Evicted", reason="PodsReadyTimeout", at="2026-03-01T11:00:00Z"), True, True),
        (condition("Evicted", reason="PodsReadyTimeout", at="2026-03-01T11:00:00Z"), False, False),
        (condition("Evicted", reason="AdmissionCheck", at="2026-03-01T11:00:00Z"), False, True),
        (condition("Evicted", reason="Preempted", at="2026-03-01T11:00:00Z"), True, False),
        (condition("Evicted", "False", reason="AdmissionCheck", at="2026-03-01T11:00:00Z"), True, False),
    ],
)
def test_only_some_evictions_move_a_workload_to_the_back(
    evicted: dict[str, Any], moves: bool, moved: bool
) -> None:
    obj = workload(status={"conditions": [evicted]})
    queued_at = translate.workload(obj, NAMES, Reading(eviction_moves_to_back=moves)).queued_at
    assert queued_at - conditions.parse_time(CREATED) == (3600 * SECOND if moved else 0)


@pytest.mark.parametrize(
    ("of", "is_open"),
    [
        ({}, False),
        ({"delayedTopologyRequest": "Pending"}, True),
        ({"delayedTopologyRequest": "Ready"}, False),
        (
            {"delayedTopologyRequest": "Pending", "topologyAssignment": {"levels": ["host"], "slices": []}},
            False,
        ),
    ],
    ids=str,
)
def test_a_place_is_open_that_was_put_off_and_not_found(of: dict[str, Any], is_open: bool) -> None:
    read = translate.admission({"clusterQueue": "main", "podSetAssignments": [{"name": "workers", **of}]})
    assert [part.is_place_open for part in read.pod_set_assignments] == [is_open]


def test_admission_gates_are_read_from_the_annotation() -> None:
    obj = workload()
    obj["metadata"]["annotations"] = {NAMES.admission_gated_by: "example.org/budget, example.org/data,"}
    assert translate.workload(obj, NAMES).admission_gates == ("example.org/budget", "example.org/data")
    assert translate.workload(obj, NAMES, Reading(gated=False)).admission_gates == ()


@pytest.mark.parametrize(
    ("message", "gates"),
    [
        ("Admission is gated by: example.org/budget,example.org/data", 2),
        ("Workload requires preemption, but it's gated", 0),
    ],
)
def test_gates_that_were_told_of_hold_until_it_is_told_that_they_are_gone(message: str, gates: int) -> None:
    told = {**condition("QuotaReserved"), "status": "False", "reason": "AdmissionGated", "message": message}
    assert len(translate.workload(workload(status={"conditions": [told]}), NAMES).admission_gates) == gates


def test_a_reservation_without_admission_is_malformed() -> None:
    with pytest.raises(Malformed, match="must be set while the QuotaReserved condition is true"):
        translate.workload(workload(status={"conditions": [condition("QuotaReserved")]}), NAMES)


def test_reading_changes_nothing() -> None:
    obj = workload(pod=container(limits={"cpu": "2"}))
    before = copy.deepcopy(obj)
    translate.workload(obj, NAMES)
    assert obj == before


def test_of_a_workload_that_cannot_be_read_what_it_holds_still_counts() -> None:
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}, "count": 2}
    obj = workload(
        status={
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
        }
    )
    obj["spec"]["podSets"] = "nonsense"
    with pytest.raises(Malformed):
        translate.workload(obj, NAMES)
    held = translate.holder(obj)
    assert held.admission is not None
    assert held.admission.pod_set_assignments[0].resource_usage == (("cpu", 2000),)
    assert held.admitted


def test_e_assignment_without_count_is_read_with_the_count_of_its_podset() -> None:
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "4"}}
    obj = workload(
        status={
            "conditions": [condition("QuotaReserved")],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
            "reclaimablePods": [{"name": "main", "count": 3}],
        }
    )
    obj["spec"]["podSets"][0]["count"] = 4
    read = translate.workload(obj, NAMES)
    assert read.admission is not None
    assert read.admission.pod_set_assignments[0].count == 4
    assert usage_of(read, read.admission) == ((FlavorResource("spot", "cpu"), 1000),)


@pytest.mark.parametrize(("active", "read"), [(False, False), (True, True), (None, True)])
def test_e_inactive_workload_that_cannot_be_read_is_inactive(active: bool | None, read: bool) -> None:
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}, "count": 2}
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
    }
    obj = workload(status=status, podSets="nonsense", active=active)
    assert translate.holder(obj).active is read


@pytest.mark.parametrize("memory", ["-1", "1e1.5", None])
def test_e_amounts_that_can_be_read_count_when_another_program_wrote_one_that_cannot(memory: Any) -> None:
    assigned = {
        "name": "main",
        "flavors": {"cpu": "spot", "memory": "spot"},
        "resourceUsage": {"cpu": "4", "memory": memory},
        "count": 2,
    }
    unread = {"name": "other", "flavors": "nonsense", "resourceUsage": {"cpu": "1"}}
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [unread, assigned, None]},
    }
    with pytest.raises(Malformed):
        translate.workload(
            with_value(workload(status=status), ("status", "admission", "podSetAssignments"), [assigned]),
            NAMES,
        )
    held = translate.holder(workload(status=status))
    assert held.admission is not None
    assert usage_of(held, held.admission) == ((FlavorResource("spot", "cpu"), 4000),)


@pytest.mark.parametrize(("stated", "read"), [(1000, 1000), (None, 0), ("high", 0)])
def test_e_holder_that_cannot_be_read_keeps_its_priority(stated: object, read: int) -> None:
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": []},
    }
    assert translate.holder(workload(status=status, podSets="nonsense", priority=stated)).priority == read


def test_a_workload_that_holds_nothing_has_nothing_to_keep() -> None:
    with pytest.raises(Malformed, match="QuotaReserved must be True"):
        translate.holder(workload())


LEFTOVER = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "resourceUsage": {"cpu": "1"}}]}


@pytest.mark.parametrize("conditions", [[], [{"type": "QuotaReserved", "status": "False"}]])
def test_a2_admission_without_true_condition_holds_nothing(conditions: list[Any]) -> None:
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"}
    obj = workload(status={"conditions": [*conditions, admitted], "admission": LEFTOVER})
    read = translate.workload(obj, NAMES)
    assert (read.admission, read.admitted, read.reserved_at) == (None, False, 0)
    with pytest.raises(Malformed):
        translate.holder(obj)


def test_a2_true_condition_without_admission_is_malformed_and_holds_nothing() -> None:
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"}
    obj = workload(status={"conditions": [reserved]})
    for read in (lambda: translate.workload(obj, NAMES), lambda: translate.holder(obj)):
        with pytest.raises(Malformed, match=r"^status\.admission: "):
            read()


def test_a6_admission_without_flavors_and_usage_is_written_without_empty_maps() -> None:
    written = translate.admission_status(Admission("cq", (PodSetAssignment("main", (), (), 2),)))
    assert written["podSetAssignments"] == [{"name": "main", "count": 2}]
    assert translate.pod_set_request("main", ()) == {"name": "main"}


EXCLUDED = SelectorRequirement(NAMESPACE_NAME, SelectorOperator.NOT_IN, ("kube-system", "queues"))
TEAM = SelectorRequirement("team", SelectorOperator.EXISTS)


@pytest.mark.parametrize(
    ("given", "requirements"),
    [
        pytest.param("{}", (EXCLUDED,), id="everything"),
        pytest.param("{matchExpressions: [{key: team, operator: Exists}]}", (TEAM, EXCLUDED), id="some"),
        pytest.param(
            "{matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}",
            (SelectorRequirement(NAMESPACE_NAME, SelectorOperator.EXISTS), EXCLUDED),
            id="all that have a name",
        ),
        pytest.param(
            "{matchExpressions: "
            "[{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, queues]}]}",
            (EXCLUDED,),
            id="what is excluded anyway",
        ),
    ],
)
def test_managed_namespaces_never_include_the_system_and_our_own(
    given: str, requirements: tuple[SelectorRequirement, ...]
) -> None:
    configuration = load_configuration(f"{HEAD}namespace: queues\nmanagedJobsNamespaceSelector: {given}\n")
    selector = translate.managed_namespaces(configuration)
    assert selector == LabelSelector(requirements)
    for namespace in ("kube-system", "queues"):
        assert not matches(selector, {NAMESPACE_NAME: namespace, "team": "a"})
    assert matches(selector, {NAMESPACE_NAME: "other", "team": "a"})

"""Validation of Workloads: the object, its status, and changes while quota is reserved."""

from typing import Any

import pytest

from admitq_api.labels import COMPAT_GROUP, names_for
from tests.unit.webhooks.support import NAMES, call_own_webhook, call_webhook

ELASTIC = {NAMES.elastic_job: "true"}
RESERVED = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}


def pod_set(
    name: str = "main", count: int | None = 4, *, spec: dict[str, Any] | None = None, **fields: Any
) -> Any:
    template = {"metadata": {}, "spec": spec or {"containers": [{"name": "c"}]}}
    counted = {} if count is None else {"count": count}
    return {"name": name, "template": template, **counted, **fields}


def a_workload(
    *pod_sets: Any, annotations: dict[str, str] | None = None, status: Any = None, **spec: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "w", "namespace": "team"}
    if annotations:
        metadata["annotations"] = annotations
    workload: dict[str, Any] = {
        "metadata": metadata,
        "spec": {"podSets": list(pod_sets or [pod_set()]), **spec},
    }
    if status is not None:
        workload["status"] = status
    return workload


def assignment(count: int = 4, usage: dict[str, Any] | None = None, name: str = "main", **fields: Any) -> Any:
    return {
        "name": name,
        "flavors": {"cpu": "spot"},
        "count": count,
        "resourceUsage": {"cpu": "4"} if usage is None else usage,
        **fields,
    }


def reserved_status(*assignments: Any, **status: Any) -> dict[str, Any]:
    admission = {"clusterQueue": "q", "podSetAssignments": list(assignments or [assignment()])}
    return {**RESERVED, "admission": admission, **status}


def pod_spec(**resources: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": resources}]}


async def check(new: Any, old: Any = None, **options: Any) -> Any:
    return await call_own_webhook("validate", "Workload", new, old, **options)


VALID = [
    a_workload(),
    a_workload(pod_set(minCount=2), pod_set("other")),
    a_workload(pod_set(count=None)),
    a_workload(pod_set(spec=pod_spec(requests={"cpu": "1", "memory": "1e3"}, limits={"cpu": "0"}))),
    a_workload(pod_set(spec=pod_spec(requests={"memory": "1e30"}))),
    a_workload(pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2})),
    a_workload(annotations={NAMES.admission_gated_by: "a.b/c"}),
    a_workload(annotations={NAMES.priority_boost: ""}),
    a_workload(status={"conditions": [{"type": "QuotaReserved", "status": "False"}]}),
    a_workload(status=reserved_status()),
    a_workload(pod_set(count=3), status=reserved_status(assignment(3, {"cpu": "1500m", "memory": "3Gi"}))),
    a_workload(pod_set(count=0), status=reserved_status(assignment(0, {"cpu": "0"}))),
    a_workload(status={"reclaimablePods": [{"name": "main", "count": 4}]}),
    a_workload(
        status={
            "admissionChecks": [
                {
                    "name": "c",
                    "podSetUpdates": [{"name": "main", "labels": {"a": "b"}, "nodeSelector": {"c": "d"}}],
                }
            ]
        }
    ),
]


@pytest.mark.parametrize("workload", VALID)
async def test_valid_workload_is_accepted(workload: Any) -> None:
    assert (await check(workload)).response == {"uid": "the-uid", "allowed": True}
    assert (await check(workload, workload)).allowed


SPEC = "spec.podSets[0].template.spec"
TOPOLOGY = "spec.podSets[0].topologyRequest"
UPDATES = "status.admissionChecks[0].podSetUpdates[0]"


def with_podset_update(**update: Any) -> Any:
    return a_workload(
        status={"admissionChecks": [{"name": "c", "podSetUpdates": [{"name": "main", **update}]}]}
    )


INVALID: list[tuple[Any, str, str]] = [
    (
        a_workload(pod_set(minCount=1), pod_set("other", minCount=1)),
        "spec.podSets",
        "at most one podSet can use minCount",
    ),
    (
        a_workload(pod_set(minCount=1), annotations=ELASTIC),
        "spec.podSets[0].minCount",
        "partial admission and elastic job cannot be used together",
    ),
    (
        a_workload(pod_set(spec=pod_spec(requests={"pods": "1"}))),
        f"{SPEC}.containers[0].resources.requests[pods]",
        "the key is reserved for internal admitq use",
    ),
    (
        a_workload(pod_set(spec=pod_spec(limits={"pods": "1"}))),
        f"{SPEC}.containers[0].resources.limits[pods]",
        "reserved",
    ),
    (
        a_workload(pod_set(spec={"initContainers": [{"resources": {"requests": {"pods": 1}}}]})),
        f"{SPEC}.initContainers[0].resources.requests[pods]",
        "reserved",
    ),
    (
        a_workload(pod_set(spec={"resources": {"requests": {"pods": 1}}})),
        f"{SPEC}.resources.requests[pods]",
        "reserved",
    ),
    (
        a_workload(pod_set(spec=pod_spec(requests={"cpu": "-5"}))),
        f"{SPEC}.containers[0].resources.requests[cpu]",
        "must be greater than or equal to 0",
    ),
    (
        a_workload(pod_set(spec={"resources": {"limits": {"memory": "-1"}}})),
        f"{SPEC}.resources.limits[memory]",
        "must be greater than or equal to 0",
    ),
    (
        a_workload({**pod_set(), "template": {"metadata": {"labels": {"no key": "v"}}}}),
        "spec.podSets[0].template.metadata.labels",
        "name part",
    ),
    (
        a_workload({**pod_set(), "template": {"metadata": {"labels": {"key": "no value!"}}}}),
        "spec.podSets[0].template.metadata.labels[key]",
        "a valid label",
    ),
    (
        a_workload({**pod_set(), "template": {"metadata": {"annotations": {"no key": "v"}}}}),
        "spec.podSets[0].template.metadata.annotations",
        "name part",
    ),
    (
        a_workload({**pod_set(), "template": {"metadata": {"annotations": {"key": "v" * 262144}}}}),
        "spec.podSets[0].template.metadata.annotations",
        "may not be more than 262144 bytes",
    ),
    (
        a_workload(pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack"})),
        f"{TOPOLOGY}.podSetSliceSize",
        "Required value",
    ),
    (
        a_workload(pod_set(topologyRequest={"podSetSliceSize": 1})),
        f"{TOPOLOGY}.podSetSliceRequiredTopology",
        "Required value",
    ),
    (
        a_workload(pod_set(topologyRequest={"podSetSliceRequiredTopology": "r", "podSetSliceSize": 0})),
        f"{TOPOLOGY}.podSetSliceSize",
        "greater than 0",
    ),
    (
        a_workload(pod_set(topologyRequest={"podsetSliceRequiredTopologyConstraints": [{"size": 0}]})),
        f"{TOPOLOGY}.podsetSliceRequiredTopologyConstraints[0].size",
        "greater than 0",
    ),
    (
        a_workload(status=RESERVED),
        "status.admission",
        "must be set while the QuotaReserved condition is true",
    ),
    (
        a_workload(status=reserved_status(assignment(name="other"))),
        "status.admission.podSetAssignments[0].name",
        'Not found: "other"',
    ),
    (
        a_workload(status=reserved_status(assignment(3, {"cpu": "1"}))),
        "status.admission.podSetAssignments[0].resourceUsage[cpu]",
        "is not a multiple of 3",
    ),
    (
        a_workload(status={"reclaimablePods": [{"name": "other", "count": 1}]}),
        "status.reclaimablePods[0].name",
        'supported values: "main"',
    ),
    (
        a_workload(status={"reclaimablePods": [{"name": "main", "count": 5}]}),
        "status.reclaimablePods[0].count",
        "should be less or equal to 4",
    ),
    (with_podset_update(name="other"), f"{UPDATES}.name", "Unsupported value"),
    (with_podset_update(labels={"no key": "v"}), f"{UPDATES}.labels", "name part"),
    (with_podset_update(annotations={"no key": "v"}), f"{UPDATES}.annotations", "name part"),
    (with_podset_update(nodeSelector={"key": "no value!"}), f"{UPDATES}.nodeSelector[key]", "a valid label"),
    (
        with_podset_update(tolerations=[{"operator": "Near"}]),
        f"{UPDATES}.tolerations[0].operator",
        "Unsupported value",
    ),
]


@pytest.mark.parametrize(("workload", "field", "message"), INVALID)
async def test_invalid_workload_is_rejected_on_create_and_update(
    workload: Any, field: str, message: str
) -> None:
    for old in (None, a_workload()):
        answer = await check(workload, old)
        assert not answer.allowed
        assert f"{field}: " in answer.message
        assert message in answer.message


@pytest.mark.parametrize(
    ("gate", "workload"),
    [
        (
            "WorkloadValidateResourcesAreNonNegative",
            a_workload(pod_set(spec=pod_spec(requests={"cpu": "-5"}))),
        ),
        (
            "WorkloadValidationForPodSetMetadata",
            a_workload({**pod_set(), "template": {"metadata": {"labels": {"no key": "v"}}}}),
        ),
        (
            "TASValidateWorkloadSliceSize",
            a_workload(pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack"})),
        ),
        ("AdmissionGatedBy", a_workload(annotations={NAMES.admission_gated_by: "bad"})),
    ],
)
async def test_disabled_gate_disables_its_validation_rule(gate: str, workload: Any) -> None:
    assert not (await check(workload)).allowed
    assert (await check(workload, gates={gate: False})).allowed


@pytest.mark.parametrize(
    ("boost", "allowed"),
    [("5", True), ("-5", True), ("+5", True), ("", False), ("1.5", False), ("2147483648", False)],
)
async def test_priority_boost_must_be_a_signed_integer(boost: str, allowed: bool) -> None:
    workload = a_workload(annotations={NAMES.priority_boost: boost})
    assert (await check(workload, gates={"PriorityBoost": True})).allowed is allowed


async def test_stored_reservation_without_admission_is_tolerated() -> None:
    stored = a_workload(status=RESERVED)
    assert (await check({**stored, "metadata": {"labels": {"a": "b"}}}, stored)).allowed


FINISHED = {"type": "Finished", "status": "True", "reason": "Succeeded"}


@pytest.mark.parametrize(
    "stored",
    [
        a_workload(status=reserved_status(assignment(usage={"memory": "5"}))),
        a_workload(pod_set(spec=pod_spec(requests={"cpu": "-5"})), status=reserved_status()),
        a_workload(status=reserved_status(reclaimablePods=[{"name": "main", "count": 9}])),
    ],
    ids=["usage", "podset", "reclaimable"],
)
async def test_e_invalid_stored_workload_can_be_finished(stored: Any) -> None:
    finished = {**stored["status"], "conditions": [*RESERVED["conditions"], FINISHED]}
    assert not (await check(stored)).allowed
    assert (await check({**stored, "status": finished}, stored)).allowed


async def test_e_changed_field_of_invalid_stored_workload_must_be_valid() -> None:
    stored = a_workload(status=reserved_status(assignment(usage={"memory": "5"})))
    assert not (
        await check(a_workload(status=reserved_status(assignment(usage={"memory": "7"}))), stored)
    ).allowed


async def test_disabled_partial_admission_removes_min_counts() -> None:
    workload = a_workload(pod_set(minCount=2), pod_set("other"))
    assert (await call_own_webhook("mutate", "Workload", workload)).patch is None
    answer = await call_own_webhook("mutate", "Workload", workload, gates={"PartialAdmission": False})
    assert answer.after == a_workload(pod_set(), pod_set("other"))
    without_min_counts = a_workload()
    answer = await call_own_webhook(
        "mutate", "Workload", without_min_counts, gates={"PartialAdmission": False}
    )
    assert answer.patch is None


# --- changes ----------------------------------------------------------------------------------------


def reserved_workload(**fields: Any) -> Any:
    return a_workload(status=reserved_status(**fields))


READY = {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}

ALLOWED_CHANGES = [
    pytest.param(a_workload(), a_workload(pod_set(count=9)), id="podsets without reservation"),
    pytest.param(a_workload(), reserved_workload(), id="reserve"),
    pytest.param(reserved_workload(), a_workload(status={}), id="remove the reservation"),
    pytest.param(
        reserved_workload(),
        {**reserved_workload(), "spec": {**reserved_workload()["spec"], "priority": 9}},
        id="priority",
    ),
    pytest.param(
        reserved_workload(reclaimablePods=[{"name": "main", "count": 1}]),
        reserved_workload(reclaimablePods=[{"name": "main", "count": 2}]),
        id="more reclaimable pods",
    ),
    pytest.param(
        reserved_workload(reclaimablePods=[{"name": "main", "count": 1}]),
        a_workload(status={}),
        id="reclaimable reset",
    ),
    pytest.param(
        reserved_workload(),
        a_workload(status=reserved_status(assignment(topologyAssignment={"levels": ["rack"]}))),
        id="placed",
    ),
    pytest.param(
        a_workload(annotations=ELASTIC, status=reserved_status()),
        a_workload(
            pod_set(count=2), annotations=ELASTIC, status=reserved_status(assignment(2, {"cpu": "2"}))
        ),
        id="elastic scale down",
    ),
    pytest.param(
        a_workload(
            annotations=ELASTIC, status=reserved_status(reclaimablePods=[{"name": "main", "count": 3}])
        ),
        a_workload(
            pod_set(count=2), annotations=ELASTIC, status=reserved_status(assignment(2, {"cpu": "2"}))
        ),
        id="elastic scale down below the reclaimable pods",
    ),
    pytest.param(
        reserved_workload(admissionChecks=[READY]),
        reserved_workload(admissionChecks=[{**READY, "state": "Pending", "podSetUpdates": []}]),
        id="updates of a check that is no longer ready",
    ),
    pytest.param(
        a_workload(status={"nominatedClusterNames": ["a", "b"]}),
        a_workload(status={"clusterName": "b"}),
        id="nominated cluster chosen",
    ),
    pytest.param(
        a_workload(status={"clusterName": "a"}), a_workload(status={"clusterName": "a"}), id="cluster kept"
    ),
    pytest.param(
        {**reserved_workload(), "metadata": {"deletionTimestamp": "t"}},
        a_workload(pod_set("renamed")),
        id="being deleted",
    ),
]


@pytest.mark.parametrize(("old", "new"), ALLOWED_CHANGES)
async def test_valid_workload_change_is_accepted(old: Any, new: Any) -> None:
    assert (await check(new, old)).response == {"uid": "the-uid", "allowed": True}


INVALID_CHANGES = [
    (
        reserved_workload(),
        a_workload(pod_set(count=5), status=reserved_status()),
        "spec.podSets",
        "field is immutable",
    ),
    (reserved_workload(), a_workload(pod_set(count=5), status={}), "spec.podSets", "field is immutable"),
    (
        a_workload(annotations=ELASTIC, status=reserved_status()),
        a_workload(pod_set(count=5), annotations=ELASTIC, status=reserved_status()),
        "spec.podSets",
        "field is immutable",
    ),
    (
        a_workload(annotations=ELASTIC, status=reserved_status()),
        a_workload(
            pod_set(spec=pod_spec(requests={"cpu": "9"})), annotations=ELASTIC, status=reserved_status()
        ),
        "spec.podSets",
        "field is immutable",
    ),
    (
        reserved_workload(reclaimablePods=[{"name": "main", "count": 2}]),
        reserved_workload(reclaimablePods=[{"name": "main", "count": 1}]),
        "status.reclaimablePods[0].count",
        "cannot be less than 2",
    ),
    (
        reserved_workload(reclaimablePods=[{"name": "main", "count": 2}]),
        reserved_workload(),
        "status.reclaimablePods[main]",
        "cannot be removed",
    ),
    (
        reserved_workload(),
        a_workload(
            status={
                **reserved_status(),
                "admission": {"clusterQueue": "r", "podSetAssignments": [assignment()]},
            }
        ),
        "status.admission",
        "field is immutable",
    ),
    (
        reserved_workload(),
        a_workload(status=reserved_status(assignment(usage={"cpu": "8"}))),
        "status.admission",
        "field is immutable",
    ),
    (
        reserved_workload(admissionChecks=[READY]),
        reserved_workload(admissionChecks=[{**READY, "podSetUpdates": []}]),
        "status.admissionChecks[0].podSetUpdates",
        "field is immutable",
    ),
    (
        a_workload(status={"nominatedClusterNames": ["a", "b"]}),
        a_workload(status={"clusterName": "c"}),
        "status.clusterName",
        "must be one of the nominatedClusterNames",
    ),
    (
        a_workload(),
        a_workload(annotations={NAMES.admission_gated_by: "a.b/c"}),
        f"metadata.annotations[{NAMES.admission_gated_by}]",
        "cannot add admission gate after creation",
    ),
]


@pytest.mark.parametrize(("old", "new", "field", "message"), INVALID_CHANGES)
async def test_invalid_workload_change_is_rejected(old: Any, new: Any, field: str, message: str) -> None:
    answer = await check(new, old)
    assert not answer.allowed
    assert f"{field}: " in answer.message
    assert message in answer.message


async def test_topology_assignment_is_immutable_without_topology_aware_scheduling() -> None:
    placed = a_workload(status=reserved_status(assignment(topologyAssignment={"levels": ["rack"]})))
    assert not (await check(placed, reserved_workload(), gates={"TopologyAwareScheduling": False})).allowed


async def test_elastic_workload_scale_down_is_rejected_without_the_gate() -> None:
    old = a_workload(annotations=ELASTIC, status=reserved_status())
    new = a_workload(pod_set(count=2), annotations=ELASTIC, status=reserved_status())
    assert not (await check(new, old, gates={"ElasticJobsViaWorkloadSlices": False})).allowed


async def test_replacement_slice_may_use_cluster_that_is_not_nominated() -> None:
    replacing = {**ELASTIC, NAMES.workload_slice_replacement_for: "team/first"}
    old = a_workload(annotations=replacing, status={"nominatedClusterNames": ["a"]})
    new = a_workload(annotations=replacing, status={"clusterName": "c"})
    assert (await check(new, old)).allowed


async def test_rejection_message_names_product_of_api_group() -> None:
    names = names_for(COMPAT_GROUP)
    workload = a_workload(pod_set(spec=pod_spec(requests={"pods": "1"})))
    answer = await call_webhook(
        "/validate-kueue-x-k8s-io-v1beta2-workload",
        workload,
        gvk=(names.group, names.version, "Workload"),
        names=names,
    )
    assert "the key is reserved for internal kueue use" in answer.message


# --- scale-down -------------------------------------------------------------------------------------

GATE_OFF = {"ElasticJobsViaWorkloadSlices": False}


@pytest.mark.parametrize("annotations", [None, ELASTIC], ids=["plain", "elastic"])
async def test_c14_lower_count_of_a_reserved_workload_is_accepted_with_the_gate(annotations: Any) -> None:
    old = a_workload(annotations=annotations, status=reserved_status())
    new = a_workload(pod_set(count=3), annotations=annotations, status=reserved_status())
    assert (await check(new, old)).allowed
    answer = await check(new, old, gates=GATE_OFF)
    assert not answer.allowed
    assert "spec.podSets: " in answer.message


async def test_c14_lower_count_with_other_podset_change_is_rejected() -> None:
    new = a_workload(pod_set(count=3, spec=pod_spec(requests={"cpu": "9"})), status=reserved_status())
    assert "field is immutable" in (await check(new, reserved_workload())).message


async def test_c14_scale_down_below_reclaimable_pods_is_accepted_and_lets_them_shrink() -> None:
    stale = reserved_status(reclaimablePods=[{"name": "main", "count": 3}])
    scaled = a_workload(pod_set(count=2), status=stale)
    assert (await check(scaled, a_workload(status=stale))).allowed
    refreshed = a_workload(
        pod_set(count=2), status=reserved_status(reclaimablePods=[{"name": "main", "count": 2}])
    )
    assert (await check(refreshed, scaled)).allowed


@pytest.mark.parametrize("annotations", [{}, ELASTIC], ids=["plain", "elastic"])
async def test_c14_first_cluster_name_of_a_replacement_slice_needs_no_nomination(annotations: Any) -> None:
    replacing = {**annotations, NAMES.workload_slice_replacement_for: "team/first"}
    old, new = (
        a_workload(annotations=replacing),
        a_workload(annotations=replacing, status={"clusterName": "a"}),
    )
    assert (await check(new, old)).allowed
    answer = await check(new, old, gates=GATE_OFF)
    assert "must be one of the nominatedClusterNames" in answer.message


async def test_c15_reclaimable_pods_of_an_elastic_workload_may_shrink() -> None:
    def elastic(count: int) -> Any:
        reclaimable = [{"name": "main", "count": count}] if count else []
        return a_workload(annotations=ELASTIC, status=reserved_status(reclaimablePods=reclaimable))

    assert (await check(elastic(1), elastic(3))).allowed
    assert (await check(elastic(0), elastic(3))).allowed
    assert not (await check(elastic(1), elastic(3), gates=GATE_OFF)).allowed


# --- quantities beyond int64 ------------------------------------------------------------------------


@pytest.mark.parametrize("used", ["1E", "1e30", "8Ei"])
async def test_c16_resource_usage_beyond_int64_is_accepted(used: str) -> None:
    assert (await check(a_workload(status=reserved_status(assignment(3, {"cpu": used}))))).allowed


@pytest.mark.parametrize("requested", ["1E", "1e1000000"])
async def test_c16_requests_beyond_int64_are_accepted(requested: str) -> None:
    assert (await check(a_workload(pod_set(spec=pod_spec(requests={"cpu": requested}))))).allowed

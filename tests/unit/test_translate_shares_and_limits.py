"""What is read beside the templates: priorities, places in the queue, shares, limits and overheads."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from admitq import translate
from admitq.core.model import SECOND, LimitedType, LimitRangeItem, ObjectKey
from admitq.translate import Malformed, Reading
from admitq_api import conditions
from admitq_api.configuration import Configuration, load_configuration
from admitq_api.feature_gates import FeatureGates, gate_named
from admitq_api.labels import names_for

NAMES = names_for()
CREATED = "2026-03-01T10:00:00Z"
LATER = "2026-03-01T11:00:00Z"


def workload(*, status: dict[str, Any] | None = None, **spec: Any) -> Any:
    metadata = {"name": "w", "namespace": "team", "uid": "u-1", "creationTimestamp": CREATED}
    return {"metadata": metadata, "spec": {"queueName": "main", **spec}, "status": status or {}}


def condition(type_: str, status: str = "True", reason: str = "R", at: str = CREATED) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


@pytest.mark.parametrize(
    ("preempted", "moves", "moved_by"),
    [
        (
            condition("Preempted", reason="InCohortReclaimWhileBorrowing", at=LATER),
            True,
            3600 * SECOND + 10**6,
        ),
        (condition("Preempted", reason="InCohortReclaimWhileBorrowing", at=LATER), False, 0),
        (condition("Preempted", reason="InClusterQueue", at=LATER), True, 0),
        (condition("Preempted", "False", reason="InCohortReclaimWhileBorrowing", at=LATER), True, 0),
    ],
)
def test_one_kind_of_preemption_may_cost_the_place(
    preempted: dict[str, Any], moves: bool, moved_by: int
) -> None:
    obj = workload(status={"conditions": [condition("Evicted", reason="Preempted", at=LATER), preempted]})
    at = translate.queue_order_timestamp(obj, Reading(reclaim_moves_to_back=moves))
    assert at - conditions.parse_time(CREATED) == moved_by


@pytest.mark.parametrize(
    ("boost", "boosts", "expected"),
    [(None, True, (5, 0)), ("-7", True, (5, -7)), ("+3", True, (5, 3)), ("3", False, (5, 0))],
)
def test_a_boost_adds_to_the_priority(boost: str | None, boosts: bool, expected: tuple[int, int]) -> None:
    obj = workload(priority=5)
    if boost is not None:
        obj["metadata"]["annotations"] = {NAMES.priority_boost: boost}
    how = Reading(boosts=boosts)
    assert translate.priority_of(obj, NAMES, how) == expected
    assert translate.workload(obj, NAMES, how).priority == sum(expected)


@pytest.mark.parametrize(
    ("file", "gate", "changed"),
    [
        ("", "PriorityBoost", {"boosts": True}),
        ("", "PrioritySortingWithinCohort", {"reclaim_moves_to_back": True}),
        ("", "AdmissionGatedBy", {"gated": False}),
        ("", "ElasticJobsViaWorkloadSlices", {"replaces": False}),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Creation}}",
            None,
            {"eviction_moves_to_back": False},
        ),
    ],
)
def test_configuration_and_gates_say_how_workloads_are_read(
    file: str, gate: str | None, changed: dict[str, bool]
) -> None:
    by_default = FeatureGates()
    switched = FeatureGates({gate_named(gate): not by_default[gate_named(gate)]}) if gate else by_default
    usual = translate.reading(Configuration(), by_default)
    head = f"apiVersion: {NAMES.config_api_version}\nkind: Configuration\n"
    assert translate.reading(load_configuration(head + file), switched) == replace(usual, **changed) != usual


def test_a_boost_that_is_no_number_is_malformed() -> None:
    obj = workload()
    obj["metadata"]["annotations"] = {NAMES.priority_boost: "high"}
    with pytest.raises(Malformed, match="must be a whole number"):
        translate.workload(obj, NAMES, Reading(boosts=True))


@pytest.mark.parametrize("boost", ["high", "", "9" * 5000, str(2**31), "1_0"])
def test_e_priority_is_the_stated_one_where_another_program_wrote_no_boost(boost: str) -> None:
    obj = workload(priority=7)
    obj["metadata"]["annotations"] = {NAMES.priority_boost: boost}
    how = Reading(boosts=True)
    with pytest.raises(Malformed, match="must be a whole number"):
        translate.priority_of(obj, NAMES, how)
    assert translate.readable_priority(obj, NAMES, how) == (7, 0)


@pytest.mark.parametrize(
    ("annotation", "gate", "expected"),
    [
        ("team/first", True, ObjectKey("team", "first")),
        ("team/first", False, None),
        ("elsewhere/first", True, None),
        ("first", True, None),
        ("", True, None),
        (None, True, None),
    ],
)
def test_a_slice_replaces_who_its_annotation_names(
    annotation: str | None, gate: bool, expected: ObjectKey | None
) -> None:
    obj = workload()
    if annotation is not None:
        obj["metadata"]["annotations"] = {NAMES.workload_slice_replacement_for: annotation}
    assert translate.workload(obj, NAMES, Reading(replaces=gate)).replaces == expected


def test_what_is_reserved_is_so_since_the_condition_says() -> None:
    state = [condition("QuotaReserved", at=LATER), condition("PodsReady")]
    admission = {"clusterQueue": "cq", "podSetAssignments": []}
    read = translate.workload(workload(status={"conditions": state, "admission": admission}), NAMES)
    assert read.reserved_at == conditions.parse_time(LATER)
    assert read.pods_ready
    assert translate.workload(workload(), NAMES).reserved_at == 0


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(None, Fraction(1)), ("0", Fraction(0)), ("500m", Fraction(1, 2)), (2, Fraction(2))],
)
def test_weights_are_exact(weight: object, expected: Fraction) -> None:
    spec: dict[str, Any] = {"clusterQueue": "cq"} | (
        {} if weight is None else {"fairSharing": {"weight": weight}}
    )
    obj = {"metadata": {"name": "q", "namespace": "team"}, "spec": spec}
    assert translate.cluster_queue(obj).fair_weight == expected
    assert translate.cohort(obj).fair_weight == expected
    assert translate.local_queue(obj).fair_weight == expected


@pytest.mark.parametrize(
    ("mode", "usage_based"),
    [("UsageBasedAdmissionFairSharing", True), ("NoAdmissionFairSharing", False), (None, False)],
)
def test_queues_take_turns_where_the_admission_mode_says_so(mode: str | None, usage_based: bool) -> None:
    scope = {} if mode is None else {"admissionScope": {"admissionMode": mode}}
    assert (
        translate.cluster_queue({"metadata": {"name": "q"}, "spec": scope}).usage_based_admission
        is usage_based
    )


def test_what_a_local_queue_consumed_is_read_from_its_status() -> None:
    told = {"consumedResources": {"memory": "1Gi", "cpu": "1500m"}, "lastUpdate": CREATED}
    obj: dict[str, Any] = {
        "metadata": {"name": "q", "namespace": "team"},
        "status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": told}},
    }
    read = translate.local_queue(obj).consumed
    assert read is not None
    assert read.consumed == (("cpu", 1500), ("memory", 2**30))
    assert read.at == conditions.parse_time(CREATED)
    del obj["status"]["fairSharing"]["admissionFairSharingStatus"]
    assert translate.local_queue(obj).consumed is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"consumedResources": {"cpu": "-1", "memory": "1"}}, (("cpu", 0), ("memory", 1))),
        ({"consumedResources": {"cpu": "much", "memory": "1"}}, (("memory", 1),)),
        ({"lastUpdate": "2026-01-01T00:00:00+99:00"}, None),
        ({"lastUpdate": None, "consumedResources": {"cpu": "1"}}, None),
    ],
    ids=["negative", "unreadable", "another-time", "no-time"],
)
def test_e_consumption_that_another_program_wrote_keeps_no_local_queue_from_being_read(
    told: Any, expected: Any
) -> None:
    past = {"lastUpdate": CREATED, **told}
    obj: dict[str, Any] = {
        "metadata": {"name": "q", "namespace": "team"},
        "status": {"fairSharing": {"admissionFairSharingStatus": past}},
    }
    read = translate.local_queue(obj).consumed
    assert (None if read is None else read.consumed) == expected


def test_a_limit_range_rules_for_containers_and_pods_only() -> None:
    limits = [
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
        {
            "type": "Container",
            "max": {"cpu": "2"},
            "min": {"cpu": "10m"},
            "default": {"cpu": "1"},
            "defaultRequest": {"cpu": "500m"},
        },
        {"type": "Pod", "max": {"memory": "1Gi"}},
    ]
    read = translate.limit_range({"metadata": {"name": "l"}, "spec": {"limits": limits}})
    assert read.items == (
        LimitRangeItem(
            LimitedType.CONTAINER,
            maximum=(("cpu", Fraction(2)),),
            minimum=(("cpu", Fraction(1, 100)),),
            default_limits=(("cpu", Fraction(1)),),
            default_requests=(("cpu", Fraction(1, 2)),),
        ),
        LimitRangeItem(LimitedType.POD, maximum=(("memory", Fraction(2**30)),)),
    )


@pytest.mark.parametrize(
    ("stated", "limits", "requests"),
    [
        ({"max": {"cpu": "2"}}, 2, 2),
        ({"min": {"cpu": "1"}}, None, 1),
        ({"max": {"cpu": "3"}, "min": {"cpu": "1"}}, 3, 3),
        ({"max": {"cpu": "3"}, "default": {"cpu": "2"}}, 2, 2),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, 2, 1),
    ],
)
def test_a_limit_range_defaults_as_the_api_server_does(
    stated: dict[str, Any], limits: int | None, requests: int
) -> None:
    def cpu(amount: int | None) -> tuple[tuple[str, Fraction], ...]:
        return () if amount is None else (("cpu", Fraction(amount)),)

    for type_, expected in (
        ("Container", (cpu(limits), cpu(requests))),
        (
            "Pod",
            tuple(
                cpu(int(stated.get(name, {}).get("cpu", 0)) or None) for name in ("default", "defaultRequest")
            ),
        ),
    ):
        spec = {"limits": [{"type": type_, **stated}]}
        (item,) = translate.limit_range({"metadata": {"name": "l"}, "spec": spec}).items
        assert (item.default_limits, item.default_requests) == expected


def test_amounts_beyond_counting_are_still_quantities() -> None:
    assert translate.quantities((("cpu", 2**63 - 1), ("memory", 2**63 - 1), ("pods", 3))) == {
        "cpu": "9223372036854775807m",
        "memory": "9223372036854775807",
        "pods": "3",
    }


def test_the_overhead_of_a_runtime_class() -> None:
    assert translate.overhead({"metadata": {"name": "r"}}) == ()
    fixed = {"podFixed": {"memory": "64Mi", "cpu": "250m"}}
    assert translate.overhead({"metadata": {"name": "r"}, "overhead": fixed}) == (
        ("cpu", Fraction(1, 4)),
        ("memory", Fraction(64 * 2**20)),
    )


@pytest.mark.parametrize("amount", ["much", "-1"])
def test_an_overhead_that_cannot_be_read_is_malformed(amount: str) -> None:
    with pytest.raises(Malformed, match=r"overhead\.podFixed\[cpu\]"):
        translate.overhead({"metadata": {"name": "r"}, "overhead": {"podFixed": {"cpu": amount}}})

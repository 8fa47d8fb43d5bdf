"""Pods that outlive a job: which pods they are, which are in excess, and when they are checked."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.controllers.pods.pod_index import belongs_to, may_run
from admitq.controllers.pods.remaining_pods import (
    find_excess_remaining_pods,
    next_check_seconds,
    next_list_seconds,
)
from tests.unit.controllers.builders import NAMES, TEMPLATE, admitted, condition, instant, timestamp, workload
from tests.unit.controllers.pods.remaining_pods import (
    FIVE_PODS,
    HELD_SLICE,
    LARGER_SLICE,
    ORPHANED,
    SLICE,
    aged_pod,
    pod,
    slice_of,
)


@pytest.mark.parametrize(
    ("pod_", "expected"),
    [
        (pod(), True),
        (pod(status={"phase": "Pending"}), True),
        (pod(status={}), True),
        (pod(spec={"nodeName": "n"}, deletionTimestamp=timestamp(0)), True),
        (pod(deletionTimestamp=timestamp(0)), False),
        (pod(status={"phase": "Succeeded"}), False),
        (pod(status={"phase": "Failed"}), False),
        (pod(spec={"schedulingGates": [{"name": "example.com/other"}]}), True),
        (pod(spec={"schedulingGates": [{"name": NAMES.elastic_gate}]}), False),
        (pod(spec={"schedulingGates": [{"name": NAMES.admission_gate}]}), False),
        (pod(spec={"schedulingGates": [{"name": NAMES.topology_gate}]}), False),
    ],
)
def test_pod_may_run_until_it_has_ended_unless_it_cannot_start(pod_: dict[str, Any], expected: bool) -> None:
    assert may_run(pod_, NAMES) is expected


FOR_FIVE = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 5, "flavors": {}}]}


BARE: dict[str, Any] = {"labels": {}}


OF_JOB: dict[str, Any] = {"labels": {"batch.kubernetes.io/controller-uid": "uid-j"}}


@pytest.mark.parametrize(
    ("metadata", "of", "expected"),
    [
        ({**BARE, "annotations": {NAMES.workload: "job-j-1"}}, admitted(owner=None), True),
        ({**BARE, "annotations": {NAMES.workload: "another"}}, admitted(), False),
        ({**BARE, **SLICE}, admitted(metadata=SLICE), True),
        ({**BARE, **SLICE}, admitted(), False),
        ({**BARE, "ownerReferences": [{"uid": "uid-j"}]}, admitted(), True),
        ({**BARE, "ownerReferences": [{"uid": "another"}]}, admitted(), False),
        ({**BARE, "uid": "uid-p"}, admitted(owner={"kind": "Pod", "name": "p", "uid": "uid-p"}), True),
        ({"labels": {"jobset.sigs.k8s.io/jobset-uid": "uid-j"}}, admitted(), True),
        (OF_JOB, admitted(owner=None, metadata=ORPHANED), True),
        (OF_JOB, admitted(owner=None), False),
    ],
)
def test_pod_belongs_to_workload_that_its_annotation_or_the_uid_of_its_job_names(
    metadata: dict[str, Any], of: dict[str, Any], expected: bool
) -> None:
    assert belongs_to(pod(**metadata), of, NAMES) is expected


@pytest.mark.parametrize(("seconds", "expected"), [(0, 1.0), (2, 1.0), (8, 4.0), (1000, 15.0)])
def test_next_check_is_later_the_longer_pods_remain(seconds: int, expected: float) -> None:
    outlived = admitted(condition("PodsOutliveJob", True, "PodsRunning", since=100))
    assert next_check_seconds(outlived, instant(100 + seconds)) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0, 15.0), (30, 15.0), (80, 40.0), (1000, 120.0)])
def test_next_list_is_later_the_longer_pods_remain(seconds: int, expected: float) -> None:
    outlived = admitted(condition("PodsOutliveJob", True, "PodsRunning", since=100))
    assert next_list_seconds(outlived, instant(100 + seconds)) == expected


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [
        ([aged_pod("a", 1), aged_pod("b", 2), aged_pod("c", 3)], []),
        (
            [
                aged_pod("d", 4),
                aged_pod("b", 2),
                aged_pod("e", 5),
                aged_pod("c", 3),
                aged_pod("a", 1),
            ],
            ["e", "d"],
        ),
        (
            [
                aged_pod("a", 1, deletionTimestamp=timestamp(9)),
                *(aged_pod(name, 2) for name in "bcd"),
            ],
            [],
        ),
        ([aged_pod(name, 1, labels={}) for name in "abcd"], ["d"]),
        ([aged_pod(name, 1, labels={NAMES.podset: "another"}) for name in "abcd"], []),
    ],
)
def test_excess_pods_of_deleted_job_are_newest_beyond_admitted_count(
    remaining: list[dict[str, Any]], expected: list[str]
) -> None:
    assert [
        pod_["metadata"]["name"] for pod_ in find_excess_remaining_pods(admitted(), remaining, NAMES)
    ] == expected


SEVERAL = {"podSets": [{"name": name, "count": 2, "template": TEMPLATE} for name in ("one", "two")]}


FOR_BOTH = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": name, "count": 2, "flavors": {}} for name in ("one", "two")],
}


@pytest.mark.parametrize(
    ("make", "named", "expected"),
    [
        (admitted, {}, ["e"]),
        (admitted, {"a": "one", "b": "one"}, ["e"]),
        (admitted, {"c": "one", "d": "one", "e": "one"}, ["e"]),
        (admitted, dict.fromkeys("abcde", "one"), ["e", "d", "c"]),
        (workload, {"a": "one"}, ["e", "d", "c", "b", "a"]),
        (workload, {"a": "of another"}, ["e", "d", "c", "b", "a"]),
    ],
    ids=["none named", "oldest named", "newest named", "all named", "never admitted", "unknown podset"],
)
def test_pods_without_podset_share_remaining_count(
    make: Callable[..., dict[str, Any]], named: dict[str, str], expected: list[str]
) -> None:
    remaining = [
        aged_pod(name, number, labels={NAMES.podset: named[name]} if name in named else {})
        for number, name in enumerate("abcde")
    ]
    given = {} if make is workload else {"admission": FOR_BOTH}
    of = make(spec=SEVERAL, **given)
    assert [pod_["metadata"]["name"] for pod_ in find_excess_remaining_pods(of, remaining, NAMES)] == expected


REPLACING_SLICE = slice_of(admitted, "larger", "held", spec=FIVE_PODS, admission=FOR_FIVE)


@pytest.mark.parametrize(
    ("slices", "charged", "expected"),
    [
        ([HELD_SLICE], HELD_SLICE, ["f", "e", "d"]),
        ([HELD_SLICE, LARGER_SLICE], HELD_SLICE, ["f", "e", "d"]),
        ([HELD_SLICE, LARGER_SLICE], LARGER_SLICE, []),
        ([HELD_SLICE, REPLACING_SLICE], REPLACING_SLICE, ["f"]),
        ([HELD_SLICE, REPLACING_SLICE], HELD_SLICE, []),
        ([LARGER_SLICE], LARGER_SLICE, ["f", "e", "d", "c", "b", "a"]),
    ],
)
def test_excess_pods_of_slices_are_those_beyond_charged_slice(
    slices: list[dict[str, Any]], charged: dict[str, Any], expected: list[str]
) -> None:
    remaining = [aged_pod(name, number) for number, name in enumerate("abcdef")]
    assert [
        pod_["metadata"]["name"] for pod_ in find_excess_remaining_pods(charged, remaining, NAMES, slices)
    ] == expected

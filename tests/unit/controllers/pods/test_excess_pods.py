"""Pods of elastic jobs beyond the reserved quota: which pods they are, and their deletion."""

from typing import Any

import pytest

from admitq.controllers.pods.elastic_pods import STARTED_PODS
from admitq.controllers.pods.excess_pods import (
    find_charged_slice,
    find_excess_pods,
    job_kind_label,
    kind_label,
)
from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    admitted,
    instant,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.job.elastic_jobs import EVICTED, slice_
from tests.unit.controllers.pods.test_elastic_pods import CHAIN, elastic_pods_part, pod, world
from tests.unit.controllers.world import World

__all__ = ["world"]


def running(name: str, at: float = 0, **parts: Any) -> dict[str, Any]:
    """Return a running pod without the gate, created at a second."""
    return pod(name, gated=False, at=at, phase="Running", **parts)


def deleted(name: str, at: float, requested_at: float, grace: int = 30) -> dict[str, Any]:
    """Return a running pod with a deletion requested at second ``requested_at``."""
    pod_ = running(name, at)
    metadata = {"deletionTimestamp": timestamp(requested_at + grace), "deletionGracePeriodSeconds": grace}
    return with_value(pod_, ("metadata",), {**pod_["metadata"], **metadata})


GROWING = [slice_("first", 1), slice_("second", 3, workload, replaces="first", at=1)]
ONE_POD = [slice_("first", 1)]
DELETED_SLICE = with_value(ONE_POD[0], ("metadata", "deletionTimestamp"), timestamp(1))
THREE_PODS = [running("a", 1), running("b", 2), running("c", 3)]


@pytest.mark.parametrize(
    ("slices", "pods", "expected"),
    [
        pytest.param(GROWING, THREE_PODS, ["c", "b"], id="newest first"),
        pytest.param(GROWING, [running("a", 1), pod("b", at=2), pod("c", at=3)], [], id="gated"),
        pytest.param(
            GROWING, [running("a", 1), pod("b", at=2), running("c", 3)], ["c"], id="one gate removed"
        ),
        pytest.param(
            GROWING,
            [pod("a", gated=False, phase="Failed"), running("b", 2), running("c", 3)],
            ["c"],
            id="ended",
        ),
        pytest.param(GROWING, [running("b", 2), running("a", 2)], ["b"], id="created in one second"),
        # The job shrank: its own controller deletes the pods beyond its count.
        pytest.param(ONE_POD, THREE_PODS, [], id="left to the job"),
        pytest.param(
            [slice_("first", 1), slice_("second", 2, workload, replaces="first", at=1)],
            THREE_PODS,
            ["c"],
            id="some left to the job",
        ),
        # No slice knows the podset: no controller of a job deletes the pod.
        pytest.param(ONE_POD, [running("a"), running("b", podset="forged")], ["b"], id="unknown podset"),
        # A deleted pod runs until its grace period ends. The pod that replaces it waits.
        pytest.param(
            ONE_POD, [deleted("a", 1, requested_at=4), running("b", 4)], ["b"], id="instead of a deleted one"
        ),
        pytest.param(
            ONE_POD, [deleted("a", 1, requested_at=4), running("b", 3)], [], id="older than the deletion"
        ),
        pytest.param(
            ONE_POD, [deleted("a", 1, requested_at=2, grace=5), running("b", 4)], [], id="grace has ended"
        ),
        pytest.param(
            [slice_("first", 2, reserved)],
            [*THREE_PODS, running("d", 4)],
            [],
            id="reserved without a larger slice",
        ),
        pytest.param(
            [
                slice_("first", 1, admitted, FINISHED),
                slice_("second", 3, reserved, replaces="first", at=1),
            ],
            THREE_PODS,
            [],
            id="reserved while checks are pending",
        ),
        # The job controller stops these jobs as a whole.
        pytest.param([slice_("first", 3, workload)], THREE_PODS, [], id="no quota"),
        pytest.param([slice_("first", 1, admitted, EVICTED), GROWING[1]], THREE_PODS, [], id="evicted"),
        pytest.param(
            [DELETED_SLICE, GROWING[1]],
            THREE_PODS,
            [],
            id="deleted",
        ),
        pytest.param([slice_("first", 1, admitted, FINISHED)], THREE_PODS, [], id="finished"),
        pytest.param([], THREE_PODS, [], id="without slices"),
    ],
)
def test_excess_pods_are_those_beyond_the_reserved_count(
    slices: list[dict[str, Any]], pods: list[dict[str, Any]], expected: list[str]
) -> None:
    excess = find_excess_pods(slices, reversed(pods), NAMES, instant(10))
    assert [pod_["metadata"]["name"] for pod_ in excess] == expected


def test_charged_slice_is_reserved_replacement() -> None:
    charged = find_charged_slice([slice_("first", 1), slice_("second", 3, reserved, replaces="first")], NAMES)
    assert charged is not None
    assert charged["metadata"]["name"] == "second"


def test_job_kind_label_comes_from_controller_of_workload() -> None:
    assert (job_kind_label(slice_("first", 1)), job_kind_label({"metadata": {}})) == ("Job.batch", "")
    assert kind_label("", "Pod") == "Pod"


# --- controller -----------------------------------------------------------------------------------


async def test_excess_pods_are_deleted_reported_and_counted(world: World) -> None:
    world.put(KINDS.workloads, *GROWING)
    world.put(STARTED_PODS, *THREE_PODS)
    await elastic_pods_part(world).spec.reconcile(CHAIN)
    assert world.calls == ["list workloads", "delete pods/c", "delete pods/b"]
    assert world.recorder.events == [
        ("c", "ExcessPodDeleted", "Excess pod deleted"),
        ("b", "ExcessPodDeleted", "Excess pod deleted"),
    ]
    assert world.recorder.excess == [("first", "Job.batch", 1)] * 2


async def test_pods_are_not_deleted_when_newer_slice_admits_them(world: World) -> None:
    world.put(KINDS.workloads, *GROWING)
    world.put(STARTED_PODS, *THREE_PODS)
    newer = slice_("second", 3, replaces="first", at=1)
    newer["metadata"] |= {"resourceVersion": "77", "labels": {NAMES.job_uid: "uid-j"}}
    world.client.api["workloads", "second"] = newer
    assert await elastic_pods_part(world).spec.reconcile(CHAIN) == 1.0
    assert not [call for call in world.calls if call.startswith("delete")]
    assert world.get(KINDS.workloads, "second")["metadata"]["resourceVersion"] == "77"
    await elastic_pods_part(world).spec.reconcile(CHAIN)
    assert not [call for call in world.calls if call.startswith("delete")]

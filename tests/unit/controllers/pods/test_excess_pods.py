"""Which pods of elastic jobs run beyond the reserved quota, and what is done about them."""

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
from tests.unit.controllers.pods.test_elastic_pods import CHAIN, pod, served_by, world
from tests.unit.controllers.world import World

__all__ = ["world"]


def free(name: str, made: float = 0, **parts: Any) -> dict[str, Any]:
    """A pod without the gate."""
    return pod(name, gated=False, at=made, phase="Running", **parts)


def deleted(name: str, made: float, asked: float, grace: int = 30) -> dict[str, Any]:
    """A running pod with its deletion requested ``asked`` seconds after the start."""
    one = free(name, made)
    metadata = {"deletionTimestamp": timestamp(asked + grace), "deletionGracePeriodSeconds": grace}
    return with_value(one, ("metadata",), {**one["metadata"], **metadata})


GROWING = [slice_("first", 1), slice_("second", 3, workload, replaces="first", at=1)]
FULL = [slice_("first", 1)]
GOING = with_value(FULL[0], ("metadata", "deletionTimestamp"), timestamp(1))
ABC = [free("a", 1), free("b", 2), free("c", 3)]


@pytest.mark.parametrize(
    ("slices", "pods", "expected"),
    [
        pytest.param(GROWING, ABC, ["c", "b"], id="newest first"),
        pytest.param(GROWING, [free("a", 1), pod("b", at=2), pod("c", at=3)], [], id="gated"),
        pytest.param(GROWING, [free("a", 1), pod("b", at=2), free("c", 3)], ["c"], id="one gate removed"),
        pytest.param(
            GROWING, [pod("a", gated=False, phase="Failed"), free("b", 2), free("c", 3)], ["c"], id="ended"
        ),
        pytest.param(GROWING, [free("b", 2), free("a", 2)], ["b"], id="of one second"),
        # The job shrank: its own controller deletes pods that it does not ask for.
        pytest.param(FULL, ABC, [], id="left to the job"),
        pytest.param(
            [slice_("first", 1), slice_("second", 2, workload, replaces="first", at=1)],
            ABC,
            ["c"],
            id="some left to the job",
        ),
        # No slice knows the podset: no controller of a job deletes the pod.
        pytest.param(FULL, [free("a"), free("b", podset="forged")], ["b"], id="unknown podset"),
        # A deleted pod runs until its grace period ends. What came in its place waits.
        pytest.param(FULL, [deleted("a", 1, asked=4), free("b", 4)], ["b"], id="instead of a deleted one"),
        pytest.param(FULL, [deleted("a", 1, asked=4), free("b", 3)], [], id="older than the deletion"),
        pytest.param(FULL, [deleted("a", 1, asked=2, grace=5), free("b", 4)], [], id="grace has ended"),
        pytest.param(
            [slice_("first", 2, reserved)], [*ABC, free("d", 4)], [], id="reserved without a larger slice"
        ),
        pytest.param(
            [
                slice_("first", 1, admitted, FINISHED),
                slice_("second", 3, reserved, replaces="first", at=1),
            ],
            ABC,
            [],
            id="reserved while checks are pending",
        ),
        # The controller of jobs stops these as a whole.
        pytest.param([slice_("first", 3, workload)], ABC, [], id="no quota"),
        pytest.param([slice_("first", 1, admitted, EVICTED), GROWING[1]], ABC, [], id="evicted"),
        pytest.param(
            [with_value(FULL[0], ("metadata", "deletionTimestamp"), timestamp(1)), GROWING[1]],
            ABC,
            [],
            id="deleted",
        ),
        pytest.param([slice_("first", 1, admitted, FINISHED)], ABC, [], id="finished"),
        pytest.param([], ABC, [], id="without slices"),
    ],
)
def test_excess_pods_are_those_beyond_the_reserved_count(
    slices: list[dict[str, Any]], pods: list[dict[str, Any]], expected: list[str]
) -> None:
    found = find_excess_pods(slices, reversed(pods), NAMES, instant(10))
    assert [one["metadata"]["name"] for one in found] == expected


def test_charged_slice_is_reserved_replacement() -> None:
    found = find_charged_slice([slice_("first", 1), slice_("second", 3, reserved, replaces="first")], NAMES)
    assert found is not None
    assert found["metadata"]["name"] == "second"


def test_job_kind_label_comes_from_controller_of_workload() -> None:
    assert (job_kind_label(slice_("first", 1)), job_kind_label({"metadata": {}})) == ("Job.batch", "")
    assert kind_label("", "Pod") == "Pod"


# --- the shell ------------------------------------------------------------------------------------


async def test_excess_pods_are_deleted_reported_and_counted(world: World) -> None:
    world.put(KINDS.workloads, *GROWING)
    world.put(STARTED_PODS, *ABC)
    await served_by(world).spec.reconcile(CHAIN)
    assert world.calls == ["list workloads", "delete pods/c", "delete pods/b"]
    assert world.recorder.events == [
        ("c", "ExcessPodDeleted", "Excess pod deleted"),
        ("b", "ExcessPodDeleted", "Excess pod deleted"),
    ]
    assert world.recorder.excess == [("first", "Job.batch", 1)] * 2


async def test_pods_are_not_deleted_when_newer_slice_admits_them(world: World) -> None:
    world.put(KINDS.workloads, *GROWING)
    world.put(STARTED_PODS, *ABC)
    newer = slice_("second", 3, replaces="first", at=1)
    newer["metadata"] |= {"resourceVersion": "77", "labels": {NAMES.job_uid: "uid-j"}}
    world.client.api["workloads", "second"] = newer
    assert await served_by(world).spec.reconcile(CHAIN) == 1.0
    assert not [one for one in world.calls if one.startswith("delete")]
    assert world.get(KINDS.workloads, "second")["metadata"]["resourceVersion"] == "77"
    await served_by(world).spec.reconcile(CHAIN)
    assert not [one for one in world.calls if one.startswith("delete")]

"""Protected marks: a tenant cannot change them in order to run more than was admitted."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from localcluster.installation import Installation
from tests.controlplane.pods import group, phases, pod, until_phases, until_workload
from tests.controlplane.stage import Stage
from tests.controlplane.tenants import tenant


@pytest.fixture
async def as_tenant(stage: Stage, admitq_running: Installation) -> AsyncGenerator[Stage]:
    """The namespace of the story, as a user with role `edit`."""
    async with tenant(stage, admitq_running.cluster) as made:
        yield made


async def assert_refused(stage: Stage, name: str, patch: Any, *fields: str) -> None:
    """Assert that a change of a pod is refused with these fields in the message."""
    with pytest.raises(ApiError) as error:
        await stage.change(PODS, name, patch)
    for field in fields:
        assert f"{field}: Forbidden: this field protects quota" in error.value.message
    assert "update workloads/status in this namespace" in error.value.message


async def test_t1_waiting_pod_keeps_its_managed_label_and_its_gates(stage: Stage, as_tenant: Stage) -> None:
    names = stage.names
    await stage.queues(cpu=1)
    await pod(as_tenant, "p", cpu=2)
    await stage.until_workload_exists("p")
    without_label = {"metadata": {"labels": {names.managed: None}}}
    without_gates = {"spec": {"schedulingGates": []}}
    label, gate = f"metadata.labels[{names.managed}]", f"spec.schedulingGates[{names.admission_gate}]"
    await assert_refused(as_tenant, "p", {**without_label, **without_gates}, label, gate)
    await assert_refused(as_tenant, "p", without_label, label)
    await assert_refused(as_tenant, "p", without_gates, gate)
    assert await phases(stage, ["p"]) == ["held"]
    # A tenant may change other labels, and delete the pod.
    await as_tenant.change(PODS, "p", {"metadata": {"labels": {"mine": "yes"}}})
    await as_tenant.client.delete(PODS, "p", stage.namespace)
    await stage.until_gone(PODS, "p")


@pytest.mark.parametrize("size", [None, 1], ids=["alone", "in a group"])
async def test_t2_running_pod_keeps_the_marks_that_charge_it(
    stage: Stage, as_tenant: Stage, size: int | None
) -> None:
    names = stage.names
    await stage.queues(cpu=1)
    await pod(as_tenant, "p", cpu=1, group="g" if size else None, total=size)
    await until_phases(stage, p="Running")
    for place, key, value in (
        ("labels", names.managed, None),
        ("labels", names.managed, "false"),
        ("labels", names.podset, None),
        ("annotations", names.role_hash, None),
        ("annotations", names.role_hash, "other"),
        ("annotations", names.pod_suspending_parent, "statefulset"),
    ):
        await assert_refused(as_tenant, "p", {"metadata": {place: {key: value}}}, f"metadata.{place}[{key}]")
    await pod(as_tenant, "next", cpu=1)
    await stage.until_workload_exists("next")
    await stage.change(PODS, "p", {"metadata": {"annotations": {"touched": "yes"}}})
    assert await phases(stage, ["p", "next"]) == ["Running", "held"]


async def test_t3_role_of_a_pod_in_a_group_is_not_rewritten(stage: Stage, as_tenant: Stage) -> None:
    names = stage.names
    await stage.queues(cpu=3)
    for name, cpu in (("g-0", 1), ("g-1", 30), ("g-2", 1)):
        await pod(as_tenant, name, cpu=cpu, group="g", total=3)
    await until_workload(stage, "g", "QuotaReserved", "ExceedsMaxQuota", "False")
    small = (await stage.get(PODS, "g-0"))["metadata"]["annotations"][names.role_hash]
    field = f"metadata.annotations[{names.role_hash}]"
    await assert_refused(as_tenant, "g-1", {"metadata": {"annotations": {names.role_hash: small}}}, field)
    assert await phases(stage, ["g-0", "g-1", "g-2"]) == ["held"] * 3


@pytest.mark.parametrize("order", [(1, 30, 1), (1, 1, 30)])
async def test_t3_group_pods_of_one_role_with_different_requests_are_not_queued(
    stage: Stage, as_tenant: Stage, order: tuple[int, ...]
) -> None:
    await stage.queues(cpu=3)
    for number, cpu in enumerate(order):
        role = {stage.names.role_hash: "r"}
        await pod(as_tenant, f"g-{number}", cpu=cpu, group="g", total=3, annotations=role)
    big = order.index(30)
    note = f"pods 'g-0' and 'g-{big}' name the same role 'r', and 'g-{big}' requests more cpu"
    await stage.until_event("Pod", "g-0", "RoleMismatch", f"{note}: give them different roles")
    assert await phases(stage, ["g-0", "g-1", "g-2"]) == ["held"] * 3


async def test_t3_group_pod_that_requests_more_than_its_admitted_role_is_not_started(
    stage: Stage, as_tenant: Stage
) -> None:
    names = stage.names
    await stage.queues(cpu=3)
    role = {names.role_hash: "r"}
    await group(as_tenant, "g", 1, total=2, annotations={**role, names.pod_group_fast_admission: "true"})
    await until_phases(stage, g_0="Running")
    fast = {**role, names.pod_group_fast_admission: "true"}
    await pod(as_tenant, "g-1", cpu=30, group="g", total=2, annotations=fast)
    note = (
        "Not started: the pod requests more cpu than role 'r' of Workload 'g' was admitted with; "
        "delete it, and create one that requests no more"
    )
    await stage.until_event("Pod", "g-1", "RoleMismatch", note)
    assert await phases(stage, ["g-0", "g-1"]) == ["Running", "held"]
    await as_tenant.client.delete(PODS, "g-1", stage.namespace)
    await pod(as_tenant, "g-2", cpu=1, group="g", total=2, annotations=fast)
    await until_phases(stage, g_0="Running", g_2="Running")
    await stage.until_gone(PODS, "g-1")


async def test_administrator_may_change_marks_of_a_pod(stage: Stage) -> None:
    names = stage.names
    await stage.queues(cpu=1)
    await pod(stage, "p", cpu=2)
    await stage.until_workload_exists("p")
    await stage.change(PODS, "p", {"metadata": {"annotations": {names.role_hash: "main"}}})
    await stage.change(PODS, "p", {"metadata": {"labels": {names.managed: None}}})
    assert names.managed not in (await stage.get(PODS, "p"))["metadata"]["labels"]

"""Stories of flavors with a topology: admitq finds the nodes of the pods, and the pods run there."""

from collections import Counter
from typing import Any

import pytest

from admitq.runtime.resources import JOBS, PODS
from admitq.workloads.transitions import is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import with_value
from localcluster.installation import Installation
from tests.controlplane.hosts import (
    HOST,
    RACK,
    TEMPLATE,
    TOLERATION,
    assigned_hosts,
    create_flavor,
    hosts_of,
    two_racks,
    until_on_hosts,
)
from tests.controlplane.stage import Stage, condition_of


async def queues(stage: Stage, **spec: Any) -> None:
    """Create queues with one flavor, which has the nodes of the story in a topology of racks and hosts."""
    await create_flavor(stage)
    await stage.cluster_queue(cpu=100, **spec)
    await stage.local_queue()


async def submit(
    stage: Stage, name: str, pods: int, cpu: int = 5, annotation: str = "", value: str = RACK, **spec: Any
) -> None:
    """Create a Job with pods of so many CPUs, that requests a topology by an annotation if one is named."""
    template = with_value(
        TEMPLATE,
        ("spec", "containers", 0, "resources", "requests", "cpu"),
        cpu,
    )
    if annotation:
        template = with_value(template, ("metadata", "annotations"), {annotation: value})
    await stage.job(name, pods=pods, template=template, **spec)


async def until_waiting(stage: Stage, name: str, text: str) -> None:
    """Wait until the Workload of a Job waits, with a message that contains a text."""

    async def message() -> bool:
        found = condition_of(await stage.workload(name), "QuotaReserved")
        assert found is not None
        assert text in found[2], found
        return found[0] == "False"

    await stage.until(message, what=f"{name} waits because: {text}")


@pytest.mark.core
async def test_each_job_runs_in_one_rack_and_the_third_waits_for_one(stage: Stage, hosts: list[str]) -> None:
    racks = [set(hosts[:2]), set(hosts[2:])]
    await queues(stage)
    required = stage.names.podset_required_topology
    used: list[set[str]] = []
    for name in ("a", "b"):
        await submit(stage, name, 3, annotation=required)
        nodes = await until_on_hosts(stage, name, 3)
        assert Counter(nodes) == await assigned_hosts(stage, name)
        used.append(next(rack for rack in racks if rack.issuperset(nodes)))
    assert used[0] != used[1]
    await submit(stage, "c", 3, annotation=required)
    await until_waiting(stage, "c", f'topology "{stage.own("t")}" allows to fit only 1 out of 3 pod(s)')
    await stage.client.delete(JOBS, "a", stage.namespace, propagation="Background")
    assert used[0].issuperset(await until_on_hosts(stage, "c", 3))


async def test_preferred_rack_is_left_if_it_is_too_small(stage: Stage, hosts: list[str]) -> None:
    await queues(stage)
    await submit(stage, "a", 7, annotation=stage.names.podset_preferred_topology)
    nodes = await until_on_hosts(stage, "a", 7)
    assert Counter(nodes) == await assigned_hosts(stage, "a")
    assert set(nodes) == set(hosts)


async def test_pods_without_a_request_fill_the_smallest_gap(stage: Stage, hosts: list[str]) -> None:
    await queues(stage)
    await submit(stage, "a", 1, cpu=6, annotation=stage.names.podset_required_topology, value=HOST)
    [taken] = await until_on_hosts(stage, "a", 1)
    await submit(stage, "b", 1, cpu=4)
    assert await until_on_hosts(stage, "b", 1) == [taken]


async def test_pods_of_others_take_room_until_they_end(stage: Stage, hosts: list[str]) -> None:
    """The other pods have no queue, and name their nodes."""
    await queues(stage)
    pod = with_value(TEMPLATE, ("spec", "containers", 0, "resources", "requests", "cpu"), 8)
    for number, host in enumerate(hosts[:3]):
        spec = {**pod["spec"], "nodeName": host, "tolerations": [TOLERATION]}
        await stage.create(PODS, f"other-{number}", {"spec": spec})
    await submit(stage, "a", 2, annotation=stage.names.podset_required_topology)
    assert set(await until_on_hosts(stage, "a", 2)) == {hosts[3]}
    await submit(stage, "b", 3, annotation=stage.names.podset_required_topology)
    await until_waiting(stage, "b", "doesn't allow to fit any of 3 pod(s)")
    for number in range(2):
        await stage.client.delete(PODS, f"other-{number}", stage.namespace)
    assert set(await until_on_hosts(stage, "b", 3)) <= set(hosts[:2])


async def test_preemption_frees_a_rack(stage: Stage, hosts: list[str]) -> None:
    await queues(stage, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.create(stage.kinds.workload_priority_classes, stage.own("high"), {"value": 100})
    required = stage.names.podset_required_topology
    for name in ("a", "b"):
        await submit(stage, name, 4, annotation=required)
        await until_on_hosts(stage, name, 4)
    labels = {stage.names.priority_class: stage.own("high")}
    await submit(stage, "high", 4, annotation=required, labels=labels)
    nodes = set(await until_on_hosts(stage, "high", 4))
    assert nodes in (set(hosts[:2]), set(hosts[2:]))
    running = [name for name in ("a", "b") if await stage.pods(name)]
    assert len(running) == 1, "one victim frees a rack"
    assert nodes.isdisjoint(await until_on_hosts(stage, running[0], 4))


async def test_pods_that_an_elastic_job_adds_get_places_beside_the_others(
    fair_stage: Stage, admitq_fair: Installation
) -> None:
    stage = fair_stage
    async with two_racks(stage, admitq_fair):
        await queues(stage)
        await submit(
            stage,
            "a",
            2,
            cpu=6,
            completions=50,
            metadata={"annotations": {stage.names.elastic_job: "true"}},
        )
        before = await until_on_hosts(stage, "a", 2)
        await stage.change(JOBS, "a", {"spec": {"parallelism": 4}})
        nodes = await until_on_hosts(stage, "a", 4)
        assert len(set(nodes)) == 4, "all nodes are needed: those that ran before stay counted"
        assert set(before) < set(nodes)

        async def assigned() -> Counter[str]:
            [last] = [
                one
                for one in await stage.workloads("a")
                if not is_condition_true(one, ConditionType.FINISHED)
            ]
            return hosts_of(last)

        await stage.until(assigned, Counter(nodes), what="the assignment of all pods")
        await stage.change(JOBS, "a", {"spec": {"parallelism": 1}})

        async def count() -> int:
            return (await assigned()).total()

        await stage.until(count, 1, what="one place after the scale-down")

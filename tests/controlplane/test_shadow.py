"""A shadow beside a manager in charge, which admitq itself plays: it agrees with that, and writes nothing."""

import asyncio
import json
from collections.abc import Generator

import pytest

from admitq.app.core_inputs import list_core_resources
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.recording import total
from tests.controlplane.stage import Stage
from tests.controlplane.test_installation import audited

DECISIONS, DISAGREEMENTS = "shadow_decisions_total", "shadow_disagreements_total"


@pytest.fixture
def shadow(admitq_running: Installation, api_group: str) -> Generator[Installation]:
    """A shadow with the rights that the chart gives it, beside the running admitq."""
    made = Installation(admitq_running.cluster, release="admitq-shadow", namespace="admitq-shadow")
    made.install(api_group=api_group, values={"shadow": {"enabled": True}})
    made.start(("manager",), arguments=("--shadow", "--shadow-patience=20"))
    yield made
    made.stop(("manager",))
    made.helm("uninstall", made.release)


async def test_shadow_agrees_with_an_equal_manager_and_reports_other_decisions(
    stage: Stage, shadow: Installation
) -> None:
    names, queue = stage.names, stage.own("cq")

    async def told(series: str, cluster_queue: str = queue) -> float:
        # Named after admitq in every API group.
        return await total(shadow, series, cluster_queue=cluster_queue)

    async def has_compared(least: int, cluster_queue: str = queue) -> None:
        async def done() -> bool:
            assert await told(DECISIONS, cluster_queue) >= least
            return True

        await eventually(done, what="the shadow to have compared")

    # A shadow that has just begun may open its watches one after the other for a while.
    await stage.flavor("first")
    await stage.cluster_queue("first", flavors=("first",))
    await stage.local_queue("first", cluster_queue="first")
    await stage.job("first", queue="first")
    await has_compared(1, stage.own("first"))

    # What it agrees with: admission, waiting, fewer pods, borrowing, preemption and what it makes room for.
    await stage.queues(cpu=3, cohortName=stage.own("all"), preemption={"withinClusterQueue": "LowerPriority"})
    await stage.cluster_queue("lender", cpu=2, cohortName=stage.own("all"))
    for name, value in (("low", 1), ("high", 2)):
        await stage.create(stage.kinds.workload_priority_classes, stage.own(name), {"value": value})
    low, high = ({names.priority_class: stage.own(name)} for name in ("low", "high"))
    await stage.job("borrows", cpu=4, labels=low)
    await stage.until_running("borrows")
    fewer = {"annotations": {names.job_min_parallelism: "1"}}
    await stage.job("with-fewer", pods=3, labels=low, metadata=fewer)
    await stage.until_running("with-fewer")
    await stage.job("waits", labels=low)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "waits")
    await stage.job("preempts", cpu=3, labels=high)
    await stage.until_running("preempts")
    await has_compared(5)
    assert await told(DISAGREEMENTS) == 0

    # What it would not do: a reservation of more than there is, written as by another manager.
    await stage.job("too-big", cpu=9)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota", "too-big")
    workload = await stage.workload("too-big")
    flavors, usage = {"cpu": stage.own("f")}, {"cpu": "9"}
    assigned = {"name": "main", "flavors": flavors, "resourceUsage": usage, "count": 1}
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "by hand",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    admission = {"clusterQueue": queue, "podSetAssignments": [assigned]}
    await stage.change(
        stage.kinds.workloads,
        workload["metadata"]["name"],
        {"status": {"admission": admission, "conditions": [reserved]}},
        "status",
    )
    await has_compared(6)
    assert await told(DISAGREEMENTS) == 1
    lines = [json.loads(line) for line in shadow.log("manager").read_text().splitlines()]
    (line,) = [one for one in lines if one.get("cluster_queue") == queue]
    assert (line["kind"], line["workload"]) == (
        "reserved",
        f"{stage.namespace}/{workload['metadata']['name']}",
    )
    assert line["in_charge"] == f"reserved quota (main: 1 pod, cpu of {stage.own('f')})"
    assert line["admitq"] == "would let it wait"
    assert "insufficient quota for cpu" in line["explanation"]

    # And it wrote nothing, nor could it have: its account has no right to.
    calls = await asyncio.to_thread(audited, shadow)
    assert {one["verb"] for one in calls} <= {"list", "watch"}
    read = {(one["objectRef"].get("apiGroup", ""), one["objectRef"]["resource"]) for one in calls}
    assert read == {(one.group, one.plural) for one in list_core_resources(stage.kinds)}

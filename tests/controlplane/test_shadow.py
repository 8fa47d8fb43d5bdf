"""A shadow compares its decisions with those of a manager in charge, and writes nothing.

Another admitq plays the manager in charge.
"""

import asyncio
import json
from collections.abc import Generator
from typing import Any

import pytest

from admitq.runtime.kinds import list_core_resources
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.recording import sum_of_series
from tests.controlplane.stage import Stage
from tests.controlplane.test_installation import audited

DECISIONS, DISAGREEMENTS = "shadow_decisions_total", "shadow_disagreements_total"


@pytest.fixture
def shadow(admitq_running: Installation, api_group: str) -> Generator[Installation]:
    """A shadow beside the running admitq, with the rights that the chart gives it."""
    made = Installation(admitq_running.cluster, release="admitq-shadow", namespace="admitq-shadow")
    made.install(api_group=api_group, values={"shadow": {"enabled": True}})
    made.start(("manager",), arguments=("--shadow", "--shadow-patience=20"))
    yield made
    made.stop(("manager",))
    made.helm("uninstall", made.release)


async def test_shadow_agrees_with_an_equal_manager_and_reports_other_decisions(
    stage: Stage, shadow: Installation
) -> None:
    await until_shadow_compares(stage, shadow)
    await stage.queues(cpu=3, cohortName=stage.own("all"), preemption={"withinClusterQueue": "LowerPriority"})
    await stage.cluster_queue("lender", cpu=2, cohortName=stage.own("all"))
    await submit_jobs_with_five_decisions(stage)
    await until_compared(stage, shadow, 5)
    assert await compared(stage, shadow, DISAGREEMENTS) == 0
    workload = await reserve_more_than_the_quota(stage)
    await until_compared(stage, shadow, 6)
    assert await compared(stage, shadow, DISAGREEMENTS) == 1
    check_logged_disagreement(stage, shadow, workload)
    await check_that_shadow_only_reads(stage, shadow)


async def compared(stage: Stage, shadow: Installation, series: str, cluster_queue: str = "cq") -> float:
    """A counter of the shadow for a ClusterQueue. Its name begins with admitq in every API group."""
    return await sum_of_series(shadow, series, cluster_queue=stage.own(cluster_queue))


async def until_compared(stage: Stage, shadow: Installation, least: int, cluster_queue: str = "cq") -> None:
    """Wait until the shadow has compared at least so many decisions about a ClusterQueue."""

    async def has_compared() -> bool:
        assert await compared(stage, shadow, DECISIONS, cluster_queue) >= least
        return True

    await eventually(has_compared, what="the shadow to have compared")


async def until_shadow_compares(stage: Stage, shadow: Installation) -> None:
    """Wait until a new shadow has opened all its watches: it compares a decision about another queue."""
    await stage.flavor("first")
    await stage.cluster_queue("first", flavors=("first",))
    await stage.local_queue("first", cluster_queue="first")
    await stage.job("first", queue="first")
    await until_compared(stage, shadow, 1, "first")


async def submit_jobs_with_five_decisions(stage: Stage) -> None:
    """Cause an admission that borrows, one with fewer pods, a wait, and a preemption with its admission."""
    names = stage.names
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


async def reserve_more_than_the_quota(stage: Stage) -> dict[str, Any]:
    """Reserve more quota than exists, as another manager would, and return the Workload."""
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
    admission = {"clusterQueue": stage.own("cq"), "podSetAssignments": [assigned]}
    await stage.change(
        stage.kinds.workloads,
        workload["metadata"]["name"],
        {"status": {"admission": admission, "conditions": [reserved]}},
        "status",
    )
    return workload


def check_logged_disagreement(stage: Stage, shadow: Installation, workload: dict[str, Any]) -> None:
    """Check the log line about the only disagreement."""
    lines = [json.loads(line) for line in shadow.log("manager").read_text().splitlines()]
    (line,) = [one for one in lines if one.get("cluster_queue") == stage.own("cq")]
    assert (line["kind"], line["workload"]) == (
        "reserved",
        f"{stage.namespace}/{workload['metadata']['name']}",
    )
    assert line["in_charge"] == f"reserved quota (main: 1 pod, cpu of {stage.own('f')})"
    assert line["admitq"] == "would let it wait"
    assert "insufficient quota for cpu" in line["explanation"]


async def check_that_shadow_only_reads(stage: Stage, shadow: Installation) -> None:
    """Check in the audit log that the shadow only lists and watches the inputs of the core."""
    # The log has a watch once it has ended.
    await asyncio.to_thread(shadow.stop, ("manager",))

    async def has_read_all_inputs() -> bool:
        calls = await asyncio.to_thread(audited, shadow)
        assert {one["verb"] for one in calls} <= {"list", "watch"}
        read = {(one["objectRef"].get("apiGroup", ""), one["objectRef"]["resource"]) for one in calls}
        assert read == {(one.group, one.plural) for one in list_core_resources(stage.kinds)}
        return True

    await eventually(has_read_all_inputs, what="the audit log to have all watches of the shadow")

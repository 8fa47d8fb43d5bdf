"""Events on waiting jobs: ``kubectl describe job`` answers why the job waits, with few writes."""

import asyncio
import re

from admitq.runtime.resources import JOBS
from localcluster.installation import Installation
from tests.controlplane.stage import EVENT_SECONDS, Stage
from tests.controlplane.user_programs import kubectl

WAITS = "WaitingForQuota"
PENDING = 12


async def reasons_of(stage: Stage, job: str) -> list[str]:
    """Return why a job waited, in order, without the events that all jobs have."""
    return [reason for reason, _ in await stage.events("Job", job) if reason != "CreatedWorkload"]


async def until_waiting(stage: Stage, job: str) -> None:
    async def has_waited() -> list[str]:
        return await reasons_of(stage, job)

    await stage.until(has_waited, [WAITS], timeout=EVENT_SECONDS, what=f"the event of {job}")


async def short_of_quota(stage: Stage) -> str:
    """Create a ClusterQueue with 10 CPUs and a job that uses 7; return the short form for a job of 8."""
    await stage.active_queues(cpu=10, cohortName=stage.own("research"))
    await stage.job("runs", cpu=7)
    await stage.until_running("runs")
    return (
        f"Waits for unused quota in ClusterQueue {stage.own('cq')}: cpu in flavor {stage.own('f')}: "
        f"needs 8, 3 of 10 free, limited by the quota of cohort {stage.own('research')}"
    )


async def test_kubectl_describe_job_answers_why_it_waits(stage: Stage, admitq_running: Installation) -> None:
    note = await short_of_quota(stage)
    await stage.job("waits", cpu=8)
    await stage.until_event("Job", "waits", WAITS, note)
    described = await kubectl(
        admitq_running.cluster, "describe", "job", "waits", "--namespace", stage.namespace
    )
    line = re.search(rf"^ +Warning +{WAITS} .*$", described, re.MULTILINE)
    assert line is not None, described
    assert line[0].endswith(note)


async def test_equivalent_job_that_no_cycle_evaluates_has_the_same_explanation(stage: Stage) -> None:
    note = await short_of_quota(stage)
    await stage.job("first", cpu=8)
    await stage.until_event("Job", "first", WAITS, note)
    await stage.job("second", cpu=8)
    await stage.until_event("Job", "second", WAITS, note)
    _, _, message = await stage.condition("QuotaReserved", "second") or ("", "", "")
    assert message.startswith("Bypassed scheduling evaluation")


async def test_change_of_amounts_or_of_the_head_records_no_event(stage: Stage) -> None:
    await short_of_quota(stage)
    names = [f"waits-{number}" for number in range(PENDING)]
    await asyncio.gather(*(stage.job(name, cpu=8) for name in names))
    for name in names:
        await until_waiting(stage, name)

    quota = {"name": stage.own("f"), "resources": [{"name": "cpu", "nominalQuota": 11}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"resourceGroups": groups}})

    async def evaluated() -> list[str]:
        """Return the jobs that a cycle evaluated with the new quota."""
        conditions = {name: await stage.condition("QuotaReserved", name) for name in remaining}
        return [name for name, one in conditions.items() if one is not None and "4 more needed" in one[2]]

    async def has_head() -> bool:
        return bool(await evaluated())

    remaining = list(names)
    await stage.until(has_head, what="an evaluation with the new quota")
    # Another workload becomes the head of the lane.
    for head in await evaluated():
        await stage.client.delete(JOBS, head, stage.namespace, propagation="Background")
        remaining.remove(head)
    # Events are written in the order in which they were recorded.
    await stage.job("later", cpu=9)
    await until_waiting(stage, "later")
    assert remaining
    for name in remaining:
        assert await reasons_of(stage, name) == [WAITS]

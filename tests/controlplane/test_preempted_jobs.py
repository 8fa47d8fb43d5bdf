"""Jobs that do not get all they ask for: some give way to others, some begin with fewer pods."""

from admitq.runtime.resources import JOBS
from tests.controlplane.stage import Stage, condition_of

LOWER = {"withinClusterQueue": "LowerPriority"}


async def priorities(stage: Stage) -> None:
    for name, value in (("low", 1), ("high", 9)):
        await stage.create(stage.kinds.workload_priority_classes, stage.own(name), {"value": value})


async def job(stage: Stage, name: str, *, seconds: float | None = None) -> None:
    """Create a Job of two pods, with the priority of its name."""
    await stage.job(name, pods=2, seconds=seconds, labels={stage.names.priority_class: stage.own(name)})


async def test_a_job_gives_way_to_a_more_important_one_and_runs_again_after_it(stage: Stage) -> None:
    await priorities(stage)
    await stage.queues(cpu=2, preemption=LOWER)
    await job(stage, "low")
    await stage.until_running("low")
    await stage.some_pods("low")
    victim = await stage.workload("low")

    await job(stage, "high", seconds=1)
    await stage.until_running("high")
    preemptor = await stage.workload("high")
    message = (
        f"Preempted to accommodate a workload (UID: {preemptor['metadata']['uid']}, "
        f"JobUID: {(await stage.get(JOBS, 'high'))['metadata']['uid']}) "
        "due to prioritization in the ClusterQueue; "
        f"preemptor path: /{stage.own('cq')}; preemptee path: /{stage.own('cq')}"
    )
    preempted = await stage.workload("low")
    assert condition_of(preempted, "Requeued") == ("True", "Preempted", message)
    assert condition_of(preempted, "Preempted") == ("True", "InClusterQueue", message)
    await stage.until_told("Job", "low", "Stopped", message)
    await stage.until_told("Workload", victim["metadata"]["name"], "EvictedDueToPreempted", message)

    await stage.until_finished("high")
    await stage.until_running("low")
    assert await stage.condition("Evicted", "low") == ("False", "QuotaReserved", f"Previously: {message}")


async def test_a_job_begins_with_as_many_pods_as_fit_and_is_whole_again_when_it_stops(stage: Stage) -> None:
    await stage.queues(cpu=3)
    await stage.job(pods=5, metadata={"annotations": {stage.names.job_min_parallelism: "2"}})
    await stage.until_running()
    assert (await stage.get(JOBS, "j"))["spec"]["parallelism"] == 3
    (assigned,) = (await stage.workload())["status"]["admission"]["podSetAssignments"]
    assert (assigned["count"], assigned["resourceUsage"]) == (3, {"cpu": "3"})
    drain = {"spec": {"stopPolicy": "HoldAndDrain"}}
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), drain)
    await stage.until_running(running=False)
    assert (await stage.get(JOBS, "j"))["spec"]["parallelism"] == 5

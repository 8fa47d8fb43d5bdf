"""Metrics and statuses of queues and cohorts while their objects change."""

from typing import Any

from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from tests.controlplane.recording import list_series, sum_of_series
from tests.controlplane.stage import Stage
from tests.unit.metrics.metric_table import PROMISED


async def test_d18_label_change_moves_gauges_and_keeps_counters_and_d19_selector_removes_series(
    fair_stage: Stage, admitq_fair: Installation
) -> None:
    stage = fair_stage
    await stage.queues()
    queue, counter = stage.own("cq"), "admitted_workloads_total"

    async def values(label: str, series: str, **having: str) -> set[str]:
        return {
            labels[label]
            for name, labels in await list_series(admitq_fair)
            if name == series and having.items() <= labels.items()
        }

    async def tiers() -> list[set[str]]:
        series = ("reserving_active_workloads", counter)
        return [await values("custom_tier", one, cluster_queue=queue) for one in series]

    async def squads() -> list[set[str]]:
        series = ("local_queue_reserving_active_workloads", f"local_queue_{counter}")
        return [await values("custom_squad", one, namespace=stage.namespace) for one in series]

    async def label(**labels: str) -> None:
        patch = {"metadata": {"labels": labels}}
        await stage.change(stage.kinds.cluster_queues, queue, patch)
        await stage.change(stage.kinds.local_queues, "lq", patch)

    # Both gauges and counters get the first values.
    await label(tier="gold", squad="ml")
    await stage.job("first", labels={"size": "large"})
    await stage.until(tiers, [{"gold"}, {"gold"}])
    await stage.until(squads, [{"ml"}, {"ml"}])
    (workload,) = await stage.workloads("first")
    assert workload["metadata"]["labels"]["size"] == "large", "b10: the job's label is on its Workload"
    assert await values("custom_size", "admitted_active_workloads", cluster_queue=queue) == {"large"}

    # With other values gauges move to a new series; counters keep the old one and begin a new one.
    await label(tier="silver", squad="vision")
    await stage.until(tiers, [{"silver"}, {"gold"}])
    await stage.until(squads, [{"vision"}, {"ml"}])
    await stage.job("second")
    await stage.until(tiers, [{"silver"}, {"gold", "silver"}])
    await stage.until(squads, [{"vision"}, {"ml", "vision"}])

    async def series_of_namespace() -> set[str]:
        found = await list_series(admitq_fair)
        return {name for name, labels in found if labels.get("namespace") == stage.namespace}

    # A LocalQueue that the selector excludes has no series. Selected again, its counter begins anew.
    await label(series="off")
    await stage.until(series_of_namespace, set[str]())
    await stage.change(stage.kinds.local_queues, "lq", {"metadata": {"labels": {"series": None}}})
    await stage.until(squads, [{"vision"}, set()])


async def test_d19_cohort_series_are_removed_with_the_cohort_object_or_its_last_member(
    fair_stage: Stage, admitq_fair: Installation
) -> None:
    stage = fair_stage
    object_, implicit = stage.own("object"), stage.own("implicit")
    cohort_series = {name for name in PROMISED if name.startswith("cohort_")}

    async def series_of(cohort: str) -> set[str]:
        found = await list_series(admitq_fair)
        return {name for name, labels in found if name in cohort_series and labels.get("cohort") == cohort}

    await stage.create(stage.kinds.cohorts, object_, {"spec": {}})
    await stage.queues(cohortName=object_)
    await stage.job("first")
    await stage.until(lambda: series_of(object_), cohort_series)
    await stage.client.delete(stage.kinds.cohorts, object_)
    await stage.until(lambda: series_of(object_), set[str]())
    queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
    assert queue["spec"]["cohortName"] == object_

    async def move(cohort: str | None) -> None:
        patch = {"spec": {"cohortName": cohort}}
        await stage.change(stage.kinds.cluster_queues, stage.own("cq"), patch)

    await move(implicit)
    await stage.job("second")
    await stage.until(lambda: series_of(implicit), cohort_series)
    assert await series_of(object_) == set(), "no ClusterQueue is a member any more"
    await move(None)
    await stage.until(lambda: series_of(implicit), set[str]())


async def test_d20_share_metric_is_exact_and_unused_local_queue_reports_zero_past_usage(
    fair_stage: Stage, admitq_fair: Installation
) -> None:
    stage = fair_stage
    cohort = stage.own("org")
    await stage.queues(cpu=0, cohortName=cohort)
    await stage.cluster_queue("pool", cpu=3, cohortName=cohort)
    await stage.local_queue("idle", cluster_queue="pool")
    await stage.job(cpu=2)

    async def share() -> int | None:
        queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
        return value_at(queue, ("status", "fairSharing", "weightedShare"))

    async def status(name: str, *fields: str) -> list[Any]:
        queue = await stage.get(stage.kinds.local_queues, name)
        return [value_at(queue, ("status", field)) for field in fields]

    async def consumed() -> list[Any]:
        past = (await status("idle", "fairSharing"))[0] or {}
        return [value_at(past, ("admissionFairSharingStatus", "consumedResources"))]

    await stage.until(share, 667)
    series = "cluster_queue_weighted_share"
    assert abs(await sum_of_series(admitq_fair, series, cluster_queue=stage.own("cq")) - 2000 / 3) < 1e-9
    await stage.until(consumed, [{"cpu": "0"}])
    lists = ("flavorsReservation", "flavorsUsage")
    counts = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
    assert all(isinstance(one, list) for one in await status("idle", *lists))
    await stage.client.delete(stage.kinds.cluster_queues, stage.own("pool"))
    await stage.until(lambda: status("idle", *lists, *counts), [None, None, 0, 0, 0])

    async def series_of_pool() -> set[str]:
        pool = {"cluster_queue": stage.own("pool")}.items()
        found = {name for name, labels in await list_series(admitq_fair) if pool <= labels.items()}
        return {name for name in found if not name.startswith("local_queue_")}

    await stage.until(series_of_pool, set[str]())

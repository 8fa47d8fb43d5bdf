"""The controllers that write the core's statuses of queues and cohorts, at a limited rate."""

from fractions import Fraction
from typing import Any

import pytest

from admitq.controllers.queues.controllers import (
    HELD_RETRY_SECONDS,
    ClusterQueueController,
    CohortController,
    LocalQueueController,
    WritePace,
    cluster_queue_patch,
    cohort_patch,
    cohort_path,
    local_queue_patch,
)
from admitq.controllers.queues.refused_jobs import RefusedJob, RefusedJobs
from admitq.controllers.queues.watches import queue_controllers
from admitq.core.activity import ActiveReason, InactiveCause
from admitq.core.amounts import UNLIMITED
from admitq.core.fair_sharing import NO_SHARE, Share
from admitq.core.model import SECOND, ConsumedResources, ObjectKey
from admitq.core.statuses import (
    ClusterQueueStatus,
    CohortStatus,
    FlavorTotals,
    LocalQueueReason,
    LocalQueueStatus,
    ResourceTotal,
)
from admitq.runtime.rate_limit import CallPriority
from admitq.runtime.resources import JOBS
from admitq.runtime.store import Key, ObjectChange
from admitq.runtime.write_scheduler import NoFreeSlotError
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    START,
    apply_patch,
    condition_of,
    instant,
    job,
    timestamp,
)
from tests.unit.controllers.world import World, cluster_scoped

TOTALS = (FlavorTotals("f", (ResourceTotal("cpu", 1500, 500), ResourceTotal("memory", 2**30, 0))),)
READY = ClusterQueueStatus(
    active=True,
    reason=ActiveReason.READY,
    causes=(),
    pending=3,
    inadmissible=1,
    reserving=2,
    admitted=1,
    flavors_reservation=TOTALS,
    flavors_usage=(),
)
STOPPED = READY._replace(
    active=False, reason=ActiveReason.STOPPED, causes=(InactiveCause(ActiveReason.STOPPED),)
)
LOCAL_QUEUE_STATUS = LocalQueueStatus(True, LocalQueueReason.READY, 3, 2, 1, TOTALS, ())
SHARE_OF_SEVEN = Share(infinite=False, amount=Fraction(20, 3))
CQ = Key("", "cq")


def queue(**metadata: object) -> dict[str, Any]:
    return cluster_scoped("cq", metadata={"finalizers": [NAMES.finalizer], "generation": 4, **metadata})


def test_cluster_queue_status_has_counts_totals_and_borrowed_amounts() -> None:
    patch = cluster_queue_patch(queue(), READY, START)
    assert patch == {
        "status": {
            "conditions": [
                {
                    "type": "Active",
                    "status": "True",
                    "reason": "Ready",
                    "message": "Can admit new workloads",
                    "lastTransitionTime": timestamp(0),
                    "observedGeneration": 4,
                }
            ],
            "flavorsReservation": [
                {
                    "name": "f",
                    "resources": [
                        {"name": "cpu", "total": "1500m", "borrowed": "500m"},
                        {"name": "memory", "total": "1Gi", "borrowed": "0"},
                    ],
                }
            ],
            "flavorsUsage": [],
            "pendingWorkloads": 3,
            "reservingWorkloads": 2,
            "admittedWorkloads": 1,
        }
    }


def test_c16_status_total_beyond_int64_is_a_quantity() -> None:
    most = (FlavorTotals("f", (ResourceTotal("cpu", UNLIMITED, UNLIMITED),)),)
    patch = cluster_queue_patch(queue(), READY._replace(flavors_reservation=most), START)
    assert patch is not None
    assert patch["status"]["flavorsReservation"][0]["resources"] == [
        {"name": "cpu", "total": "9223372036854775807m", "borrowed": "9223372036854775807m"}
    ]


def test_unchanged_cluster_queue_status_is_not_written() -> None:
    reported = apply_patch(queue(), cluster_queue_patch(queue(), READY, START))
    assert cluster_queue_patch(reported, READY, instant(60)) is None


def test_cluster_queue_share_is_reported_with_fair_sharing_and_removed_without() -> None:
    reported = apply_patch(
        queue(),
        cluster_queue_patch(
            queue(), READY._replace(share=Share(infinite=False, amount=Fraction(249, 2))), START
        ),
    )
    assert reported["status"]["fairSharing"] == {"weightedShare": 125}
    assert cluster_queue_patch(reported, READY, START) == {"status": {"fairSharing": None}}


def test_cohort_share_is_reported_once_and_only_with_fair_sharing() -> None:
    cohort = cluster_scoped("c")
    reported = apply_patch(cohort, cohort_patch(cohort, CohortStatus((), (), SHARE_OF_SEVEN)))
    assert reported["status"] == {"fairSharing": {"weightedShare": 7}}
    assert cohort_patch(reported, CohortStatus((), (), SHARE_OF_SEVEN)) is None
    assert cohort_patch(cohort, CohortStatus((), ())) is None


def test_e_flavor_lists_longer_than_status_allows_are_cut() -> None:
    many = tuple(FlavorTotals(f"f-{place}", (ResourceTotal("cpu", 1, 0),)) for place in range(65))
    for patch in (
        cluster_queue_patch(queue(), READY._replace(flavors_reservation=many, flavors_usage=many), START),
        local_queue_patch(
            cluster_scoped("lq"),
            LOCAL_QUEUE_STATUS._replace(flavors_reservation=many, flavors_usage=many),
            START,
        ),
    ):
        assert patch is not None
        for name in ("flavorsReservation", "flavorsUsage"):
            assert [flavor["name"] for flavor in patch["status"][name]] == [
                f"f-{place}" for place in range(64)
            ]


def test_resource_lists_longer_than_status_allows_are_cut() -> None:
    many = FlavorTotals("f", tuple(ResourceTotal(f"r{place}", 1, 0) for place in range(65)))
    patch = cluster_queue_patch(queue(), READY._replace(flavors_reservation=(many,)), START)
    assert patch is not None
    [flavor] = patch["status"]["flavorsReservation"]
    assert [resource["name"] for resource in flavor["resources"]] == [f"r{place}" for place in range(64)]


def test_local_queue_reports_past_usage() -> None:
    past = ConsumedResources((("cpu", 1500), ("memory", 2**30)), START)
    patch = local_queue_patch(cluster_scoped("lq"), LOCAL_QUEUE_STATUS._replace(consumed=past), START)
    assert patch is not None
    assert patch["status"]["fairSharing"] == {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "1500m", "memory": "1Gi"},
            "lastUpdate": timestamp(0),
        },
    }


def test_d20_local_queue_without_cluster_queue_loses_its_lists() -> None:
    obj = cluster_scoped("lq")
    reported = apply_patch(obj, local_queue_patch(obj, LOCAL_QUEUE_STATUS, START))
    assert reported["status"]["flavorsReservation"]
    without_cluster_queue = LocalQueueStatus(
        False, LocalQueueReason.CLUSTER_QUEUE_DOES_NOT_EXIST, 0, 0, 0, None, None
    )
    reported = apply_patch(reported, local_queue_patch(reported, without_cluster_queue, START))
    assert not {"flavorsReservation", "flavorsUsage"} & reported["status"].keys()
    counts = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
    assert [reported["status"][name] for name in counts] == [0, 0, 0]


def test_d20_past_usage_of_zero_is_written_with_zero_entries() -> None:
    past = ConsumedResources((("cpu", 0), ("memory", 0)), START)
    patch = local_queue_patch(cluster_scoped("lq"), LOCAL_QUEUE_STATUS._replace(consumed=past), START)
    assert patch is not None
    reported = patch["status"]["fairSharing"]["admissionFairSharingStatus"]
    assert reported["consumedResources"] == {"cpu": "0", "memory": "0"}


def test_conditions_of_other_programs_are_kept_in_status() -> None:
    foreign_condition = {
        "type": "Mine",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": timestamp(0),
    }
    obj = {**queue(), "status": {"conditions": [foreign_condition]}}
    reported = apply_patch(obj, cluster_queue_patch(obj, READY, START))
    assert foreign_condition in reported["status"]["conditions"]


async def test_cluster_queue_status_is_written_at_most_once_per_second() -> None:
    world = World()
    world.put(KINDS.cluster_queues, queue())
    controller = ClusterQueueController(world.ctx, world.core)
    world.core.cluster_queues["cq"] = READY
    assert await controller.reconcile(CQ) is None
    world.core.cluster_queues["cq"] = STOPPED
    world.now += SECOND // 4
    assert await controller.reconcile(CQ) == 0.75
    assert world.calls == ["patch clusterqueues/cq/status"]
    world.now += SECOND
    assert await controller.reconcile(CQ) is None
    message = "Can't admit new workloads: is stopped."
    assert condition_of(world.get(KINDS.cluster_queues, "cq"), "Active") == ("False", "Stopped", message)
    world.now += SECOND
    assert await controller.reconcile(CQ) is None
    assert len(world.calls) == 2


@pytest.mark.parametrize("waits_for", ["slot", "pace"])
async def test_queue_status_is_not_computed_before_it_may_be_written(waits_for: str) -> None:
    world = World()
    world.put(KINDS.cluster_queues, queue())
    world.core.cluster_queues["cq"] = READY
    controller = ClusterQueueController(world.ctx, world.core)
    await controller.reconcile(CQ)
    world.core.cluster_queues["cq"] = STOPPED
    computed = world.core.computed
    if waits_for == "slot":
        world.now += 2 * SECOND
        while world.client.scheduler.take_free(CallPriority.QUEUE_STATUS) is not None:
            pass
        with pytest.raises(NoFreeSlotError):
            await controller.reconcile(CQ)
    else:
        assert await controller.reconcile(CQ) == 1.0
    assert world.core.computed == computed
    assert len(world.calls) == 1


@pytest.mark.parametrize(
    ("changed", "refreshes"),
    [
        ({"status": {"pendingWorkloads": 1}}, True),
        ({"metadata": {"generation": 5}}, False),
        ({"metadata": {"finalizers": []}}, False),
        ({"metadata": {"deletionTimestamp": timestamp(0)}}, False),
    ],
)
def test_change_of_queue_outside_of_status_is_reconciled_without_delay(
    changed: dict[str, Any], refreshes: bool
) -> None:
    world = World()
    controllers = queue_controllers(world.ctx, world.core, refused_jobs(world))
    watches = [watch for spec in controllers for watch in spec.watches]
    assert all(spec.refresh_interval == 1.0 for spec in controllers)
    found: list[list[bool]] = []
    for watch in watches:
        changes: list[ObjectChange] = []
        world.stores.of(watch.resource).subscribe(changes.append)
        before = {**queue(), "metadata": {**queue()["metadata"], "namespace": "ns"}}
        metadata = {**before["metadata"], **changed.get("metadata", {}), "resourceVersion": "6"}
        world.put(watch.resource, before, {**before, **changed, "metadata": metadata})
        found.append([watch.refreshes(change) for change in changes])
    assert found == [[False, refreshes]] * 3


def test_clock_set_back_delays_write_by_at_most_one_second() -> None:
    now = [START]
    pace = WritePace(lambda: now[0])
    pace.record_write(CQ)
    now[0] -= 3600 * SECOND
    assert pace.seconds_until_allowed(CQ) == 1.0


async def test_deleted_cluster_queue_keeps_finalizer_while_quota_is_reserved() -> None:
    world = World()
    world.put(KINDS.cluster_queues, queue(deletionTimestamp=timestamp(0)))
    world.core.cluster_queues["cq"] = READY
    world.core.reserving.add("cq")
    controller = ClusterQueueController(world.ctx, world.core)
    await controller.reconcile(CQ)
    assert world.calls == ["patch clusterqueues/cq/status"]
    world.core.reserving.clear()
    await controller.reconcile(CQ)
    assert world.calls[1:] == ["json_patch clusterqueues/cq"]


async def test_deleted_quarantined_cluster_queue_is_retried_until_no_quota_is_reserved() -> None:
    world = World()
    world.put(KINDS.cluster_queues, queue(deletionTimestamp=timestamp(0)))
    world.core.reserving.add("cq")
    controller = ClusterQueueController(world.ctx, world.core)
    assert await controller.reconcile(CQ) == HELD_RETRY_SECONDS
    world.core.reserving.clear()
    await controller.reconcile(CQ)
    assert world.calls == ["json_patch clusterqueues/cq"]


async def test_cluster_queue_without_finalizer_gets_it() -> None:
    world = World()
    world.put(KINDS.cluster_queues, queue(finalizers=["a.example/x"]))
    await ClusterQueueController(world.ctx, world.core).reconcile(CQ)
    finalizers = world.get(KINDS.cluster_queues, "cq")["metadata"]["finalizers"]
    assert finalizers == ["a.example/x", NAMES.finalizer]


@pytest.mark.parametrize("known", [True, False])
async def test_cluster_queue_unknown_to_core_is_not_reported(known: bool) -> None:
    world = World()
    if known:
        world.put(KINDS.cluster_queues, queue())
    await ClusterQueueController(world.ctx, world.core).reconcile(CQ)
    assert world.calls == []


async def test_quarantined_cluster_queue_keeps_its_status() -> None:
    world = World()
    world.put(KINDS.cluster_queues, queue())
    quarantined = (InactiveCause(ActiveReason.UNKNOWN),)
    world.core.cluster_queues["cq"] = READY._replace(
        active=False, reason=ActiveReason.UNKNOWN, causes=quarantined
    )
    await ClusterQueueController(world.ctx, world.core).reconcile(CQ)
    assert world.calls == []


async def test_local_queue_status_has_totals_without_borrowed_amounts() -> None:
    world = World()
    obj = {"metadata": {"name": "lq", "namespace": "ns", "uid": "u", "resourceVersion": "1"}}
    world.put(KINDS.local_queues, obj)
    world.core.local_queues[ObjectKey("ns", "lq")] = LOCAL_QUEUE_STATUS
    controller = LocalQueueController(world.ctx, world.core, refused_jobs(world))
    await controller.reconcile(Key("ns", "lq"))
    reported = world.get(KINDS.local_queues, "lq")
    assert reported["status"]["flavorsReservation"][0]["resources"][0] == {"name": "cpu", "total": "1500m"}
    assert condition_of(reported, "Active") == ("True", "Ready", "Can submit new workloads to localQueue")
    world.now += 2 * SECOND
    await controller.reconcile(Key("ns", "lq"))
    assert len(world.calls) == 1
    assert await controller.reconcile(Key("ns", "gone")) is None


def refused_jobs(world: World) -> RefusedJobs:
    integrations = world.ctx.settings.integrations
    return RefusedJobs(world.ctx.stores, integrations, NAMES)


def job_of_queue(name: str, queue: str, namespace: str = "ns") -> dict[str, Any]:
    return job(name=name, uid=f"uid-{name}", namespace=namespace, labels={NAMES.queue_name: queue})


def test_refused_jobs_are_listed_by_their_local_queue() -> None:
    world, queue = World(), Key("ns", "lq")
    world.put(
        JOBS,
        job_of_queue("b", "lq"),
        job_of_queue("a", "lq"),
        job_of_queue("far", "lq", "far"),
        job_of_queue("c", "other"),
    )
    refused = refused_jobs(world)
    queues = {
        Key("ns", "b"): queue,
        Key("ns", "a"): queue,
        Key("far", "far"): Key("far", "lq"),
        Key("ns", "c"): Key("ns", "other"),
        Key("ns", "gone"): None,
    }
    assert {key: refused.update("batch/job", key, f"no {key.name}") for key in queues} == queues
    assert refused.update("workload", Key("ns", "a"), "x") is None
    assert refused.list_in_queue(queue) == [RefusedJob("Job", "a", "no a"), RefusedJob("Job", "b", "no b")]
    assert refused.list_in_queue(Key("ns", "none")) == ()
    # The job has another queue now. Its entry is removed from the former queue.
    world.put(JOBS, job_of_queue("a", "other"))
    assert {key: refused.update("batch/job", key, None) for key in queues} == queues
    assert not any(refused.list_in_queue(key) for key in queues.values() if key)


async def test_local_queue_reports_refused_jobs_until_two_seconds_after_last_one() -> None:
    world, queue = World(), Key("ns", "lq")
    world.put(
        KINDS.local_queues,
        {"metadata": {"name": "lq", "namespace": "ns", "uid": "u", "resourceVersion": "1"}},
    )
    world.core.local_queues[ObjectKey("ns", "lq")] = LOCAL_QUEUE_STATUS
    world.put(JOBS, job_of_queue("a", "lq"), job_of_queue("b", "lq"))
    refused = refused_jobs(world)
    controller = LocalQueueController(world.ctx, world.core, refused)

    async def report(*names: str, seconds: float = 10) -> Any:
        """Reconcile while these jobs are refused; return the next delay and the condition."""
        world.now += int(seconds * SECOND)
        for name in ("a", "b"):
            refused.update("batch/job", Key("ns", name), None)
        for name in names:
            refused.update("batch/job", Key("ns", name), f"no {name}")
        requeue_after = await controller.reconcile(queue)
        return requeue_after, condition_of(world.get(KINDS.local_queues, "lq"), "JobsRefused")

    one_job = ("True", "Quarantined", "1 job is left alone until changed. Job b: no b")
    assert await report("b") == (None, one_job)
    two_jobs = ("True", "Quarantined", "2 jobs are left alone until changed. Job a: no a")
    assert await report("a", "b") == (None, two_jobs)
    assert await report("b") == (None, one_job)
    assert await report() == (2.0, one_job)
    # Other changes of the status are written at once, and do not extend the delay.
    world.core.local_queues[ObjectKey("ns", "lq")] = LOCAL_QUEUE_STATUS._replace(pending=7)
    assert await report(seconds=1.75) == (0.25, one_job)
    assert world.get(KINDS.local_queues, "lq")["status"]["pendingWorkloads"] == 7
    assert await report(seconds=0.5) == (0.5, one_job)
    assert await report(seconds=0.5) == (None, None)
    # After a restart, the controller does not know the refused jobs yet.
    assert await report("b") == (None, one_job)
    restarted = LocalQueueController(world.ctx, world.core, refused_jobs(world))
    assert await restarted.reconcile(queue) == 2.0


def test_path_of_cohort_ends_at_its_root_or_before_a_cycle_of_parents() -> None:
    world = World()
    for name, parent in (("leaf", "middle"), ("middle", "root"), ("a", "b"), ("b", "a")):
        world.put(KINDS.cohorts, cluster_scoped(name, spec={"parentName": parent}))
    cohorts = world.stores.of(KINDS.cohorts)
    assert cohort_path(cohorts, "leaf") == ["leaf", "middle", "root"]
    assert cohort_path(cohorts, "root") == ["root"]
    assert cohort_path(cohorts, "a") == ["a", "b"]


async def test_cohort_object_reports_its_share() -> None:
    world = World()
    world.put(KINDS.cohorts, cluster_scoped("leaf"))
    world.core.cohorts |= {"leaf": CohortStatus((), (), NO_SHARE), "implicit": CohortStatus((), (), NO_SHARE)}
    controller = CohortController(world.ctx, world.core)
    for name in world.core.cohorts:
        await controller.reconcile(Key("", name))
    assert world.calls == ["patch cohorts/leaf/status"]

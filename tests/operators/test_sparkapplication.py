"""Stories of SparkApplications with their operator, while ``spark-submit`` and drivers are played."""

from collections import Counter
from typing import Any

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, PODS
from admitq.workloads.transitions import is_reserved
from admitq_api.json_objects import value_at
from admitq_api.quantity import parse_quantity
from tests.controlplane.played_jobs import create_other
from tests.controlplane.stage import Stage, condition_of
from tests.operators.operator_case import End, OperatedJob, OperatorCase, submit, uids_of, with_sample
from tests.operators.test_stories import (
    check_kept_admission,
    open_queue,
    stories_of,
    until_ended,
    until_nothing_reserved,
    until_running,
)

pytestmark = stories_of("sparkapplication")

EXECUTORS = "spark-role=executor"


async def test_failed_executor_is_replaced_and_the_application_keeps_its_admission(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_running(case, job)
    admitted = await job.workload()
    before = uids_of(await job.pods(EXECUTORS))
    await job.end_pods("Failed", End(pods="spark-exec-id=1"))

    async def replaced() -> int:
        return len(uids_of(await job.pods(EXECUTORS)) - before)

    await stage.until(replaced, 1)
    await until_running(case, job)
    check_kept_admission(await job.workload(), admitted)


async def test_application_that_its_user_changes_is_run_again_and_keeps_its_admission(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_running(case, job)
    admitted = await job.workload()
    before = uids_of(await job.pods())
    await job.change({"spec.arguments": ["100"]})

    async def kept() -> set[str]:
        return before & uids_of(await job.pods())

    await stage.until(kept, set())
    await until_running(case, job)
    check_kept_admission(await job.workload(), admitted)


async def test_application_that_its_user_changes_after_its_end_does_not_run_without_quota(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_running(case, job)
    await job.end_pods("Succeeded", case.succeeded)
    await until_ended(job, "Succeeded", case.kind.messages["succeeded"])
    # The operator would run it again.
    await job.change({"spec.arguments": ["100"]})
    await job.until({"spec.suspend": True, "status.applicationState.state": "SUSPENDED"})
    await job.until_no_pods()


async def test_application_that_cannot_be_submitted_fails_and_gives_its_quota_back(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case, changes={"spec.driver.serviceAccount": "missing"})

    async def reason() -> Any:
        return (condition_of(await job.workload(), "Finished") or ("", ""))[1]

    await stage.until(reason, "Failed")
    message = (condition_of(await job.workload(), "Finished") or ("", "", ""))[2]
    assert message.startswith("failed to submit spark application: failed to run spark-submit")
    assert 'serviceaccount "missing" not found' in message
    await until_nothing_reserved(stage)


async def test_application_that_is_submitted_again_keeps_its_admission(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    policy = {
        "type": "OnFailure",
        "onSubmissionFailureRetries": 1000,
        "onSubmissionFailureRetryInterval": 1,
    }
    changes = {"spec.driver.serviceAccount": "late", "spec.restartPolicy": policy}
    job = await submit(stage, case, changes=changes)
    await job.until({"status.applicationState.state": "SUBMISSION_FAILED"})
    admitted = await job.workload()
    assert condition_of(admitted, "Finished") is None
    await create_other(stage, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "late"}})
    await until_running(case, job)
    check_kept_admission(await job.workload(), admitted)


async def test_application_with_a_node_selector_of_all_pods_runs_on_the_nodes_of_its_flavor(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case, changes={"spec.nodeSelector": {"kubernetes.io/os": "linux"}})
    for pod in await until_running(case, job):
        assert pod["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
    await job.change_workload({"spec": {"active": False}})
    await job.until_suspended()
    await job.until_no_pods()
    assert value_at(await job.get(), ("spec", "sparkConf"), {}) == {}


async def test_pods_of_the_samples_request_what_their_workload_reserves(
    stage: Stage, case: OperatorCase, api_group: str
) -> None:
    await open_queue(stage, case, jobs=3)
    for file in ("spark-pi.yaml", "spark-pi-python.yaml", "spark-pi-pod-template.yaml"):
        sample = with_sample(case, "spark", f"examples/{file}", api_group)
        job = await submit(stage, sample)
        requested: Counter[str] = Counter()
        for pod in await until_running(sample, job, pods=2):
            for container in pod["spec"]["containers"]:
                requests = container["resources"]["requests"]
                requested.update({name: parse_quantity(requests[name]) for name in case.quota})
        reserved: Counter[str] = Counter()
        for assigned in value_at(await job.workload(), ("status", "admission", "podSetAssignments"), []):
            usage = assigned["resourceUsage"]
            reserved.update({name: parse_quantity(usage[name]) for name in case.quota})
        assert requested == reserved, file
        await job.end_pods("Succeeded", case.succeeded)
        await until_ended(job, "Succeeded", case.kind.messages["succeeded"])
        await stage.client.delete(case.kind.resource, job.name, stage.namespace, propagation="Background")
        await stage.until(job.is_gone_for_good)
        await job.until_no_pods()


@pytest.mark.parametrize("role", ["driver", "executor"])
async def test_suspended_application_keeps_its_quota_while_its_pods_end(
    stage: Stage, case: OperatorCase, role: str
) -> None:
    await open_queue(stage, case, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.create(stage.kinds.workload_priority_classes, stage.own("high"), {"value": 1000})
    # They still end when the operator reports SUSPENDED.
    slow = {f"spec.{role}.annotations[kwok.admitq.dev/termination-seconds]": "3600"}
    job = await submit(stage, case, changes=slow)
    await until_running(case, job)
    ending = {pod["metadata"]["name"] for pod in await job.pods(f"spark-role={role}")}
    high = {stage.names.priority_class: stage.own("high")}
    await stage.job("first", cpu=case.quota["cpu"], labels=high)
    await job.until({"spec.suspend": True, "status.applicationState.state": "SUSPENDED"})

    async def pods() -> set[str]:
        return {pod["metadata"]["name"] for pod in (await stage.client.list(PODS, stage.namespace))[0]}

    await stage.until(pods, ending)
    await job.until_condition("PodsOutliveJob", "True", "PodsRunning")
    *others, last = sorted(ending)
    for name in others:
        await stage.client.delete(PODS, name, stage.namespace, grace_seconds=0)
    await _until_named(job, last)
    assert is_reserved(await job.workload())
    assert not is_reserved(await stage.workload("first"))

    await stage.client.delete(PODS, last, stage.namespace, grace_seconds=0)
    await stage.until_running("first")
    assert not is_reserved(await job.workload())
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Background")
    await until_running(case, job)
    await job.until_condition("PodsReady", "True")


async def test_executor_that_the_program_adds_keeps_the_quota_after_the_application_is_suspended(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_running(case, job)
    added = await _add_executor(job)
    await until_running(case, job, case.pods + 1)
    await job.change_workload({"spec": {"active": False}})
    await job.until({"spec.suspend": True, "status.applicationState.state": "SUSPENDED"})
    await _until_named(job, added)
    assert is_reserved(await job.workload())
    await stage.client.delete(PODS, added, stage.namespace, grace_seconds=0)
    await job.until_condition("QuotaReserved", "False", "Deactivated")


@pytest.mark.parametrize(
    "enabled",
    [
        pytest.param({"spec.dynamicAllocation": {"enabled": True, "maxExecutors": 9}}, id="field"),
        pytest.param({"spec.sparkConf": {"spark.dynamicAllocation.enabled": "true"}}, id="configuration"),
    ],
)
async def test_running_application_does_not_become_dynamic(
    stage: Stage, case: OperatorCase, enabled: dict[str, Any]
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    before = uids_of(await until_running(case, job))
    with pytest.raises(ApiError, match="only elastic jobs can change their size"):
        await job.change(enabled)
    with pytest.raises(ApiError, match="only elastic jobs can change their size"):
        await submit(stage, case, "other", changes=enabled)
    assert uids_of(await until_running(case, job)) == before


async def test_application_with_dynamic_allocation_is_refused(
    stage: Stage, case: OperatorCase, api_group: str
) -> None:
    await open_queue(stage, case)
    sample = with_sample(case, "spark", "examples/spark-pi-dynamic-allocation.yaml", api_group)
    with pytest.raises(ApiError, match="only elastic jobs can change their size"):
        await submit(stage, sample)
    job = await submit(stage, sample, changes={"spec.dynamicAllocation": None})
    await until_running(sample, job, pods=2)


async def _add_executor(job: OperatedJob) -> str:
    """Create one more executor, as a driver does when its program requests it. Return its name."""
    executor, *_ = await job.pods(EXECUTORS)
    metadata, name = executor["metadata"], f"{job.name}-exec-added"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**metadata["labels"], "spark-exec-id": "99"},
            "annotations": {**metadata["annotations"], "kwok.admitq.dev/termination-seconds": "3600"},
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": {**executor["spec"], "nodeName": None},
    }
    await job.stage.client.create(PODS, pod)
    return name


async def _until_named(job: OperatedJob, pod: str) -> None:
    """Wait until the Workload reports exactly one pod that outlives its job."""

    async def message() -> str:
        return (condition_of(await job.workload(), "PodsOutliveJob") or ("", "", ""))[2]

    wanted = f"1 pod can still run after the end of the job: {pod}. Delete them to release the quota"
    await job.stage.until(message, wanted)

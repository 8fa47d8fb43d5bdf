"""Stories of AppWrappers: other wrapped kinds, wrapped objects, pods that do not end, and failures."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from admitq.controllers.indexes import resource_of
from admitq.integrations.registry import load_integrations
from admitq.runtime.resources import PODS, Resource
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.kind_cases import differences
from tests.controlplane.stage import Stage, condition_of
from tests.operators.operator_case import End, OperatedJob, OperatorCase, submit, uids_of, with_sample
from tests.operators.test_stories import (
    check_kept_admission,
    open_queue,
    release,
    stories_of,
    until_ended,
    until_running,
)

pytestmark = stories_of("appwrapper")

_ANNOTATION: Final = "workload.codeflare.dev.appwrapper"
_BACKOFF_LIMIT: Final = "spec.components[0].template.spec.backoffLimit"
_HOLD: Final = "example.com/hold"
"""A finalizer, which keeps pods after their deletion."""
_MASTER: Final = "training.kubeflow.org/replica-type=master"
_WORKER: Final = "training.kubeflow.org/replica-type=worker,training.kubeflow.org/replica-index=1"

SAMPLES: Final[Mapping[str, tuple[str, tuple[int, ...], str]]] = {
    "wrapped-jobset": ("jobset.x-k8s.io/jobset", (4, 1), "500m"),
    "wrapped-pytorch-job": ("kubeflow.org/pytorchjob", (1, 2), "3"),
    "wrapped-deployment": ("deployment", (2,), "2"),
    "wrapped-pod": ("pod", (1,), "1"),
}
"""The framework of the object that a sample wraps, the counts of its podsets, and the CPU requested."""


@pytest.mark.parametrize("sample", SAMPLES)
async def test_wrapped_object_exists_only_while_the_wrapper_is_admitted(
    stage: Stage, case: OperatorCase, api_group: str, sample: str
) -> None:
    framework, counts, cpu = SAMPLES[sample]
    wrapper = with_sample(case, "appwrapper", f"samples/{sample}.yaml", api_group)
    await open_queue(stage, wrapper, quota={"cpu": cpu}, stopPolicy="Hold")
    job = await submit(stage, wrapper)
    await job.until_condition("QuotaReserved", "False", "Suspended")
    assert await job.pod_sets() == {f"j-{index}": count for index, count in enumerate(counts)}
    kind = _resource(framework)
    assert await _names(stage, kind) == []

    await release(stage)
    await until_running(wrapper, job, sum(counts))
    await job.until_condition("PodsReady", "True")
    wrapped = wrapper.kind.manifest["spec"]["components"][0]["template"]["metadata"]["name"]
    assert wrapped in await _names(stage, kind)
    workloads, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    assert [one["metadata"]["ownerReferences"][0]["kind"] for one in workloads] == ["AppWrapper"]

    await job.change_workload({"spec": {"active": False}})
    await job.until_suspended()
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    assert await _names(stage, kind) == []
    await job.until({"status.phase": "Suspended", "spec.components[0].podSetInfos": None})

    await job.change_workload({"spec": {"active": True}})
    await until_running(wrapper, job, sum(counts))


async def test_wrapper_keeps_its_quota_until_its_last_pod_is_deleted(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    held = {"spec.components[0].template.spec.template.metadata.finalizers": [_HOLD]}
    job = await submit(stage, case, changes=held)
    (pod,) = await until_running(case, job)
    await job.change_workload({"spec": {"active": False}})
    await job.until({"status.phase": "Suspending"})
    await job.until_condition("Evicted", "True", "Deactivated")
    await job.until_condition("QuotaReserved", "True")
    await _release_pod(stage, pod)
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    await job.until({"status.phase": "Suspended"})


async def test_pods_that_do_not_end_are_deleted_by_force_and_release_quota(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    pod_annotations = "spec.components[0].template.spec.template.metadata.annotations"
    changes = {
        f"metadata.annotations[{_ANNOTATION}/forcefulDeletionGracePeriodDuration]": "1s",
        f"{pod_annotations}[kwok.admitq.dev/termination-seconds]": "600",
    }
    job = await submit(stage, case, changes=changes)
    await until_running(case, job)
    await job.change_workload({"spec": {"active": False}})
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    assert await _names(stage, _resource("pod")) == []


async def test_wrapper_that_fails_after_its_last_retry_ends_as_failed(
    stage: Stage, case: OperatorCase
) -> None:
    assert case.restart is not None
    await open_queue(stage, case)
    job = await submit(stage, case, changes=case.restart.given)
    await until_running(case, job)
    await job.until_condition("PodsReady", "True")
    await job.end_pods("Failed", case.restart)
    await job.until(case.restart.until, timeout=case.restart.within)
    await until_running(case, job)
    await job.end_pods("Failed", case.restart)
    await until_ended(job, "Failed", case.kind.messages["failed"], within=case.failed.within)
    await job.until({"status.phase": "Failed", "status.resettingCount": 1})
    assert await job.pods() == []


async def test_failed_pods_reset_the_wrapper_after_the_grace_period_only(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    # The Job replaces a failed pod itself.
    given = {_BACKOFF_LIMIT: 6, **_faults(failureGracePeriodDuration="10m", retryPausePeriodDuration="1s")}
    job, admitted = await _submit_ready(stage, case, given, pods=1)
    await stage.job("waiting", cpu=case.quota["cpu"])
    (failed,) = await job.pods()
    await job.end_pods("Failed", End())
    (replacement,) = await until_running(case, job, 1)
    await _report_now(job)
    await _until_condition(job, "Unhealthy", "True", "FoundFailedPods")
    assert uids_of(await job.pods()) == uids_of([failed, replacement])
    assert differences(await job.get(), {"status.phase": "Running", "status.resettingCount": None}) == []
    await job.until_condition("PodsReady", "True")
    check_kept_admission(await job.workload(), admitted)

    await job.change(_faults(failureGracePeriodDuration="1s"))
    await job.until({"status.phase": "Running", "status.resettingCount": 1})
    await until_running(case, job, 1)
    assert not uids_of([failed, replacement]) & uids_of(await job.pods())
    await job.until_condition("PodsReady", "True", "Recovered")
    check_kept_admission(await job.workload(), admitted)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "waiting")


async def test_pods_that_are_replaced_within_the_grace_period_do_not_reset_the_wrapper(
    stage: Stage, case: OperatorCase, api_group: str
) -> None:
    wrapper = with_sample(case, "appwrapper", "samples/wrapped-pytorch-job.yaml", api_group)
    await open_queue(stage, wrapper, quota={"cpu": "3"})
    # The finalizer keeps the failed pod, which the training operator replaces, until the wrapper reports it.
    worker = "spec.components[0].template.spec.pytorchReplicaSpecs[Worker].template"
    given = {f"{worker}.metadata.finalizers": [_HOLD], **_faults(failureGracePeriodDuration="10m")}
    job, admitted = await _submit_ready(stage, wrapper, given, pods=3)
    before = uids_of(await job.pods())
    (failed,) = await job.pods(_WORKER)
    await job.end_pods("Failed", End(pods=_WORKER))
    await _report_now(job)
    await _until_condition(job, "Unhealthy", "True", "FoundFailedPods")
    await _release_pod(stage, failed)
    await until_running(wrapper, job, 3)
    await _report_now(job)
    await _until_condition(job, "Unhealthy", "False", "FoundNoFailedPods")
    assert len(before & uids_of(await job.pods())) == 2
    assert differences(await job.get(), {"status.phase": "Running", "status.resettingCount": None}) == []
    check_kept_admission(await job.workload(), admitted)


async def test_wrapper_that_pauses_before_a_retry_keeps_its_quota_until_it_is_stopped(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    given = _faults(retryLimit="1", retryPausePeriodDuration="1h")
    job, admitted = await _submit_ready(stage, case, given, pods=1)
    await stage.job("waiting", cpu=case.quota["cpu"])
    await job.end_pods("Failed", End())
    await _report_now(job)
    await job.until({"status.phase": "Resetting", "status.resettingCount": 1})
    await _until_condition(job, "ResourcesDeployed", "False", "Resetting")
    assert await _names(stage, PODS) == []
    await job.until_condition("PodsReady", "False", "WaitForRecovery")
    check_kept_admission(await job.workload(), admitted)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "waiting")

    await job.change_workload({"spec": {"active": False}})
    await job.until({"status.phase": "Suspended"})
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    await stage.until_running("waiting")


async def test_retry_waits_for_the_last_pod_before_it(
    stage: Stage, case: OperatorCase, api_group: str
) -> None:
    wrapper = with_sample(case, "appwrapper", "samples/wrapped-pytorch-job.yaml", api_group)
    await open_queue(stage, wrapper, quota={"cpu": "3"})
    master = "spec.components[0].template.spec.pytorchReplicaSpecs[Master].template"
    given = {
        f"{master}.metadata.finalizers": [_HOLD],
        "spec.components[0].template.spec.pytorchReplicaSpecs[Worker].restartPolicy": "Never",
        **_faults(retryLimit="1", retryPausePeriodDuration="1s"),
    }
    job, admitted = await _submit_ready(stage, wrapper, given, pods=3)
    before = uids_of(await job.pods())
    (master_pod,) = await job.pods(_MASTER)
    await job.end_pods("Failed", End(pods=_WORKER))
    await _report_now(job)
    await job.until({"status.phase": "Resetting"})
    await stage.until(lambda: _names(stage, PODS), [master_pod["metadata"]["name"]])
    await job.until_condition("PodsReady", "False", "WaitForRecovery")
    assert differences(await job.get(), {"status.phase": "Resetting"}) == []
    await _release_pod(stage, master_pod)
    await until_running(wrapper, job, 3)
    assert not before & uids_of(await job.pods())
    await job.until_condition("PodsReady", "True", "Recovered")
    check_kept_admission(await job.workload(), admitted)


async def test_resets_of_pods_that_do_not_start_do_not_defer_the_timeout(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    given = _faults(warmupGracePeriodDuration="1s", retryPausePeriodDuration="1s", retryLimit="1000")
    job = await submit(stage, case, changes={**case.notReady, **given})
    await job.until_condition("PodsReady", "False", "WaitForStart")
    await job.until_condition("Evicted", "True", "PodsReadyTimeout")
    await job.until({"spec.suspend": True, "status.phase": "Suspended"})
    assert value_at(await job.get(), ("status", "resettingCount")) >= 1
    await job.until_condition("QuotaReserved", "False")
    assert await _names(stage, PODS) == []


@pytest.mark.parametrize(
    ("codes", "resets"),
    [({"terminalExitCodes": "3"}, None), ({"retryableExitCodes": "3"}, 1)],
    ids=["terminal", "retryable"],
)
async def test_exit_codes_of_the_wrapper_decide_whether_it_is_retried(
    stage: Stage, case: OperatorCase, codes: Mapping[str, str], resets: int | None
) -> None:
    await open_queue(stage, case)
    given = _faults(retryLimit="1", retryPausePeriodDuration="1s", **codes)
    job, admitted = await _submit_ready(stage, case, given, pods=1)
    await job.end_pods("Failed", End(exitCode=3))
    await _report_now(job)
    if resets is None:
        await until_ended(job, "Failed", case.kind.messages["failed"], within=case.failed.within)
        await job.until({"status.phase": "Failed", "status.resettingCount": None})
    else:
        await job.until({"status.phase": "Running", "status.resettingCount": resets})
        await until_running(case, job, 1)
        check_kept_admission(await job.workload(), admitted)


def _faults(**annotations: str) -> dict[str, str]:
    """Return the fields of annotations about failures. By default, a failed pod is tolerated for a second."""
    given = {"failureGracePeriodDuration": "1s", **annotations}
    return {f"metadata.annotations[{_ANNOTATION}/{name}]": value for name, value in given.items()}


async def _submit_ready(
    stage: Stage, case: OperatorCase, given: Mapping[str, Any], pods: int
) -> tuple[OperatedJob, dict[str, Any]]:
    """Create a wrapper; return it, and its Workload when its pods are ready."""
    job = await submit(stage, case, changes=given)
    await until_running(case, job, pods)
    await job.until_condition("PodsReady", "True")
    return job, await job.workload()


async def _report_now(job: OperatedJob) -> None:
    """Let the operator read the pods of a wrapper, by a change of it. It reads them once a minute."""
    number = value_at(await job.get(), ("metadata", "resourceVersion"))
    await job.change({"metadata.annotations[example.com/changed-at]": number})


async def _until_condition(job: OperatedJob, type_: str, *wanted: str) -> None:
    """Wait until a condition of the wrapper has this status and reason."""

    async def found() -> bool:
        seen = condition_of(await job.get(), type_) or ()
        assert seen[: len(wanted)] == wanted, seen
        return True

    await eventually(found, what=f"condition {type_} of {job.name} is {wanted}")


async def _release_pod(stage: Stage, pod: Mapping[str, Any]) -> None:
    await stage.change(_resource("pod"), pod["metadata"]["name"], {"metadata": {"finalizers": None}})


def _resource(framework: str) -> Resource:
    (integration,) = (one for one in load_integrations() if one.framework == framework)
    return resource_of(integration)


async def _names(stage: Stage, kind: Resource) -> list[str]:
    found, _ = await stage.client.list(kind, stage.namespace)
    return [one["metadata"]["name"] for one in found]

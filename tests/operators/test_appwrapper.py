"""Stories of AppWrappers: other wrapped kinds, what happens to wrapped objects, and pods that do not end."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from admitq.controllers.indexes import resource_of
from admitq.integrations.registry import load_integrations
from admitq.runtime.resources import Resource
from tests.controlplane.stage import Stage
from tests.operators.operator_case import OperatorCase, submit, with_sample
from tests.operators.test_stories import open_queue, release, stories_of, until_ended, until_running

pytestmark = stories_of("appwrapper")

_ANNOTATION: Final = "workload.codeflare.dev.appwrapper"

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
    held = {"spec.components[0].template.spec.template.metadata.finalizers": ["example.com/hold"]}
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
    await until_ended(job, "Failed", case.kind.messages["failed"])
    await job.until({"status.phase": "Failed", "status.resettingCount": 1})
    assert await job.pods() == []


async def _release_pod(stage: Stage, pod: Mapping[str, Any]) -> None:
    await stage.change(_resource("pod"), pod["metadata"]["name"], {"metadata": {"finalizers": None}})


def _resource(framework: str) -> Resource:
    (integration,) = (one for one in load_integrations() if one.framework == framework)
    return resource_of(integration)


async def _names(stage: Stage, kind: Resource) -> list[str]:
    found, _ = await stage.client.list(kind, stage.namespace)
    return [one["metadata"]["name"] for one in found]

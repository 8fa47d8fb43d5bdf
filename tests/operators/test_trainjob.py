"""Stories of TrainJobs: the installed runtimes, and what only the trainer does."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from tests.controlplane.kind_cases import load, with_changes
from tests.controlplane.played_jobs import create_other
from tests.controlplane.stage import Stage
from tests.operators.operator_case import End, OperatedJob, OperatorCase, submit, with_manifest
from tests.operators.places import GPU
from tests.operators.test_stories import (
    check_kept_admission,
    open_queue,
    stories_of,
    until_ended,
    until_running,
)

pytestmark = stories_of("trainjob")

_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_RUNTIME_REF: Final = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}

NODES: Final[Mapping[str, Mapping[str, int]]] = {
    "torch-distributed": {"node": 3},
    "jax-distributed": {"node": 3},
    "xgboost-distributed": {"node": 3},
    # The launcher of MPI counts as a node.
    "deepspeed-distributed": {"launcher": 1, "node": 2},
    "mlx-distributed": {"launcher": 1, "node": 2},
}
"""The pods of a TrainJob with 3 nodes, by installed runtime without volumes."""
_TORCHTUNE: Final = ("torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b")
_DATASET: Final = "dataset-initializer"
_MODEL: Final = "model-initializer"
_QUOTA_OF_STEPS: Final = {"cpu": "1", "memory": "1Gi", GPU: "2"}
_VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
_RUNTIMES: Final = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)


@pytest.mark.parametrize("runtime", NODES)
async def test_job_with_an_installed_runtime_runs_the_pods_of_its_workload(
    stage: Stage, case: OperatorCase, runtime: str
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case, changes={"spec.runtimeRef.name": runtime})
    pods = await until_running(case, job)
    expected = NODES[runtime]
    assert await job.pod_sets() == expected
    assert Counter(_replicated_job_of(pod) for pod in pods) == expected
    assert _usage(await job.workload()) == {
        name: {"cpu": str(count), "memory": f"{count}Gi"} for name, count in expected.items()
    }
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    await job.until_condition("PodsReady", "True")
    await job.end_pods("Succeeded", End())
    await until_ended(job, "Succeeded", case.kind.messages["succeeded"])


@pytest.mark.parametrize("runtime", _TORCHTUNE)
async def test_job_with_an_installed_runtime_of_three_steps_reserves_quota_for_all_steps(
    stage: Stage, case: OperatorCase, runtime: str
) -> None:
    """The volumes of these runtimes keep the trainer from resuming their JobSets, as the next story says."""
    await open_queue(stage, case, quota=_QUOTA_OF_STEPS)
    job = await submit(stage, case, changes={"spec.runtimeRef.name": runtime, "spec.trainer": None})
    await job.until_condition("Admitted", "True")
    assert await job.pod_sets() == {_DATASET: 1, _MODEL: 1, "node": 1}
    assert _usage(await job.workload())["node"] == {GPU: "2"}


@pytest.mark.parametrize("runtime", _TORCHTUNE)
async def test_job_with_a_retention_policy_of_volumes_runs_its_node_after_both_initializers(
    stage: Stage, case: OperatorCase, runtime: str
) -> None:
    await open_queue(stage, case, quota=_QUOTA_OF_STEPS)
    await _create_volume(stage, "initializer-j")
    await _copy_runtime_with_retention_policy(stage, runtime)
    copied = {"spec.runtimeRef": {**_RUNTIME_REF, "kind": "TrainingRuntime", "name": runtime}}
    job = await submit(stage, case, changes={**copied, "spec.trainer": None})
    # The initializers request nothing, so their podsets have no flavor.
    initializers = await job.until_pods_run(2)
    assert {_replicated_job_of(pod) for pod in initializers} == {_DATASET, _MODEL}
    assert _usage(await job.workload())["node"] == {GPU: "2"}

    await job.end_pods("Succeeded", End(pods=f"{_REPLICATED_JOB}={_DATASET}"))
    await job.until_reclaimable(**{_DATASET: 1})
    (remaining,) = await job.until_pods_run(1)
    assert _replicated_job_of(remaining) == _MODEL
    await job.end_pods("Succeeded", End(pods=f"{_REPLICATED_JOB}={_MODEL}"))
    (node,) = await until_running(case, job, 1)
    assert _replicated_job_of(node) == "node"
    (container,) = node["spec"]["containers"]
    assert container["resources"]["requests"][GPU] == "2"
    await job.until_reclaimable(**{_DATASET: 1, _MODEL: 1})
    await job.until_condition("PodsReady", "True", "Started")
    await job.end_pods("Succeeded", End())
    await until_ended(job, "Succeeded", case.kind.messages["succeeded"])


async def test_nodes_start_after_the_initializer_and_its_quota_is_free(
    stage: Stage, case: OperatorCase, api_group: str
) -> None:
    steps, job = await _submit_with_initializer(stage, case, api_group)
    (initializer,) = await until_running(steps, job, 1)
    assert _replicated_job_of(initializer) == "model-initializer"
    await job.end_pods("Succeeded", End())
    nodes = await until_running(steps, job, 3)
    assert {_replicated_job_of(pod) for pod in nodes} == {"node"}
    await job.until_reclaimable(**{"model-initializer": 1})
    await job.end_pods("Succeeded", End())
    await until_ended(job, "Succeeded", steps.kind.messages["succeeded"])


async def test_job_stopped_after_its_initializer_runs_its_nodes_after_it_is_resumed(
    stage: Stage, case: OperatorCase, api_group: str
) -> None:
    steps, job = await _submit_with_initializer(stage, case, api_group)
    await until_running(steps, job, 1)
    await job.end_pods("Succeeded", End())
    await until_running(steps, job, 3)
    await job.change_workload({"spec": {"active": False}})
    await job.until_suspended()
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    await job.until({"spec.runtimePatches[0].trainingRuntimeSpec": None})
    await job.change_workload({"spec": {"active": True}})
    nodes = await until_running(steps, job, 3)
    assert {_replicated_job_of(pod) for pod in nodes} == {"node"}
    await job.end_pods("Succeeded", End())
    await until_ended(job, "Succeeded", steps.kind.messages["succeeded"])


async def test_job_keeps_its_admission_while_its_job_replaces_a_failed_pod(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case)
    await until_running(case, job)
    await job.until_condition("PodsReady", "True")
    before = await job.workload()
    await job.end_pods("Failed", End(pods="batch.kubernetes.io/job-completion-index=0"))
    await job.until_condition("PodsReady", "False", "WaitForRecovery")
    await until_running(case, job)
    await job.until_condition("PodsReady", "True", "Recovered")
    check_kept_admission(await job.workload(), before)


async def test_job_that_exceeds_its_deadline_ends_as_failed(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case, changes={"spec.activeDeadlineSeconds": 5})
    await until_running(case, job)
    await until_ended(job, "Failed", "TrainJob exceeded its active deadline")
    await job.until_no_pods()


async def test_job_without_a_runtime_is_refused_by_the_trainer(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    missing = {"spec.runtimeRef": {**_RUNTIME_REF, "name": "not-there-yet"}}
    with pytest.raises(ApiError, match="not-there-yet"):
        await submit(stage, case, changes=missing)


async def _submit_with_initializer(
    stage: Stage, case: OperatorCase, api_group: str
) -> tuple[OperatorCase, OperatedJob]:
    """Create the TrainJob of the documentation, with quota for its runtime of two steps."""
    documented = load(case.kind.integration, api_group)
    steps = with_manifest(case, documented, documented.manifest, api_group)
    await open_queue(stage, case, quota={"cpu": "3500m", "memory": "3584Mi"})
    for obj in documented.objects:
        await create_other(stage, obj)
    return steps, await submit(stage, steps)


async def _copy_runtime_with_retention_policy(stage: Stage, name: str) -> None:
    """Copy an installed runtime to the namespace, with the retention policy that JobSets have by default.

    A webhook adds this policy to new JobSets. It cannot be changed later. The trainer resumes a JobSet by an
    update without the policy if the runtime has none, and the API server refuses this update.
    """
    installed = await stage.get(_RUNTIMES, name)
    policies = "spec.template.spec.volumeClaimPolicies[0].retentionPolicy"
    await create_other(
        stage,
        {
            "apiVersion": _RUNTIMES.api_version,
            "kind": "TrainingRuntime",
            "metadata": {"name": name, "labels": installed["metadata"]["labels"]},
            "spec": with_changes(installed, {policies: {"whenDeleted": "Delete"}})["spec"],
        },
    )


async def _create_volume(stage: Stage, claim: str) -> None:
    """Create a volume for a claim, as a provisioner would."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Ti"},
        "claimRef": {"namespace": stage.namespace, "name": claim},
        "nfs": {"server": "nfs.example.com", "path": "/"},
    }
    await stage.create(_VOLUMES, stage.own("volume"), {"spec": spec})


def _replicated_job_of(pod: Mapping[str, Any]) -> str:
    return pod["metadata"]["labels"][_REPLICATED_JOB]


def _usage(workload: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The amounts of an admission, by podset."""
    listed = workload["status"]["admission"]["podSetAssignments"]
    return {one["name"]: one.get("resourceUsage", {}) for one in listed}

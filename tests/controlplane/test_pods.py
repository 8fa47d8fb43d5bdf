"""Stories of plain pods: gated, admitted, preempted, released and imported.

The real scheduler places the pods, and simulated nodes run them.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import yaml

from admitq.integrations.kinds.sparkapplication import SPARK_APPLICATION
from admitq.integrations.pod_shape import compute_role_hash
from admitq.integrations.workload_names import create_workload_name
from admitq.runtime.resources import PODS
from localcluster.folders import REPOSITORY
from tests.controlplane.kind_cases import load
from tests.controlplane.played_jobs import open_queues, submit
from tests.controlplane.pods import (
    EXIT_CODE,
    gates,
    get_workload,
    phases,
    pod,
    until_phases,
    until_released,
    until_workload,
)
from tests.controlplane.pods_of_jobs import until_pods_exist
from tests.controlplane.stage import EVENT_SECONDS, RUN_SECONDS, Stage, condition_of, controlled_by

# --- the guides -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["pod", "pod-group"])
async def test_pods_of_the_guide_run_unchanged(stage: Stage, page: str) -> None:
    quota = [{"name": "cpu", "nominalQuota": 2}, {"name": "memory", "nominalQuota": "2Gi"}]
    flavors = [{"name": stage.own("f"), "resources": quota}]
    await stage.flavor()
    await stage.cluster_queue(resourceGroups=[{"coveredResources": ["cpu", "memory"], "flavors": flavors}])
    await stage.local_queue("default")
    text = (REPOSITORY / "docs" / "guides" / "kinds" / f"{page}.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text.replace("admitq.dev/", f"{stage.names.group}/"), re.DOTALL)
    shown = [one for block in blocks for one in yaml.safe_load_all(block) if one.get("kind") == "Pod"]
    for one in shown:
        await stage.create(PODS, one["metadata"]["name"], one)
    await until_phases(stage, **{one["metadata"]["name"].replace("-", "_"): "Running" for one in shown})


# --- single pods ----------------------------------------------------------------------------------


@pytest.mark.core
async def test_pod_is_gated_admitted_runs_and_releases_its_quota(stage: Stage) -> None:
    names = stage.names
    await stage.active_queues()
    created = await pod(stage, "p", seconds=1)
    assert gates(created) == [names.admission_gate, names.topology_gate]
    assert created["metadata"]["finalizers"] == [names.managed_finalizer]
    assert created["metadata"]["labels"][names.managed] == "true"
    assert len(created["metadata"]["annotations"][names.role_hash]) == 8
    name = create_workload_name("Pod", "", "p", created["metadata"]["uid"])
    await until_workload(stage, name, "Finished", "Succeeded")
    await until_released(stage, PODS, "p")
    finished = await stage.get(PODS, "p")
    assert gates(finished) == []
    assert finished["spec"]["nodeName"]
    assert finished["metadata"]["labels"][names.podset] == "main"
    assert finished["metadata"]["labels"][names.cluster_queue_name] == stage.own("cq")
    assert finished["metadata"]["annotations"][names.workload] == name
    await until_released(stage, stage.kinds.workloads, name)
    workload = await get_workload(stage, name)
    owner = workload["metadata"]["ownerReferences"]
    assert [(one["kind"], one["name"], one.get("controller")) for one in owner] == [("Pod", "p", True)]
    assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("main", 1)]

    async def events() -> list[tuple[str, str]]:
        return await stage.events("Pod", "p")

    await stage.until(
        events,
        [
            ("CreatedWorkload", f"Created Workload: {stage.namespace}/{name}"),
            ("Started", f"Admitted by clusterQueue {stage.own('cq')}"),
            ("FinishedWorkload", f"Workload '{stage.namespace}/{name}' is declared finished"),
        ],
        timeout=EVENT_SECONDS,
    )


async def test_workload_of_a_failed_pod_finishes_as_failed(stage: Stage) -> None:
    await stage.queues()
    created = await pod(stage, "p", seconds=0, annotations={EXIT_CODE: "3"})
    name = create_workload_name("Pod", "", "p", created["metadata"]["uid"])
    await until_workload(stage, name, "Finished", "Failed")


async def test_second_pod_waits_until_the_first_releases_its_quota(stage: Stage) -> None:
    await stage.queues(cpu=1)
    first = await pod(stage, "first")
    await until_phases(stage, first="Running")
    await until_workload(
        stage, create_workload_name("Pod", "", "first", first["metadata"]["uid"]), "PodsReady", "Started"
    )
    second = await pod(stage, "second")
    name = create_workload_name("Pod", "", "second", second["metadata"]["uid"])
    await until_workload(stage, name, "QuotaReserved", "WaitingForQuota")
    await until_phases(stage, second="held")
    await stage.client.delete(PODS, "first", stage.namespace)
    await until_phases(stage, first="gone", second="Running")


async def test_preempted_pod_is_deleted_with_its_workload(stage: Stage) -> None:
    await stage.active_queues(cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    classes, high = stage.kinds.workload_priority_classes, stage.own("high")
    await stage.create(classes, high, {"value": 100})
    low = await pod(stage, "low", terminationGracePeriodSeconds=0)
    await until_phases(stage, low="Running")
    await pod(stage, "high", labels={stage.names.priority_class: high})
    await until_phases(stage, low="gone", high="Running")

    async def first_reasons() -> list[str]:
        return [reason for reason, _ in await stage.events("Pod", "low")][:3]

    await stage.until(first_reasons, ["CreatedWorkload", "Started", "Stopped"], timeout=EVENT_SECONDS)
    await stage.until_gone(
        stage.kinds.workloads, create_workload_name("Pod", "", "low", low["metadata"]["uid"])
    )


async def test_pod_preempted_before_its_start_is_requeued(stage: Stage) -> None:
    await stage.active_check("check")
    checks = {"admissionChecks": [{"name": stage.own("check")}]}
    preempts = {"withinClusterQueue": "LowerPriority"}
    await stage.queues(cpu=1, preemption=preempts, admissionChecksStrategy=checks)
    classes, high = stage.kinds.workload_priority_classes, stage.own("high")
    await stage.create(classes, high, {"value": 100})
    low = create_workload_name("Pod", "", "low", (await pod(stage, "low"))["metadata"]["uid"])
    await until_workload(stage, low, "Admitted", "UnsatisfiedAdmissionChecks")
    preemptor = await pod(stage, "high", labels={stage.names.priority_class: high})
    preemptor_workload = create_workload_name("Pod", "", "high", preemptor["metadata"]["uid"])
    await until_workload(stage, preemptor_workload, "Admitted", "UnsatisfiedAdmissionChecks")
    await until_workload(stage, low, "Requeued", "Preempted", "True")
    await stage.client.delete(PODS, "high", stage.namespace)
    await until_workload(stage, low, "QuotaReserved", "QuotaReserved", "True")
    await until_phases(stage, low="held", high="gone")


async def test_pending_pod_and_its_workload_are_removed_when_the_pod_is_deleted(stage: Stage) -> None:
    await stage.queues(cpu=1)
    await pod(stage, "p", cpu=2)
    await stage.until_workload_exists("p")
    await stage.client.delete(PODS, "p", stage.namespace)
    await stage.until_gone(PODS, "p")
    await stage.until(lambda: stage.workloads("p"), [])


async def test_running_pod_is_deleted_when_its_workload_is_deleted(stage: Stage) -> None:
    await stage.queues()
    created = await pod(stage, "p")
    await until_phases(stage, p="Running")
    name = create_workload_name("Pod", "", "p", created["metadata"]["uid"])
    await stage.client.delete(stage.kinds.workloads, name, stage.namespace)
    await stage.until_gone(PODS, "p")
    await stage.until_gone(stage.kinds.workloads, name)


async def test_pending_pod_is_deleted_when_its_gates_are_removed(stage: Stage) -> None:
    await stage.queues(cpu=1)
    await pod(stage, "p", cpu=2)
    await stage.until_workload_exists("p")
    await stage.change(PODS, "p", {"spec": {"schedulingGates": []}})
    await stage.until_gone(PODS, "p")
    await stage.until_event("Pod", "p", "Stopped", "Not admitted by cluster queue")


@pytest.mark.parametrize("kind", ["no queue", "in a job"])
async def test_pods_without_a_queue_name_or_of_a_job_are_not_gated(stage: Stage, kind: str) -> None:
    await stage.queues()
    if kind == "in a job":
        await stage.job(seconds=1)
        pods = await until_pods_exist(stage)
        assert gates(pods[0]) == []
        assert stage.names.managed not in pods[0]["metadata"]["labels"]
        await stage.until_finished()
        return
    created = await pod(stage, "p", queue=None, seconds=1)
    assert gates(created) == []
    assert "finalizers" not in created["metadata"]
    await until_phases(stage, p="Succeeded")


async def test_spark_executors_are_queued_with_their_application(
    stage: Stage, definitions: Callable[[Iterable[str]], None]
) -> None:
    case = load(SPARK_APPLICATION, stage.names.group)
    definitions(case.definitions)
    await open_queues(stage, case)
    application, created = await submit(stage, case)
    await application.until_started()
    queue = created["metadata"]["labels"][stage.names.queue_name]

    async def create_pod(name: str, role: str, by: dict[str, Any]) -> dict[str, Any]:
        reference = {key: by["metadata"][key] for key in ("name", "uid")}
        reference |= {key: by[key] for key in ("apiVersion", "kind")} | {"controller": True}
        labels = {"spark-role": role, "spark-app-selector": "spark-1", stage.names.queue_name: queue}
        spec = {"containers": [{"name": "spark", "image": "example.com/spark:1"}]}
        metadata = {"labels": labels, "ownerReferences": [reference]}
        return await stage.create(PODS, name, {"metadata": metadata, "spec": spec})

    driver = await create_pod(f"{created['metadata']['name']}-driver", "driver", created)
    executor = await create_pod("executor", "executor", driver)
    alone = await create_pod("alone", "executor", executor)
    assert [gates(one) for one in (driver, executor)] == [[], []]
    assert stage.names.admission_gate in gates(alone)
    await stage.until_workload_exists("alone")
    assert await stage.workloads("executor") == await stage.workloads(driver["metadata"]["name"]) == []


# --- objects that another program created ---------------------------------------------------------


async def import_workload(
    stage: Stage, name: str, pod_set: str, spec: dict[str, Any], **metadata: Any
) -> None:
    """Create an admitted Workload in ``cq`` as an importer does, which does not check the quota."""
    workloads, template = stage.kinds.workloads, {"spec": spec}
    pod_sets = [{"name": pod_set, "count": 1, "template": template}]
    held = {"finalizers": [stage.names.finalizer], **metadata}
    await stage.create(workloads, name, {"metadata": held, "spec": {"queueName": "lq", "podSets": pod_sets}})
    assignment = {
        "name": pod_set,
        "count": 1,
        "flavors": {"cpu": stage.own("f")},
        "resourceUsage": {"cpu": "1"},
    }
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": "Imported",
            "message": f"Imported into ClusterQueue {stage.own('cq')}",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
        for type_ in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": stage.own("cq"), "podSetAssignments": [assignment]}
    status = {"status": {"conditions": conditions, "admission": admission}}
    await stage.change(workloads, name, status, "status")


async def test_b7_imported_running_pods_keep_running_and_finish(stage: Stage) -> None:
    names = stage.names
    # The queue is stopped, so that admitq does not admit these Workloads before they are imported.
    await stage.queues(cpu=2, stopPolicy="Hold")
    alone = await pod(stage, "alone", queue=None)
    member = await pod(stage, "g-0", queue=None)
    await until_phases(stage, alone="Running", g_0="Running")
    assert [one["metadata"].get("finalizers") for one in (alone, member)] == [None, None]
    name = create_workload_name("Pod", "", "alone", alone["metadata"]["uid"])
    await import_workload(stage, name, "main", alone["spec"], **controlled_by(alone))
    of_group = {"annotations": {names.is_group_workload: "true"}}
    await import_workload(stage, "g", compute_role_hash(member["spec"]), member["spec"], **of_group)
    # The webhook refuses a queue name on running pods: the importer adds only the label of managed pods.
    managed = {names.managed: "true"}
    await stage.change(PODS, "alone", {"metadata": {"labels": managed}})
    grouped = {names.pod_group_total_count: "1", names.pod_group_name: "g"}
    await stage.change(PODS, "g-0", {"metadata": {"labels": managed, "annotations": grouped}})
    for workload in (name, "g"):
        # The pod controller reports that the pods run, and does not change the admission.
        await until_workload(stage, workload, "PodsReady", "Started", "True")
        assert (condition_of(await get_workload(stage, workload), "Admitted") or ())[:2] == (
            "True",
            "Imported",
        )
    assert await phases(stage, ["alone", "g-0"]) == ["Running", "Running"]
    for one in ("alone", "g-0"):
        await stage.change(PODS, one, {"metadata": {"annotations": {RUN_SECONDS: "0"}}})
    await until_workload(stage, name, "Finished", "Succeeded")
    await until_workload(stage, "g", "Finished", "Succeeded")

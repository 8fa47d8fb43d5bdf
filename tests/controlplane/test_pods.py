"""Stories of plain pods and pod groups: gated, admitted, replaced, preempted and released.

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
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS, Resource
from admitq_api.json_objects import value_at
from localcluster.folders import REPOSITORY
from localcluster.waiting import eventually
from tests.controlplane.kind_cases import load, open_queues, submit
from tests.controlplane.pods_of_jobs import until_pods_exist
from tests.controlplane.stage import RUN_SECONDS, Stage, condition_of, controlled_by

EXIT_CODE = "kwok.admitq.dev/exit-code"


async def pod(
    stage: Stage,
    name: str,
    *,
    queue: str | None = "lq",
    cpu: Any = 1,
    seconds: float | None = None,
    group: str | None = None,
    total: int | None = None,
    labels: Any = None,
    annotations: Any = None,
    **spec: Any,
) -> dict[str, Any]:
    """Create a pod, alone or in a group."""
    names = stage.names
    marks = {**({names.queue_name: queue} if queue else {}), **(labels or {})}
    notes = {} if seconds is None else {RUN_SECONDS: str(seconds)}
    if group is not None:
        marks[names.pod_group_name] = group
    if total is not None:
        notes[names.pod_group_total_count] = str(total)
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": cpu}}}
    return await stage.create(
        PODS,
        name,
        {
            "metadata": {"labels": marks, "annotations": {**notes, **(annotations or {})}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [container],
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        },
    )


async def group(stage: Stage, name: str, size: int, *, total: int | None = None, **fields: Any) -> None:
    """Create the pods ``<name>-0`` and so on, of a group."""
    for number in range(size):
        await pod(stage, f"{name}-{number}", group=name, total=total or size, **fields)


def gates(one: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in value_at(one, ("spec", "schedulingGates"), [])]


async def get_workload(stage: Stage, name: str) -> dict[str, Any]:
    """The Workload of this name."""
    return await stage.get(stage.kinds.workloads, name)


async def phases(stage: Stage, names: Iterable[str]) -> list[str]:
    """The state of each pod: ``gone``, ``going`` (terminating), ``held`` (gated) or its phase."""
    states: list[str] = []
    for name in names:
        try:
            one = await stage.get(PODS, name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            states.append("gone")
            continue
        if "deletionTimestamp" in one["metadata"]:
            states.append("going")
        elif stage.names.admission_gate in gates(one):
            states.append("held")
        else:
            states.append(one["status"]["phase"])
    return states


async def until_phases(stage: Stage, **wanted: str) -> None:
    """Wait until pods have these states (see ``phases``); names have ``_`` for ``-``."""
    names = [name.replace("_", "-") for name in wanted]

    async def current() -> list[str]:
        return await phases(stage, names)

    await stage.until(current, list(wanted.values()), what=f"{wanted}")


async def until_workload(stage: Stage, name: str, type_: str, reason: str, status: str | None = None) -> None:
    """Wait until a Workload has a condition of this reason."""

    async def current() -> Any:
        condition = condition_of(await get_workload(stage, name), type_)
        return condition and (condition[0] if status else "", condition[1])

    await stage.until(current, (status or "", reason), what=f"{type_} {reason} of {name}")


async def until_released(stage: Stage, resource: Resource, *names: str) -> None:
    """Wait until these objects have no finalizers."""

    async def with_finalizers() -> list[str]:
        objects = [await stage.get(resource, name) for name in names]
        return [one["metadata"]["name"] for one in objects if one["metadata"].get("finalizers")]

    await stage.until(with_finalizers, [], what=f"{names} to be released")


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
    await stage.queues()
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
    await stage.queues(cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    classes, high = stage.kinds.workload_priority_classes, stage.own("high")
    await stage.create(classes, high, {"value": 100})
    low = await pod(stage, "low", terminationGracePeriodSeconds=0)
    await until_phases(stage, low="Running")
    await pod(stage, "high", labels={stage.names.priority_class: high})
    await until_phases(stage, low="gone", high="Running")

    async def first_reasons() -> list[str]:
        return [reason for reason, _ in await stage.events("Pod", "low")][:3]

    await stage.until(first_reasons, ["CreatedWorkload", "Started", "Stopped"])
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


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.core
async def test_pod_group_is_admitted_as_a_whole_once_it_is_complete(stage: Stage) -> None:
    names = stage.names
    await stage.queues()
    await pod(stage, "g-0", group="g", total=3, seconds=2)
    await pod(stage, "g-1", group="g", total=3, seconds=2)
    note = "'g' group has fewer runnable pods than expected"
    await stage.until_event("Pod", "g-0", "ErrWorkloadCompose", note)
    await until_phases(stage, g_0="held", g_1="held")
    await pod(stage, "g-2", group="g", total=3, cpu=2, seconds=2)
    await until_workload(stage, "g", "Finished", "Succeeded")
    workload = await get_workload(stage, "g")
    assert workload["metadata"]["annotations"][names.is_group_workload] == "true"
    owners = workload["metadata"]["ownerReferences"]
    assert sorted(one["name"] for one in owners) == ["g-0", "g-1", "g-2"]
    assert not any(one.get("controller") for one in owners)
    assert sorted(one["count"] for one in workload["spec"]["podSets"]) == [1, 2]
    assert condition_of(workload, "Finished") == ("True", "Succeeded", "Pods succeeded: 3/3.")

    await until_released(stage, PODS, "g-0", "g-1", "g-2")


@pytest.mark.core
async def test_failed_pod_of_a_group_is_replaced(stage: Stage) -> None:
    await stage.queues(cpu=2)
    await pod(stage, "g-0", group="g", total=2)
    await pod(stage, "g-1", group="g", total=2, seconds=1, annotations={EXIT_CODE: "1"})
    await until_workload(stage, "g", "WaitingForReplacementPods", "PodsFailed", "True")
    assert (await stage.get(PODS, "g-1"))["metadata"]["finalizers"]
    await pod(stage, "g-2", group="g", total=2, seconds=1)
    await until_phases(stage, g_0="Running", g_1="Failed", g_2="Succeeded")
    await until_workload(stage, "g", "WaitingForReplacementPods", "PodsReady", "False")
    await until_released(stage, PODS, "g-1")
    owners = (await get_workload(stage, "g"))["metadata"]["ownerReferences"]
    assert sorted(one["name"] for one in owners) == ["g-0", "g-1", "g-2"]
    await stage.until_event("Workload", "g", "OwnerReferencesAdded", "Added 1 owner reference(s)")

    async def reclaimable() -> Any:
        return [
            one["count"]
            for one in value_at(await get_workload(stage, "g"), ("status", "reclaimablePods"), [])
        ]

    await stage.until(reclaimable, [1])


async def test_preempted_pod_group_is_readmitted_with_replacement_pods(stage: Stage) -> None:
    await stage.queues(cpu=2, preemption={"withinClusterQueue": "LowerPriority"})
    classes, high = stage.kinds.workload_priority_classes, stage.own("high")
    await stage.create(classes, high, {"value": 100})
    await group(stage, "low", 2)
    await until_phases(stage, low_0="Running", low_1="Running")
    await pod(stage, "high", cpu=2, labels={stage.names.priority_class: high})
    await until_phases(stage, low_0="going", low_1="going", high="Running")
    victim = await stage.get(PODS, "low-0")
    ended = condition_of(victim, "TerminationTarget") or ("", "", "")
    assert ended[:2] == ("True", "WorkloadEvictedDueToPreempted")
    await until_workload(stage, "low", "WaitingForReplacementPods", "Preempted", "True")
    await until_workload(stage, "low", "Requeued", "Preempted", "True")
    await pod(stage, "low-2", group="low", total=2)
    await pod(stage, "low-3", group="low", total=2)
    await until_phases(stage, low_0="gone", low_1="gone", low_2="held", low_3="held")
    await until_workload(stage, "low", "WaitingForReplacementPods", "PodsReady", "False")
    await stage.client.delete(PODS, "high", stage.namespace)
    await until_phases(stage, low_2="Running", low_3="Running")


async def test_pod_group_with_fast_admission_starts_before_all_its_pods_exist(stage: Stage) -> None:
    fast = {stage.names.pod_group_fast_admission: "true"}
    await stage.queues()
    await pod(stage, "g-0", group="g", total=3, annotations=fast)
    await until_phases(stage, g_0="Running")
    assert [one["count"] for one in (await get_workload(stage, "g"))["spec"]["podSets"]] == [3]
    await pod(stage, "g-1", group="g", total=3, annotations=fast)
    await until_phases(stage, g_1="Running")


async def test_excess_pods_of_a_group_are_deleted(stage: Stage) -> None:
    await stage.queues()
    await group(stage, "g", 2)
    await until_phases(stage, g_0="Running", g_1="Running")
    await until_workload(stage, "g", "PodsReady", "Started")
    await pod(stage, "g-2", group="g", total=2)
    await until_phases(stage, g_0="Running", g_1="Running", g_2="gone")
    await stage.until_event("Pod", "g-2", "ExcessPodDeleted", "Excess pod deleted")


async def test_non_retriable_pod_group_finishes_when_its_pods_end(stage: Stage) -> None:
    not_retriable = {stage.names.retriable_in_group: "false"}
    await stage.queues()
    await pod(stage, "g-0", group="g", total=2, seconds=1)
    await pod(stage, "g-1", group="g", total=2, seconds=1, annotations={EXIT_CODE: "1", **not_retriable})
    await until_workload(stage, "g", "Finished", "Failed")
    assert condition_of(await get_workload(stage, "g"), "Finished") == (
        "True",
        "Failed",
        "Pods succeeded: 1/2.",
    )


async def test_serving_pod_group_does_not_finish_when_its_pods_succeed(stage: Stage) -> None:
    serving = {stage.names.pod_group_serving: "true"}
    await stage.queues()
    await group(stage, "g", 2, seconds=1, annotations=serving)
    await until_phases(stage, g_0="Succeeded", g_1="Succeeded")
    workload = await get_workload(stage, "g")
    assert condition_of(workload, "Finished") is None
    assert value_at(workload, ("status", "reclaimablePods"), []) == []


async def test_pod_group_with_two_queue_names_reports_an_event(stage: Stage) -> None:
    await stage.queues()
    await stage.local_queue("other")
    await pod(stage, "g-0", group="g", total=2)
    await pod(stage, "g-1", group="g", total=2, queue="other")
    note = "pods of group 'g' name different queues: 'lq', 'other'"
    # Events about a group are recorded on its oldest pod. In a new version of that, an event starts a series.
    await stage.change(PODS, "g-0", {"metadata": {"annotations": {"example.com/changed": "true"}}})
    await stage.until_event("Pod", "g-0", "ErrWorkloadCompose", note)
    await until_phases(stage, g_0="held", g_1="held")


@pytest.mark.parametrize("state", ["incomplete", "waiting", "running"])
async def test_pod_group_deleted_pod_by_pod_releases_its_quota(stage: Stage, state: str) -> None:
    await stage.queues(cpu=2)
    await group(stage, "g", 2, total=3 if state == "incomplete" else 2, cpu=2 if state == "waiting" else 1)
    if state == "running":
        await until_phases(stage, g_0="Running", g_1="Running")
    elif state == "waiting":
        await until_workload(stage, "g", "QuotaReserved", "ExceedsMaxQuota")
    await stage.client.delete(PODS, "g-0", stage.namespace)
    if state == "running":
        await until_workload(stage, "g", "WaitingForReplacementPods", "PodsFailed", "True")
    await stage.client.delete(PODS, "g-1", stage.namespace)
    await until_phases(stage, g_0="gone", g_1="gone")
    await stage.until_gone(stage.kinds.workloads, "g")
    await pod(stage, "next", cpu=2)
    await until_phases(stage, next="Running")


async def test_all_pods_of_a_group_are_deleted_when_its_workload_is_deleted(stage: Stage) -> None:
    await stage.queues()
    await group(stage, "g", 2)
    await until_phases(stage, g_0="Running", g_1="Running")
    await stage.client.delete(stage.kinds.workloads, "g", stage.namespace)
    await until_phases(stage, g_0="gone", g_1="gone")
    await stage.until_gone(stage.kinds.workloads, "g")


async def test_d22_group_named_like_the_workload_of_a_job_is_not_admitted(stage: Stage) -> None:
    await stage.queues()
    await stage.job()
    name = (await eventually(stage.workload, what="the Job's Workload"))["metadata"]["name"]
    await group(stage, name, 2)
    note = (
        f'A Workload named "{name}" already exists but is not a pod group workload; '
        "this pod group cannot be admitted"
    )
    await stage.until_event("Pod", f"{name}-0", "WorkloadNameConflict", note)
    assert await phases(stage, [f"{name}-0"]) == ["held"]
    assert len((await get_workload(stage, name))["metadata"]["ownerReferences"]) == 1


async def test_pod_group_adopts_its_prebuilt_workload_and_a_pending_group_moves_to_another_queue(
    stage: Stage,
) -> None:
    await stage.queues(cpu=4)
    await stage.closed_queue()
    await group(stage, "model", 2, queue="closed")
    await until_workload(stage, "model", "QuotaReserved", "Suspended")
    spec = {"queueName": "lq", "podSets": (await get_workload(stage, "model"))["spec"]["podSets"]}
    await stage.create(stage.kinds.workloads, "mine", {"spec": spec})
    await group(stage, "mine", 2, labels={stage.names.prebuilt_workload_name: "mine"})
    await until_phases(stage, mine_0="Running", mine_1="Running")
    assert len((await get_workload(stage, "mine"))["metadata"]["ownerReferences"]) == 2
    # A pending group moves to another queue when the labels of its pods change one by one.
    for number in range(2):
        queue = {stage.names.queue_name: "lq"}
        await stage.change(PODS, f"model-{number}", {"metadata": {"labels": queue}})
    await until_phases(stage, model_0="Running", model_1="Running")


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


async def test_b8_and_b9_prebuilt_group_workload_adopts_pods_that_name_its_podset(stage: Stage) -> None:
    names = stage.names
    await stage.queues()
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"queueName": "lq", "podSets": [{"name": "workers", "count": 2, "template": template}]}
    metadata = {"annotations": {names.is_group_workload: "true"}}
    await stage.create(stage.kinds.workloads, "g", {"metadata": metadata, "spec": spec})
    await until_workload(stage, "g", "Admitted", "Admitted", "True")
    brought = {names.role_hash: "workers"}
    await group(stage, "g", 2, labels={names.prebuilt_workload_name: "g"}, annotations=brought)
    await until_phases(stage, g_0="Running", g_1="Running")
    assert (await stage.get(PODS, "g-0"))["metadata"]["annotations"][names.role_hash] == "workers"
    workload = await get_workload(stage, "g")
    assert condition_of(workload, "Finished") is None
    assert len(workload["metadata"]["ownerReferences"]) == 2


# --- rejected requests --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ({"group": "g"}, "pod-group-total-count' annotation and the '"),
        ({"total": 2}, "pod-group-name' label should be set"),
        ({"group": "g", "total": 0}, "must be a whole number, at least 1"),
        ({"group": "G", "total": 1}, "pod-group-name"),
        ({"labels": {"managed": "yes"}, "queue": None}, 'can only be \\"true\\"'),
        ({"labels": {"prebuilt-workload-name": "other"}, "group": "g", "total": 1}, "should be equal"),
    ],
)
async def test_pod_with_invalid_group_metadata_is_rejected(stage: Stage, marks: Any, message: str) -> None:
    labels = {f"{stage.names.group}/{key}": value for key, value in marks.pop("labels", {}).items()}
    with pytest.raises(ApiError) as refused:
        await pod(stage, "p", labels=labels, **marks)
    assert message.replace("\\", "") in refused.value.message


async def test_group_metadata_of_a_pod_is_immutable(stage: Stage) -> None:
    names = stage.names
    await stage.queues()
    await pod(stage, "g-0", group="g", total=2, annotations={names.retriable_in_group: "false"})
    for change, message in (
        ({"labels": {names.pod_group_name: "other"}}, "field is immutable"),
        ({"annotations": {names.retriable_in_group: "true"}}, "can't be converted to retriable"),
    ):
        with pytest.raises(ApiError) as refused:
            await stage.change(PODS, "g-0", {"metadata": change})
        assert message in refused.value.message

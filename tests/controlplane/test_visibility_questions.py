"""Questions to the visibility API: why a Workload waits, when it starts, and what changes would do."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.resources import JOBS
from localcluster.pytest_plugin import fresh_namespace
from localcluster.waiting import eventually
from tests.controlplane.documented_commands import run_in_shell
from tests.controlplane.stage import Stage
from tests.controlplane.test_visibility import bind, until_workload
from tests.controlplane.visibility_api import Answered, VisibilityApi, bind_cluster_role

MINUTES = 60


@pytest.fixture
async def tenants(admin: Client, api: VisibilityApi) -> AsyncGenerator[tuple[Stage, Stage]]:
    """Two namespaces with one ClusterQueue of 2 CPUs. Job ``holds`` of the second one uses all of it.

    Job ``waits`` of the first one waits for it. ``holds`` may run for 30 minutes at most.
    """
    async with AsyncExitStack() as stack:
        names = [await stack.enter_async_context(fresh_namespace(admin)) for _ in range(2)]
        first, second = (Stage(admin, api.names, name) for name in names)
        await first.active_queues(cpu=2)
        spec = {"clusterQueue": first.own("cq")}
        await second.create(second.kinds.local_queues, "lq", {"spec": spec})
        await second.until_active(second.kinds.local_queues, "lq")
        await second.job("holds", cpu=2, labels={api.names.max_exec_time: str(30 * MINUTES)})
        await second.until_running("holds")
        await first.job("waits", labels={api.names.max_exec_time: str(30 * MINUTES)})
        await first.until_workload_exists("waits")
        yield first, second


async def path_of(api: VisibilityApi, stage: Stage, job: str, subresource: str) -> str:
    """Return the path of a question about the Workload of a Job."""
    name = (await until_workload(stage, job))["metadata"]["name"]
    return f"{api.root}/namespaces/{stage.namespace}/workloads/{name}/{subresource}"


async def until_answered(
    api: VisibilityApi, path: str, is_right: Callable[[Any], bool], **options: Any
) -> Answered:
    """Ask until the answer is right: the process observes the cluster a little later than the test."""

    async def answered() -> Answered:
        answer = await api.get(path, **options)
        assert answer.status == 200, answer
        assert is_right(answer.body), answer
        return answer

    return await eventually(answered, what=f"the answer of {path}")


def names_holder(answer: Any) -> bool:
    """Whether an explanation lists a workload that holds quota."""
    return any("holds 2 in" in line for line in answer["text"])


async def test_explanation_names_the_workload_that_holds_quota(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    holder = (await until_workload(second, "holds"))["metadata"]["name"]
    path = await path_of(api, first, "waits", "explanation")
    answer = (await until_answered(api, path, names_holder)).body
    assert (answer["kind"], answer["apiVersion"]) == (
        "WorkloadExplanation",
        f"{api.names.visibility_group}/v1beta2",
    )
    assert answer["waitsFor"]["reason"] == "Quota"
    (held,) = answer["flavors"][0]["resources"][0]["heldBy"]["workloads"]
    assert held["workload"] == {"namespace": second.namespace, "name": holder}
    line = f"workload {second.namespace}/{holder} holds 2 in {first.own('cq')}"
    assert any(line in text for text in answer["text"])
    assert answer["changes"]["alternatives"]


async def test_tenant_sees_no_names_of_other_namespaces(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    prefix = api.installation.prefix
    tenant, chief = (f"{name}-{first.namespace}" for name in ("tenant", "chief"))
    await bind(first, f"{prefix}-batch-user-role", tenant)
    await bind_cluster_role(first.client, f"{prefix}-batch-admin-role", chief, chief)
    mine = await path_of(api, first, "waits", "explanation")
    others = await path_of(api, second, "holds", "explanation")

    async def statuses() -> list[int]:
        asked = ((mine, tenant), (others, tenant), (others, chief), (mine, "nobody"))
        return [(await api.get(path, user=user)).status for path, user in asked]

    await first.until(statuses, [200, 403, 200, 403], what="the answers to each user")
    hidden = await until_answered(
        api,
        mine,
        lambda answer: any("a workload of another namespace holds 2" in line for line in answer["text"]),
        user=tenant,
    )
    assert second.namespace not in json.dumps(hidden.body)
    shown = await until_answered(api, mine, names_holder, user=chief)
    assert second.namespace in json.dumps(shown.body)


async def test_eta_is_before_the_limit_of_what_runs(api: VisibilityApi, tenants: tuple[Stage, Stage]) -> None:
    first, _ = tenants
    before = datetime.now(UTC)
    path = await path_of(api, first, "waits", "eta")
    answer = (await until_answered(api, path, lambda answer: answer["p50"] is not None)).body
    assert answer["kind"] == "WorkloadEta"
    median = datetime.fromisoformat(answer["p50"])
    assert (median - before).total_seconds() + 1 >= 0
    assert (median - before).total_seconds() <= 31 * MINUTES
    assert answer["text"][1].startswith(f"Starts: about {answer['p50']} (p50, in ")
    assert answer["basis"]["simulations"] >= 1
    as_of = datetime.fromisoformat(answer["asOf"])
    assert before.replace(microsecond=0) - timedelta(minutes=1) <= as_of <= median


async def test_eta_of_running_workload_is_its_start(api: VisibilityApi, tenants: tuple[Stage, Stage]) -> None:
    _, second = tenants
    path = await path_of(api, second, "holds", "eta")
    await until_answered(api, path, lambda answer: "it holds quota since" in answer["text"][1])


async def test_unknown_workload_is_not_found(api: VisibilityApi, tenants: tuple[Stage, Stage]) -> None:
    first, _ = tenants
    for subresource in ("explanation", "eta"):
        path = f"{api.root}/namespaces/{first.namespace}/workloads/none/{subresource}"
        answer = await api.get(path)
        assert (answer.status, answer.body["reason"]) == (404, "NotFound")


async def test_kubectl_prints_answers_as_tables(api: VisibilityApi, tenants: tuple[Stage, Stage]) -> None:
    first, _ = tenants
    name = (await until_workload(first, "waits"))["metadata"]["name"]
    await until_answered(api, await path_of(api, first, "waits", "explanation"), names_holder)
    resource = f"workloads.{api.version}.{api.names.visibility_group}"
    place = ("-n", first.namespace)
    explained = await asyncio.to_thread(
        api.kubectl, "get", resource, name, *place, "--subresource=explanation"
    )
    header, row = explained.splitlines()
    assert header.split() == [*("NAME", "PHASE", "IN", "CLUSTERQUEUE", "WAITS", "FOR"), "CHEAPEST", "CHANGE"]
    assert row.split()[:4] == [name, "Pending", "0", "unused"]
    expected = await asyncio.to_thread(api.kubectl, "get", resource, name, *place, "--subresource=eta")
    header, row = expected.splitlines()
    assert header.split() == ["NAME", "NOT", "BEFORE", "P50", "P90"]
    assert row.split()[0] == name


async def test_plugin_of_kubectl_prints_these_answers_to_a_tenant(
    api: VisibilityApi, tenants: tuple[Stage, Stage], tmp_path: Path
) -> None:
    first, second = tenants
    name = (await until_workload(first, "waits"))["metadata"]["name"]
    tenant = f"tenant-{first.namespace}"
    await bind(first, f"{api.installation.prefix}-batch-user-role", tenant)
    path = await path_of(api, first, "waits", "explanation")

    async def is_allowed() -> bool:
        return (await api.get(path, user=tenant)).status == 200

    await first.until(is_allowed)
    await until_answered(api, path, names_holder)
    kubeconfig = json.loads(api.installation.cluster.kubeconfig.read_bytes())
    kubeconfig["users"][0]["user"]["as"] = tenant
    (tmp_path / "kubeconfig.json").write_text(json.dumps(kubeconfig))
    program = Path(sys.executable).with_name("kubectl-admitq")
    options = f"{name} --namespace={first.namespace} --kubeconfig=kubeconfig.json"
    explained = await run_in_shell(api.installation, f"{program} explain {options}", tmp_path)
    assert f"Workload {first.namespace}/{name}: Pending" in explained
    assert "a workload of another namespace holds 2" in explained
    assert second.namespace not in explained
    expected = await run_in_shell(api.installation, f"{program} eta {options} -o json", tmp_path)
    assert json.loads(expected)["kind"] == "WorkloadEta"
    missing = await run_in_shell(
        api.installation, f"{program} eta none {options.partition(' ')[2]}", tmp_path
    )
    assert missing.startswith("error: ")
    assert '"none" not found' in missing


# --- what if ----------------------------------------------------------------------------------------------


def whatif(api: VisibilityApi) -> str:
    return f"{api.root}/whatif"


def localwhatif(api: VisibilityApi, stage: Stage) -> str:
    return f"{api.root}/namespaces/{stage.namespace}/localwhatif"


def spec_of(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"objects": list(objects)}}


def cluster_queue(stage: Stage, cpu: int, **spec: Any) -> dict[str, Any]:
    """Return the manifest of the ClusterQueue of a stage with another quota."""
    quotas = [{"name": stage.own("f"), "resources": [{"name": "cpu", "nominalQuota": cpu}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
    return {
        "apiVersion": stage.names.api_version,
        "kind": "ClusterQueue",
        "metadata": {"name": stage.own("cq")},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
    }


def new_job(stage: Stage, name: str, cpu: int = 1, **labels: str) -> dict[str, Any]:
    """Return the manifest of a Job that does not exist."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": stage.namespace,
            "labels": {stage.names.queue_name: "lq", **labels},
        },
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


async def versions(first: Stage, second: Stage) -> dict[str, str]:
    """Return the resource versions of all objects of a story by kind and name."""
    found: dict[str, str] = {}
    for stage in (first, second):
        for resource in (JOBS, stage.kinds.workloads, stage.kinds.local_queues):
            objects, _ = await stage.client.list(resource, namespace=stage.namespace)
            for obj in objects:
                metadata = obj["metadata"]
                name = f"{resource} {stage.namespace}/{metadata['name']}"
                found[name] = metadata["resourceVersion"]
    queue = await first.client.get(first.kinds.cluster_queues, first.own("cq"))
    return {**found, "queue": queue["metadata"]["resourceVersion"]}


async def ask_without_writes(
    api: VisibilityApi, first: Stage, second: Stage, body: dict[str, Any]
) -> dict[str, Any]:
    """Return the status of an answer during which no object of the story changed.

    The manager still writes statuses for a moment. A question that writes would never have such an answer.
    """
    await until_answered(api, await path_of(api, first, "waits", "explanation"), names_holder)

    async def asked() -> dict[str, Any]:
        before = await versions(first, second)
        answer = await api.post(whatif(api), body)
        assert answer.status == 201, answer
        assert answer.body["kind"] == "WhatIf"
        assert await versions(first, second) == before
        return answer.body["status"]

    return await eventually(asked, what="an answer without writes")


def named(stage: Stage, items: list[dict[str, Any]]) -> list[str]:
    """Return the names of the workloads of a namespace in a list of an answer."""
    return [
        each["workload"]["name"]
        for each in items
        if each["workload"] is not None and each["workload"]["namespace"] == stage.namespace
    ]


async def test_more_quota_would_admit_the_workload_and_nothing_is_written(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    status = await ask_without_writes(api, first, second, spec_of(cluster_queue(first, 3)))
    waits = (await until_workload(first, "waits"))["metadata"]["name"]
    assert named(first, status["admitted"]) == [waits]
    assert status["preempted"] == []
    await first.until_running("waits", running=False)


async def test_urgent_job_would_preempt_and_nothing_is_written(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    await first.create(first.kinds.workload_priority_classes, first.own("urgent"), {"value": 100})
    queue = cluster_queue(first, 2, preemption={"withinClusterQueue": "LowerPriority"})
    urgent = new_job(first, "urgent", 2, **{api.names.priority_class: first.own("urgent")})
    status = await ask_without_writes(api, first, second, spec_of(queue, urgent))
    (new,) = status["newWorkloads"]
    assert named(first, status["admitted"]) == [new["name"]]
    holder = (await until_workload(second, "holds"))["metadata"]["name"]
    assert status["preempted"] == [
        {
            "workload": {"namespace": second.namespace, "name": holder},
            "reason": "InClusterQueue",
            "preemptor": new,
        }
    ]
    assert f"  workload {second.namespace}/{holder} by workload {first.namespace}/{new['name']}" in "\n".join(
        status["text"]
    )


async def test_tenant_asks_about_its_own_namespace_only(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    tenant = f"asker-{first.namespace}"
    await bind(first, f"{api.installation.prefix}-batch-user-role", tenant)
    await until_answered(api, await path_of(api, first, "waits", "explanation"), names_holder)
    mine = spec_of(new_job(first, "late"))

    async def statuses() -> list[int]:
        asked = ((localwhatif(api, first), mine), (localwhatif(api, second), mine), (whatif(api), mine))
        return [(await api.post(path, body, user=tenant)).status for path, body in asked]

    await first.until(statuses, [201, 403, 403], what="the answers to the tenant")
    answer = (await api.post(localwhatif(api, first), mine, user=tenant)).body
    assert (answer["kind"], answer["metadata"]) == ("LocalWhatIf", {"namespace": first.namespace})
    (place,) = answer["status"]["positions"]
    assert place["after"] == {"clusterQueueName": first.own("cq"), "position": 1}
    assert second.namespace not in json.dumps(answer["status"])
    drained = {
        **new_job(first, "late"),
        "apiVersion": api.names.api_version,
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": second.namespace},
        "spec": {"clusterQueue": first.own("cq"), "stopPolicy": "HoldAndDrain"},
    }
    for other in (new_job(second, "theirs"), drained, cluster_queue(first, 9)):
        refused = await api.post(localwhatif(api, first), spec_of(other), user=tenant)
        assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
        assert f"only objects of namespace {first.namespace} can change" in refused.body["message"]


# --- would it run? ----------------------------------------------------------------------------------------


def verdicts(answer: Any) -> list[str]:
    return [each["verdict"] for each in answer["status"]["objects"]]


async def test_checked_job_has_the_verdict_that_the_manager_reaches(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    await until_answered(api, await path_of(api, first, "waits", "explanation"), names_holder)
    jobs = [new_job(first, "late"), new_job(first, "huge", 3), new_job(first, "lost")]
    jobs[2]["metadata"]["labels"][api.names.queue_name] = "none"

    async def asked() -> Answered:
        before = await versions(first, second)
        answer = await api.post(f"{api.root}/check", spec_of(*jobs))
        assert (answer.status, answer.body["kind"]) == (201, "Check"), answer
        assert await versions(first, second) == before
        return answer

    # At first, the process has not loaded how to read manifests, and the manager still writes statuses.
    answer = await eventually(asked, what="an answer without writes")
    assert verdicts(answer.body) == ["Waits", "Never", "Never"]
    late = answer.body["status"]["objects"][0]
    assert (late["clusterQueue"], late["explanation"]["positionInClusterQueue"]) == (first.own("cq"), 1)
    assert late["forecast"] is not None
    await first.job("late")
    await first.until_condition("QuotaReserved", "WaitingForQuota", "late")


async def test_tenant_checks_objects_of_its_namespace_and_sees_no_names_of_others(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    tenant = f"checker-{first.namespace}"
    await bind(first, f"{api.installation.prefix}-batch-user-role", tenant)
    await until_answered(api, await path_of(api, first, "waits", "explanation"), names_holder)
    mine = spec_of(new_job(first, "late"))
    local, other = (f"{api.root}/namespaces/{stage.namespace}/localcheck" for stage in tenants)

    async def statuses() -> list[int]:
        asked = (local, other, f"{api.root}/check")
        return [(await api.post(path, mine, user=tenant)).status for path in asked]

    await first.until(statuses, [201, 403, 403], what="the answers to the tenant")

    async def asked() -> Answered:
        shown = await api.post(local, mine, user=tenant)
        assert shown.status == 201, shown
        return shown

    answer = (await eventually(asked, what="an answer to the tenant")).body
    assert (answer["kind"], answer["metadata"]) == ("LocalCheck", {"namespace": first.namespace})
    assert verdicts(answer) == ["Waits"]
    assert "a workload of another namespace holds 2" in "\n".join(answer["status"]["text"])
    assert second.namespace not in json.dumps(answer["status"])
    foreign = {
        "apiVersion": api.names.api_version,
        "kind": "LocalQueue",
        "metadata": {"name": "new", "namespace": first.namespace},
        "spec": {"clusterQueue": "foreign"},
    }
    for obj, message in (
        (new_job(second, "theirs"), f"only objects of namespace {first.namespace} can change"),
        (foreign, "you may not ask about ClusterQueue foreign"),
    ):
        refused = await api.post(local, spec_of(obj), user=tenant)
        assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
        assert message in refused.body["message"]


async def test_plugin_checks_jobs_for_a_user_of_one_namespace(
    api: VisibilityApi, tenants: tuple[Stage, Stage], tmp_path: Path
) -> None:
    first, second = tenants
    user = f"plugin-{first.namespace}"
    for role in (f"{api.installation.prefix}-batch-user-role", "edit"):
        await bind(first, role, user)
    await until_answered(api, await path_of(api, first, "waits", "explanation"), names_holder)
    kubeconfig = json.loads(api.installation.cluster.kubeconfig.read_bytes())
    kubeconfig["users"][0]["user"]["as"] = user
    (tmp_path / "kubeconfig.json").write_text(json.dumps(kubeconfig))
    objects = [new_job(first, "late"), new_job(first, "huge", 3), new_job(first, "waits")]
    (tmp_path / "jobs.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    options = f"-f jobs.yaml --namespace={first.namespace} --kubeconfig=kubeconfig.json"

    async def is_answered() -> bool:
        shown = await run_in_shell(
            api.installation, f"kubectl admitq check {options}; echo exit status $?", tmp_path
        )
        assert f"Job {first.namespace}/late: would wait\n  Starts: " in shown
        assert "a workload of another namespace holds 2" in shown
        assert f"Job {first.namespace}/huge: would never be admitted\n" in shown
        assert f"Job {first.namespace}/waits: refused\n" in shown
        assert shown.endswith("exit status 4\n")
        assert second.namespace not in shown
        return True

    await eventually(is_answered, what="the answer to the user of one namespace")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the body must be an object of kind WhatIf"),
        ({"spec": {"objects": 7}}, "spec.objects: must be a list of objects"),
        ({"spec": {"object": []}}, "spec.object: unknown field"),
        ({"spec": {"objects": [{"kind": "Job"}]}}, "spec.objects[0]"),
    ],
    ids=["list", "objects", "unknown field", "no name"],
)
async def test_malformed_question_is_rejected_with_its_field(
    api: VisibilityApi, admin: Client, body: Any, message: str
) -> None:
    async def loaded() -> Answered:
        # The process loads how to read manifests after its start.
        answer = await api.post(whatif(api), body)
        assert answer.status != 503
        return answer

    answer = await eventually(loaded, what="an answer to a malformed question")
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert message in answer.body["message"]


async def test_kubectl_creates_a_question_and_prints_the_answer(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, _ = tenants
    await until_answered(api, await path_of(api, first, "waits", "explanation"), names_holder)
    question = {
        "apiVersion": f"{api.names.visibility_group}/{api.version}",
        "kind": "WhatIf",
        **spec_of(cluster_queue(first, 3)),
    }
    arguments = ("create", "-f", "-", "-o", 'jsonpath={range .status.text[*]}{@}{"\\n"}{end}')
    printed = await asyncio.to_thread(api.kubectl, *arguments, stdin=json.dumps(question))
    name, queue = (await until_workload(first, "waits"))["metadata"]["name"], first.own("cq")
    assert printed.splitlines()[:2] == [
        "Admitted:",
        f"  workload {first.namespace}/{name} in ClusterQueue {queue}, 1 pod with flavor {first.own('f')}",
    ]

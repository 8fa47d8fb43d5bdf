"""Stories of job kinds with the operators that users run, on simulated nodes.

The case file of a kind has what differs; ``cases/README.md`` describes it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pytest

from admitq.core.topology.domains import HOST_NAME
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS
from admitq.workloads.transitions import StatusTransition, is_reserved
from admitq_api.conditions import ConditionType, Reason, parse_time
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.topology_assignments import Domain, encode
from tests.controlplane.kind_cases import differences, path_of
from tests.controlplane.played_jobs import create_other
from tests.controlplane.stage import Stage, condition_of
from tests.operators.operator_case import (
    QUEUE,
    OperatedJob,
    OperatorCase,
    excluded_stories,
    has_story,
    names,
    submit,
    uids_of,
)
from tests.operators.places import FLAVOR, NODE_LABELS, RESERVED, TOLERATIONS
from tests.operators.programs import Program

pytestmark = pytest.mark.operators

STORY_OF: Final[dict[str, str]] = {}
"""The story that each test function tells, by its name."""


def story(name: str, *cases: str) -> Callable[[Any], Any]:
    """Parametrize the test of a story with these cases; by default with all to which the story applies."""
    mark = with_cases(*(cases or (case for case in names() if has_story(case, name))))

    def parametrized(test: Any) -> Any:
        return mark(tells(name)(test))

    return parametrized


def tells(name: str) -> Callable[[Any], Any]:
    """Let a kind's own test count as this story."""

    def named(test: Any) -> Any:
        STORY_OF[test.__name__] = name
        return test

    return named


def stories_of(case: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module with stories of one kind only."""
    return [pytest.mark.operators, with_cases(case)]


def with_cases(*cases: str) -> pytest.MarkDecorator:
    """Return the mark of a test that runs with these cases."""
    return pytest.mark.parametrize("case_name", cases, indirect=True, scope="session")


async def open_queue(
    stage: Stage, case: OperatorCase, *, jobs: int = 1, quota: Any = None, **spec: Any
) -> None:
    """Create a queue with quota for a number of jobs on the reserved nodes."""
    await stage.flavor("f", **FLAVOR)
    given = quota or case.quota
    resources = [
        {"name": name, "nominalQuota": amount if jobs == 1 else "1000Gi"} for name, amount in given.items()
    ]
    flavors = [{"name": stage.own("f"), "resources": resources}]
    groups = [{"coveredResources": list(given), "flavors": flavors}]
    await stage.cluster_queue("cq", resourceGroups=groups, **spec)
    await stage.local_queue(QUEUE)
    for obj in case.kind.objects:
        await create_other(stage, obj)


async def submit_held(
    stage: Stage, case: OperatorCase, changes: Mapping[str, Any] | None = None
) -> OperatedJob:
    """Create a job in a queue of a stopped ClusterQueue, and wait until its Workload says so."""
    await open_queue(stage, case, stopPolicy="Hold")
    job = await submit(stage, case, changes=changes)
    await job.until_condition("QuotaReserved", "False", "Suspended")
    return job


async def release(stage: Stage) -> None:
    """Let the ClusterQueue admit jobs."""
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"stopPolicy": "None"}})


async def until_running(
    case: OperatorCase, job: OperatedJob, pods: int | None = None
) -> list[dict[str, Any]]:
    """Wait until a job runs where and as its admission says; return its pods."""
    await job.until_condition("Admitted", "True")
    found = await job.until_pods_run(case.pods if pods is None else pods)
    admitted = condition_time(await job.workload(), "Admitted")
    for pod in found:
        assert parse_time(pod["metadata"]["creationTimestamp"]) >= admitted, pod["metadata"]["name"]
    check_places(found)
    return found


def check_places(pods: Iterable[dict[str, Any]]) -> None:
    """Check that pods run on the nodes of the flavor, with its node labels and tolerations."""
    for pod in pods:
        name = pod["metadata"]["name"]
        assert pod["spec"]["nodeName"].startswith(RESERVED), name
        assert NODE_LABELS.items() <= pod["spec"]["nodeSelector"].items(), name
        assert all(one in pod["spec"]["tolerations"] for one in TOLERATIONS), name


def condition_time(workload: dict[str, Any], type_: str) -> int:
    (found,) = (one for one in workload["status"]["conditions"] if one["type"] == type_)
    return parse_time(found["lastTransitionTime"])


def check_kept_admission(workload: dict[str, Any], before: dict[str, Any]) -> None:
    """Check that a Workload is the one that was admitted before, and that it was never evicted."""
    assert workload["metadata"]["uid"] == before["metadata"]["uid"]
    assert condition_time(workload, "Admitted") == condition_time(before, "Admitted")
    assert condition_of(workload, "Evicted") is None


async def until_nothing_reserved(stage: Stage) -> None:
    """Wait until the ClusterQueue has no Workload with quota."""

    async def reserving() -> Any:
        queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
        return value_at(queue, ("status", "reservingWorkloads"), 0)

    await stage.until(reserving, 0)


async def until_ended(job: OperatedJob, reason: str, message: str, *, within: float = 60.0) -> None:
    named = message.replace("{namespace}", job.stage.namespace)
    await job.until_condition("Finished", "True", reason, named, timeout=within)

    async def finalizers() -> list[str]:
        return (await job.workload())["metadata"].get("finalizers", [])

    await job.stage.until(finalizers, [])


@story("run")
async def test_job_is_held_admitted_and_runs_to_its_end(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, stopPolicy="Hold")
    job = await submit(stage, case)
    assert differences(await job.get(), case.kind.suspended) == []
    await job.until_condition("QuotaReserved", "False", "Suspended")
    assert await job.pod_sets() == {one.name: one.count for one in case.kind.podSets}
    assert await job.pods() == []
    await release(stage)
    await until_running(case, job)
    assert job.not_injected(await job.get(), await job.workload(), FLAVOR) == []
    await job.until_condition("PodsReady", "True", "Started")
    if "end" not in case.cannot:
        await job.end_pods("Succeeded", case.succeeded)
        await until_ended(job, "Succeeded", case.succeeded.message or case.kind.messages["succeeded"])


@story("placed")
async def test_pods_run_on_the_hosts_of_their_ranks(stage: Stage, case: OperatorCase) -> None:
    """The first pod of each podset gets a host of its own. The operator sets the labels of ranks."""
    job = await submit_held(stage, case, case.placed)
    workload = await job.workload()
    places = {
        pod_set["name"]: [1, *[2 + number % 2] * (pod_set.get("count", 1) - 1)]
        for number, pod_set in enumerate(workload["spec"]["podSets"])
    }
    await admit_on_hosts(stage, workload, places)
    found: dict[str, list[tuple[int | None, int]]] = {name: [] for name in places}
    for pod in await until_running(case, job, sum(map(len, places.values()))):
        name = pod["metadata"]["labels"][stage.names.podset]
        [pod_set] = [one for one in workload["spec"]["podSets"] if one["name"] == name]
        found[name].append((rank_of(pod, pod_set), host_of(pod)))
    for name, hosts in places.items():
        ranks = [rank for rank, _ in found[name]]
        if None in ranks:
            assert sorted(host for _, host in found[name]) == sorted(hosts), name
        else:
            assert sorted(found[name], key=str) == sorted(enumerate(hosts), key=str), name


async def admit_on_hosts(stage: Stage, workload: JsonObject, places: Mapping[str, Sequence[int]]) -> None:
    """Admit a Workload with a topology assignment: the numbers of the reserved hosts, by podset and rank."""
    assignments: list[JsonObject] = []
    for name, hosts in places.items():
        domains: list[Domain] = [
            ((f"{RESERVED}-{host}",), count) for host, count in sorted(Counter(hosts).items())
        ]
        assigned = {"topologyAssignment": encode([HOST_NAME], domains)}
        flavor = {"flavors": {"cpu": stage.own("f")}, "resourceUsage": {"cpu": str(len(hosts))}}
        assignments.append({"name": name, "count": len(hosts), **flavor, **assigned})

    def admit(transition: StatusTransition) -> None:
        transition.status["admission"] = {
            "clusterQueue": stage.own("cq"),
            "podSetAssignments": assignments,
        }
        transition.set_condition(ConditionType.QUOTA_RESERVED, True, Reason.QUOTA_RESERVED, "imported")
        transition.set_condition(ConditionType.ADMITTED, True, Reason.ADMITTED, "imported")

    await stage.apply_transition(workload["metadata"]["name"], admit)


def host_of(pod: Mapping[str, Any]) -> int:
    """The number of the reserved host on which a pod runs."""
    return int(pod["spec"]["nodeName"].rpartition("-")[2])


def rank_of(pod: Mapping[str, Any], pod_set: Mapping[str, Any]) -> int | None:
    """The rank of a pod in its podset by the labels that the Workload names; None if it names none.

    A pod that is alone in its podset need not have the label: the launcher of an MPIJob has none.
    """
    labels = pod["metadata"]["labels"]
    request = pod_set.get("topologyRequest") or {}
    if "podIndexLabel" not in request or pod_set.get("count", 1) == 1:
        return None
    rank = int(labels[request["podIndexLabel"]])
    if "subGroupIndexLabel" not in request:
        return rank
    size = pod_set.get("count", 1) // request["subGroupCount"]
    return rank + size * int(labels[request["subGroupIndexLabel"]])


@story("fail")
async def test_failed_job_ends_as_failed(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    job = await submit(stage, case, changes=case.failed.given)
    await until_running(case, job)
    await job.end_pods("Failed", case.failed)
    message = case.failed.message or case.kind.messages["failed"]
    await until_ended(job, "Failed", message, within=case.failed.within)


@story("preempt")
async def test_preempted_job_is_stopped_and_resumed(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.create(stage.kinds.workload_priority_classes, stage.own("high"), {"value": 1000})
    job = await submit(stage, case)
    before = uids_of(await until_running(case, job))

    await stage.job("first", cpu=case.quota["cpu"], labels={stage.names.priority_class: stage.own("high")})
    await job.until_condition("Evicted", "True", "Preempted")
    await stage.until_running("first")
    assert await job.names_of_running_pods("job-name!=first") == []
    assert not is_reserved(await job.workload())
    await job.until_suspended()
    await job.until_no_pods("job-name!=first")

    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Background")
    after = uids_of(await until_running(case, job))
    assert not before & after
    await job.until_condition("PodsReady", "True")


@story("delete")
async def test_job_is_deleted_while_queued_and_while_running(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case)
    running = await submit(stage, case, "running")
    await until_running(case, running)
    queued = await submit(stage, case, "queued")
    await queued.until_condition("QuotaReserved", "False", "WaitingForQuota")
    for job in (queued, running):
        await stage.client.delete(case.kind.resource, job.name, stage.namespace, propagation="Background")
        await stage.until(job.is_gone_for_good)
    assert await running.names_of_running_pods() == []
    await running.until_no_pods()
    await until_nothing_reserved(stage)


@story("restart")
async def test_job_restarted_by_its_operator_keeps_its_admission(stage: Stage, case: OperatorCase) -> None:
    assert case.restart is not None
    await open_queue(stage, case)
    job = await submit(stage, case, changes=case.restart.given)
    before = uids_of(await until_running(case, job))
    await job.until_condition("PodsReady", "True")
    workload = await job.workload()
    failed = uids_of(await job.pods(case.restart.pods))
    assert failed
    assert failed <= before
    await job.end_pods("Failed", case.restart)
    await job.until(case.restart.until, timeout=case.restart.within)
    after = uids_of(await until_running(case, job))
    assert not failed & after
    await job.until_condition("PodsReady", "True")
    check_kept_admission(await job.workload(), workload)
    if "end" not in case.cannot:
        await job.end_pods("Succeeded", case.succeeded)
        await until_ended(job, "Succeeded", case.succeeded.message or case.kind.messages["succeeded"])


@story("scale")
async def test_job_is_scaled_while_it_runs(stage: Stage, case: OperatorCase) -> None:
    assert case.scale is not None
    await open_queue(stage, case, jobs=3)
    job = await submit(stage, case, changes=case.scale.given)
    await until_running(case, job)
    await job.change(case.scale.change)
    await job.until_pods_run(case.scale.pods)
    await stage.until(job.counts, dict(case.scale.podSets))


@story("partial")
async def test_job_is_admitted_with_fewer_pods(stage: Stage, case: OperatorCase) -> None:
    assert case.partial is not None
    await open_queue(stage, case, quota=case.partial.quota)
    job = await submit(stage, case, changes=case.partial.given)
    await until_running(case, job, case.partial.pods)
    assert await job.counts() == dict(case.partial.counts)


@story("pods-ready")
async def test_job_with_pods_that_are_not_ready_is_evicted_after_the_timeout(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    by_template = {
        f"{place}.metadata.annotations[kwok.admitq.dev/ready]": "false" for place in templates(case)
    }
    job = await submit(stage, case, changes=case.notReady or by_template)
    await job.until_condition("Evicted", "True", "PodsReadyTimeout")
    await job.until_suspended()
    await job.until_no_pods()


def templates(case: OperatorCase) -> list[str]:
    """The paths of the pod templates that the manifest contains."""
    paths = [one.template for one in case.kind.podSets if one.template is not None]
    return [path for path in paths if value_at(case.kind.manifest, path_of(path)) is not None]


@story("operator-restart")
async def test_job_survives_a_crash_of_its_operator(
    stage: Stage, case: OperatorCase, programs: dict[str, Program]
) -> None:
    job = await submit_held(stage, case)
    await crash(programs)
    await release(stage)
    # If the operator reviews updates, the job starts only after it is back.
    await job.until_condition("Admitted", "True")
    assert await job.pods() == []
    await start(programs)
    running = uids_of(await until_running(case, job))
    await crash(programs)
    await job.change_workload({"spec": {"active": False}})
    await job.until_condition("Evicted", "True", "Deactivated")
    if not case.kind.integration.ownership.keeps_children:
        # Without its operator, nothing stops the job, so it keeps its pods and its quota.
        assert uids_of(await job.pods()) == running
        assert is_reserved(await job.workload())
    await start(programs)
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    assert await job.names_of_running_pods() == []
    await job.until_no_pods()


@story("webhook-down")
async def test_job_is_refused_or_waits_while_the_webhook_of_its_operator_is_down(
    stage: Stage, case: OperatorCase, programs: dict[str, Program]
) -> None:
    job = await submit_held(stage, case)
    await crash(programs)
    with pytest.raises(ApiError, match="failed calling webhook") as refusal:
        await submit(stage, case, "other")
    # The webhooks of admitq, which review jobs of the kind, too, are reachable.
    assert stage.names.group not in str(refusal.value)
    await release(stage)
    await job.until_condition("Admitted", "True")
    await start(programs)
    await until_running(case, job)
    await submit(stage, case, "other")


def test_case_files_exclude_only_stories() -> None:
    stories = {*STORY_OF.values(), "end"}
    assert {case: unknown for case in names() if (unknown := set(excluded_stories(case)) - stories)} == {}


async def crash(programs: dict[str, Program]) -> None:
    for program in programs.values():
        await asyncio.to_thread(program.kill)


async def start(programs: dict[str, Program]) -> None:
    for program in programs.values():
        await asyncio.to_thread(program.start)

"""Two managers that both believe to lead, as where a lease was taken by force and it was not noticed yet.

The schemas of kinds are not needed for that: here they are of any shape.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from admitq.integrations.registry import framework_names
from admitq.runtime.client import Client
from admitq_api.labels import Names, names_for
from localcluster import crds
from localcluster.cluster import LocalCluster
from localcluster.custom_kinds import configured
from localcluster.installation import Installation
from localcluster.pytest_plugin import fresh_namespace
from tests.controlplane.kind_cases import KindCase, PlayedJob, kinds_with_cases, load, open_queues, submit
from tests.controlplane.recording import Record, recorded
from tests.controlplane.stage import Object, Stage

BOTH_LEAD: Final[Mapping[str, Any]] = {
    "leaderElection": {"leaderElect": False},
    "integrations": {"frameworks": list(framework_names()), "custom": configured()},
    "featureGates": {"SparkApplicationIntegration": True},
    "objectRetentionPolicies": {"workloads": {"afterDeactivatedByKueue": "1s"}},
}


def of_any_shape(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition with the schema of any object, which costs the API server next to nothing."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{**version, "schema": anything} for version in definition["spec"]["versions"]]
    return {**definition, "spec": {**definition["spec"], "versions": versions}}


def starts(jobs: Record, case: KindCase, names: Names) -> int:
    """How often a job began to run, by all of its versions."""
    suspended = [case.integration.is_suspended(one, names) for one in jobs.versions]
    return sum(before and not after for before, after in pairwise(suspended))


async def lived(client: Client, names: Names, case: KindCase) -> str:
    """What was done twice to a job that is started, stopped when its time is over, and deleted for that."""
    async with fresh_namespace(client) as namespace:
        stage = Stage(client, names, namespace)
        try:
            async with recorded(stage) as workloads, recorded(stage, case.resource) as jobs:
                await open_queues(stage, case)
                limit = {f"metadata.labels[{names.max_exec_time}]": "1"}
                job, _ = await submit(stage, case, changes=limit)
                await stage.until(job.is_gone_for_good, what="its deletion", timeout=90.0)
            await told(job)
            await stage.until(unchanged(job), interval=0.5, what="both to say the same of the queues")
            assert [counted(one) for one in await queues(job)] == [[0, 0], [0, 0]]
            # Who has not heard of the eviction yet may start once more what the other one just stopped, since
            # no write to a job can depend on its Workload; whoever sees it stops it again.
            assert 1 <= starts(jobs, case, names) <= 2
            assert len({one["metadata"]["uid"] for one in workloads.versions}) == 1
            course = workloads.course(job.name, ["QuotaReserved", "Evicted"])
            assert [one[0] for one in course if one[1] == "True"] == ["QuotaReserved", "Evicted"], course
        except AssertionError as error:
            return f"{case}: {error}"
    return ""


async def told(job: PlayedJob) -> None:
    """Wait for the events about a job's life."""
    stage, kind = job.stage, job.case.integration.kind
    await stage.until_told(kind, job.name, "Started", f"Admitted by clusterQueue {stage.own('cq')}")
    await stage.until_told(kind, job.name, "Deleted", "Deleted job: deactivation retention period expired")


async def queues(job: PlayedJob) -> list[Object]:
    """The queues that the job went through."""
    stage, kinds = job.stage, job.stage.kinds
    return [
        await stage.get(kinds.local_queues, job.case.queue(stage.names.group)),
        await stage.get(kinds.cluster_queues, stage.own("cq")),
    ]


def counted(queue: Object) -> list[int]:
    """How many workloads hold quota and are admitted, by a queue."""
    return [queue["status"][f"{what}Workloads"] for what in ("reserving", "admitted")]


def unchanged(job: PlayedJob) -> Callable[[], Awaitable[bool]]:
    """Tells whether nobody wrote what another one writes otherwise, since it was last asked."""
    seen = list[list[str]]()

    async def look() -> bool:
        seen.append([one["metadata"]["resourceVersion"] for one in await queues(job)])
        return seen[-1:] == seen[-2:-1]

    return look


async def test_two_who_lead_start_a_job_and_end_it_once(
    installation_with: Callable[[str, Mapping[str, Any]], Installation],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
) -> None:
    """One job of every kind that can be stopped, all at once."""
    installation = installation_with("two-leaders", BOTH_LEAD)
    crds.apply(installation.cluster, map(of_any_shape, crds.definitions((*crds.NAMES, *crds.OWN_NAMES))))
    await asyncio.to_thread(installation.start, ("manager",), replica=1)
    client, names = await connect(installation.cluster), names_for(api_group)
    cases = [load(kind, api_group) for kind in kinds_with_cases()]
    lives = [lived(client, names, case) for case in cases if "stop" not in case.cannot]
    try:
        assert [problem for problem in await asyncio.gather(*lives) if problem] == []
        logs = [installation.log("manager", replica=one).read_text() for one in range(2)]
        assert all('"event":"leading"' in log for log in logs)
    finally:
        await asyncio.to_thread(installation.stop, ("manager",), replica=1)

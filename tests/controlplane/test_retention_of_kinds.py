"""Jobs of every kind that admitq deactivated, deleted after their retention where the configuration has one.

The real definitions are not needed for that: here all kinds are of any shape.
"""

import asyncio
from collections.abc import Awaitable, Callable

from admitq.integrations.registry import framework_names
from admitq.runtime.client import Client
from admitq_api.labels import Names, names_for
from localcluster import crds
from localcluster.cluster import LocalCluster
from localcluster.custom_kinds import configured
from localcluster.installation import Installation
from localcluster.pytest_plugin import fresh_namespace
from tests.controlplane.kind_cases import KindCase, kinds_with_cases, load, of_any_shape, open_queues, submit
from tests.controlplane.stage import Stage

RETENTION = {
    "integrations": {"frameworks": list(framework_names()), "custom": configured()},
    "featureGates": {"SparkApplicationIntegration": True},
    "objectRetentionPolicies": {"workloads": {"afterDeactivatedByKueue": "1s"}},
}


async def ran_too_long(client: Client, names: Names, case: KindCase) -> str:
    """What went wrong with a job that may run for a second, in a namespace of its own."""
    async with fresh_namespace(client) as namespace:
        stage = Stage(client, names, namespace)
        try:
            await open_queues(stage, case)
            job, _ = await submit(stage, case, changes={f"metadata.labels[{names.max_exec_time}]": "1"})
            await stage.until(job.is_gone_for_good, what=f"{case} to be deleted", timeout=60.0)
            kind = case.integration.kind
            await stage.until_told(kind, job.name, "Started", f"Admitted by clusterQueue {stage.own('cq')}")
            note = "Deleted job: deactivation retention period expired"
            await stage.until_told(kind, job.name, "Deleted", note)
        except AssertionError as error:
            return f"{case}: {error}"
    return ""


async def test_jobs_that_ran_too_long_are_deleted_after_a_while(
    installation_with: Callable[..., Installation],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
) -> None:
    """One of every kind that can be stopped, all at once."""
    installation = installation_with("retention", RETENTION)
    crds.apply(installation.cluster, map(of_any_shape, crds.definitions((*crds.NAMES, *crds.OWN_NAMES))))
    client, names = await connect(installation.cluster), names_for(api_group)
    cases = [load(kind, api_group) for kind in kinds_with_cases()]
    lives = [ran_too_long(client, names, case) for case in cases if "stop" not in case.cannot]
    assert [problem for problem in await asyncio.gather(*lives) if problem] == []

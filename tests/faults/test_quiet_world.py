"""While nothing changes, admitq writes nothing but renewals of its Lease."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from admitq.manager.admission_writer import LONGEST_REPORT_DELAY_SECONDS
from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import EVENTS
from admitq_api import conditions
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.waiting import eventually
from tests.faults.worlds import NAMESPACE, QUOTA_CPU, conditions_of, create, job, set_up_queues

QUIET_SECONDS = 60
"""The time that is measured. There is no earlier signal that nothing will be written."""

FINISHED, WAITING = 5, 6
RUNNING = QUOTA_CPU // 2
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def writes(cluster: LocalCluster, offset: int) -> tuple[list[dict[str, Any]], int]:
    """The writes of admitq in the audit log from an offset on, without Leases; and the end of the log."""
    with cluster.audit_log.open("rb") as log:
        log.seek(offset)
        content = log.read()
    whole = content[: content.rfind(b"\n") + 1]
    found: list[dict[str, Any]] = []
    for line in whole.splitlines():
        call = json.loads(line)
        about = call.get("objectRef") or {}
        if call["verb"] in WRITES and about.get("resource") != "leases":
            found.append({"user": call["user"]["username"], "verb": call["verb"], **about})
    return found, offset + len(whole)


async def counts_older_events(client: Client, write: dict[str, Any], moment: datetime) -> bool:
    """Whether a write only counts repetitions of an event from before a moment, which is allowed."""
    if (write["verb"], write["resource"]) != ("patch", "events"):
        return False
    event = await client.get(EVENTS, write["name"], write["namespace"])
    return datetime.fromisoformat(event["series"]["lastObservedTime"]) < moment


@pytest.mark.slow
async def test_manager_writes_nothing_while_nothing_changes(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
) -> None:
    cluster = private_cluster((NodePool(count=4, cpu="16", memory="64Gi"),))
    installation = Installation(cluster)
    installation.install(api_group=api_group)
    installation.start()
    client = await connect(cluster)
    await set_up_queues(client, api_group)
    await submit_jobs(client, api_group)
    end = await until_nothing_is_written(cluster)
    began = datetime.now(UTC)
    await asyncio.sleep(QUIET_SECONDS)
    # At its end the manager writes counts of events that it has not written yet, also of those QUIET_SECONDS.
    await asyncio.to_thread(installation.stop, ("manager",))
    found, _ = writes(cluster, end)
    assert [one for one in found if not await counts_older_events(client, one, began)] == []


async def submit_jobs(client: Client, api_group: str) -> None:
    """Create jobs, and wait until some are finished, some run and the others wait."""
    label = names_for(api_group).queue_name
    for number in range(FINISHED):
        await create(client, job(number, label, 0.5))
    # Jobs of one second are queued by UID: jobs that never end could take all quota before these.
    await until_jobs(client, api_group, finished=FINISHED, ready=0, refused=False)
    for number in range(FINISHED, FINISHED + RUNNING + WAITING):
        await create(client, job(number, label, None))
    await until_jobs(client, api_group, finished=FINISHED, ready=RUNNING, refused=True)


async def until_jobs(client: Client, api_group: str, **expected: int) -> None:
    """Wait until as many jobs are finished and ready, and whether one was refused, as expected."""
    workloads = kinds_of(names_for(api_group)).workloads

    async def is_reached() -> bool:
        found, _ = await client.list(workloads, NAMESPACE)
        states = [conditions_of(one) for one in found]
        unfinished = [one for one in states if not conditions.is_true(one, "Finished")]
        ready = sum(conditions.is_true(one, "PodsReady") for one in unfinished)
        refused = any(conditions.is_false(one, "QuotaReserved") for one in unfinished)
        counts = {"finished": len(states) - len(unfinished), "ready": ready, "refused": refused}
        assert counts == expected, counts
        return True

    await eventually(is_reached, timeout=90, what="jobs are finished, ready and refused")


async def until_nothing_is_written(cluster: LocalCluster) -> int:
    """Wait until admitq has written nothing for a while; return the end of the audit log."""
    _, end = writes(cluster, 0)

    async def is_quiet() -> bool:
        nonlocal end
        await asyncio.sleep(LONGEST_REPORT_DELAY_SECONDS + 3)
        found, end = writes(cluster, end)
        return not found

    await eventually(is_quiet, timeout=180, what="the last consequences were written")
    return end

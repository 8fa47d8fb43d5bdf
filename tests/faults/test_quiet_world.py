"""When nothing happens, admitq writes nothing: only its Lease is renewed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import EVENTS
from admitq_api import conditions
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.waiting import eventually
from tests.faults.worlds import NAMESPACE, QUOTA_CPU, create, job, set_up_queues, state_of

QUIET_SECONDS = 60
"""The measure itself, and so the only wait of this length: nothing can tell earlier that nothing happens."""

FINISHED, WAITING = 5, 6
RUNNING = QUOTA_CPU // 2
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def writes(cluster: LocalCluster, offset: int) -> tuple[list[dict[str, Any]], int]:
    """The writes of admitq that the audit log tells from an offset on, Leases left out, and its end."""
    with cluster.audit_log.open("rb") as log:
        log.seek(offset)
        content = log.read()
    whole = content[: content.rfind(b"\n") + 1]
    told: list[dict[str, Any]] = []
    for line in whole.splitlines():
        call = json.loads(line)
        about = call.get("objectRef") or {}
        if call["verb"] in WRITES and about.get("resource") != "leases":
            told.append({"user": call["user"]["username"], "verb": call["verb"], **about})
    return told, offset + len(whole)


async def tells_of_before(client: Client, write: dict[str, Any], moment: datetime) -> bool:
    """Whether a write counts older repetitions of an event, as it may long after the last of them."""
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
    names = names_for(api_group)
    workloads = kinds_of(names).workloads
    await set_up_queues(client, api_group)

    async def until(**expected: int) -> None:
        """Wait until as many jobs are finished and ready, and whether one was refused, as expected."""

        async def reached() -> bool:
            found, _ = await client.list(workloads, NAMESPACE)
            states = [state_of(one) for one in found]
            unfinished = [one for one in states if not conditions.is_true(one, "Finished")]
            ready = sum(conditions.is_true(one, "PodsReady") for one in unfinished)
            refused = any(conditions.is_false(one, "QuotaReserved") for one in unfinished)
            counts = {"finished": len(states) - len(unfinished), "ready": ready, "refused": refused}
            assert counts == expected, counts
            return True

        await eventually(reached, timeout=90, what="jobs are finished, ready and refused")

    for number in range(FINISHED):
        await create(client, job(number, names.queue_name, 0.5))
    # Jobs of one second are queued by UID: jobs that never end could take all quota before these.
    await until(finished=FINISHED, ready=0, refused=False)
    for number in range(FINISHED, FINISHED + RUNNING + WAITING):
        await create(client, job(number, names.queue_name, None))
    await until(finished=FINISHED, ready=RUNNING, refused=True)
    _, end = writes(cluster, 0)

    async def calm() -> bool:
        nonlocal end
        await asyncio.sleep(3)
        told, end = writes(cluster, end)
        return not told

    await eventually(calm, timeout=90, what="the last consequences were written")
    began = datetime.now(UTC)
    await asyncio.sleep(QUIET_SECONDS)
    # At its end it writes what it has still to tell: also what was repeated in the quiet.
    await asyncio.to_thread(installation.stop, ("manager",))
    told, _ = writes(cluster, end)
    assert [one for one in told if not await tells_of_before(client, one, began)] == []

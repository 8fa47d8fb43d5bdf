"""Another holder takes the lease of a running manager, which ends. A new manager waits for the lease."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from admitq.runtime.resources import JOBS, LEASES
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage


async def set_holder(stage: Stage, installation: Installation, holder: str) -> None:
    """Write another holder into the managers' lease."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 60, "acquireTime": None, "renewTime": None}
    await stage.client.merge_patch(
        LEASES, stage.names.lease_name, {"spec": spec}, namespace=installation.namespace
    )


async def holder(stage: Stage, installation: Installation) -> Any:
    lease = await stage.client.get(LEASES, stage.names.lease_name, installation.namespace)
    return value_at(lease, ("spec", "holderIdentity"))


def writes_of(audit_log: Path, since: datetime, user: str) -> Iterator[dict[str, Any]]:
    """The objects that a user wrote or tried to write since a time, by the audit log."""
    for event in map(json.loads, audit_log.read_text().splitlines()):
        received = datetime.fromisoformat(event["requestReceivedTimestamp"])
        is_write = event["verb"] in {"create", "update", "patch", "delete"}
        if event["user"]["username"] == user and is_write and received > since:
            yield event["objectRef"]


async def test_manager_with_stolen_lease_ends_and_leads_again_when_it_is_free(
    admitq_alone: Installation, stage_alone: Stage
) -> None:
    stage, installation = stage_alone, admitq_alone
    await stage.queues()
    await stage.job("before")
    await stage.until_running("before")
    first = installation.process("manager")
    assert first is not None
    await set_holder(stage, installation, "thief")
    await eventually(lambda: not first.alive(), what="the end of the manager")
    assert '"reason":"thief holds the lease"' in installation.log("manager").read_text()

    ended = datetime.now(UTC)
    await stage.job("after")
    await asyncio.to_thread(installation.start, ("manager",))
    assert await holder(stage, installation) == "thief"
    assert await stage.workloads("after") == []
    account = f"system:serviceaccount:{installation.namespace}:{installation.prefix}-manager"
    assert [*writes_of(installation.cluster.audit_log, ended, account)] == []

    await set_holder(stage, installation, "")
    await stage.until_running("after")
    assert await holder(stage, installation) not in {"", "thief"}
    assert not value_at(await stage.get(JOBS, "before"), ("spec", "suspend"))

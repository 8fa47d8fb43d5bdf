"""A webhook of another program that fails for some Workloads does not delay others."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import EVENTS, JOBS, VALIDATING_WEBHOOKS
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.recording import record_versions, sum_of_series
from tests.controlplane.stage import Stage, condition_of, owner_of

WAITING: Final = 66
"""The number of waiting jobs: more than the reservations that are written at the same time."""
UNSERVED: Final = "https://127.0.0.1:9/"
WEBHOOK: Final = "unserved.example.com"
PROBE: Final = "probe"
RETRIED: Final = re.compile(r"it is retried after [\d.]+s$")
RESERVES: Final = "object.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"


@asynccontextmanager
async def failing_webhook(stage: Stage, selects: str) -> AsyncGenerator[None]:
    """Register a webhook without server for Workload statuses of a stage that a CEL expression selects."""
    name = f"unserved-{stage.namespace}"
    rule = {
        "apiGroups": [stage.names.group],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["workloads/status"],
    }
    webhook = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": UNSERVED},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
        "matchConditions": [
            {"name": "selects", "expression": f"object.metadata.name == '{PROBE}' || {selects}"}
        ],
    }
    template = {"spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}
    podsets = [{"name": "main", "count": 1, "template": template}]
    await stage.create(
        stage.kinds.workloads, PROBE, {"spec": {"queueName": "none", "active": False, "podSets": podsets}}
    )
    await stage.client.create(
        VALIDATING_WEBHOOKS,
        {
            "apiVersion": VALIDATING_WEBHOOKS.api_version,
            "kind": VALIDATING_WEBHOOKS.kind,
            "metadata": {"name": name},
            "webhooks": [webhook],
        },
    )

    async def fails() -> bool:
        status = {"status": {"accumulatedPastExecutionTimeSeconds": 1}}
        try:
            await stage.change(stage.kinds.workloads, PROBE, status, "status")
        except ApiError as error:
            return error.status == 500
        return False

    try:
        await eventually(fails, what="the API server to call the webhook")
        yield
    finally:
        await stage.client.delete(VALIDATING_WEBHOOKS, name)


async def conditions(stage: Stage, type_: str) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of a condition of each Job's Workload; empty if it does not exist."""
    items, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    return {owner_of(one): condition_of(one, type_) or ("", "", "") for one in items if owner_of(one)}


async def workloads_with_failed_write(stage: Stage) -> set[str]:
    """The names of the Workloads with an event which says that the webhook fails."""
    events, _ = await stage.client.list(EVENTS, stage.namespace)
    begin = f"The reservation in ClusterQueue {stage.own('cq')} could not be written"
    return {
        one["regarding"]["name"]
        for one in events
        if one["regarding"]["kind"] == "Workload"
        and one["reason"] == "PendingEvaluation"
        and one["note"].startswith(begin)
        and WEBHOOK in one["note"]
    }


@pytest.mark.slow
@pytest.mark.parametrize("selects", ["true", RESERVES], ids=["every write", "reservations"])
async def test_other_cluster_queues_admit_while_a_webhook_fails_for_many_reservations(
    stage: Stage, other_stage: Stage, admitq_running: Installation, selects: str
) -> None:
    jobs = [f"j{number}" for number in range(WAITING)]
    await asyncio.gather(stage.queues(cpu=WAITING), other_stage.queues(cpu=1))

    async def event_names_webhook() -> bool:
        return bool(await workloads_with_failed_write(stage))

    async def all_counted() -> bool:
        return await sum_of_series(admitq_running, "unwritten_decisions", decision="reservation") >= WAITING

    async def other_admitted() -> bool:
        return (await conditions(other_stage, "Admitted"))["j"][0] == "True"

    async def all_conditions_name_webhook() -> bool:
        found = await conditions(stage, "QuotaReserved")
        assert {reason for _, reason, _ in found.values()} == {"PendingEvaluation"}
        assert all(WEBHOOK in message for _, _, message in found.values())
        return True

    async def all_admitted() -> bool:
        found = await conditions(stage, "Admitted")
        assert [job for job in jobs if found[job][0] != "True"] == []
        return True

    async with record_versions(stage) as record:
        async with failing_webhook(stage, selects):
            await asyncio.gather(*(stage.job(job, managedBy="example.com/played") for job in jobs))
            await eventually(
                all_counted if selects == "true" else all_conditions_name_webhook,
                interval=1,
                what="every unwritten reservation is counted, or a condition names the webhook",
            )
            await other_stage.job(managedBy="example.com/played")
            await eventually(other_admitted, timeout=10, what="the other job is admitted")
            # Events are the lowest class of writes. While the API server is loaded, they wait for minutes,
            # and not every Workload may have its event in time.
            await eventually(
                event_names_webhook, timeout=180, interval=1, what="a Workload has an event on the webhook"
            )
            changes = [change for job in jobs for change in record.condition_changes(job, ["QuotaReserved"])]
            assert not any(change[1] == "True" for change in changes)
        await eventually(all_admitted, timeout=90, interval=1, what="all jobs are admitted")
        for job in jobs:
            times = sum(change[1] == "True" for change in record.condition_changes(job, ["QuotaReserved"]))
            assert times <= 1, f"quota was reserved {times} times for {job}"


async def test_cluster_queue_admits_other_jobs_while_a_webhook_fails_for_its_first_job(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.queues(cpu=1, queueingStrategy="StrictFIFO")
    selects = f"{RESERVES} && object.metadata.ownerReferences.exists(o, o.name == 'first')"

    async def conditions_name_webhook() -> bool:
        status, reason, message = (await conditions(stage, "QuotaReserved"))["first"]
        assert (status, reason) == ("False", "PendingEvaluation")
        assert WEBHOOK in message
        return RETRIED.search(message) is not None

    async def admitted() -> dict[str, str]:
        return {job: status for job, (status, _, _) in (await conditions(stage, "Admitted")).items()}

    async def second_admitted() -> bool:
        return await admitted() == {"first": "False", "second": "True"}

    async def first_admitted() -> bool:
        return (await admitted())["first"] == "True"

    async with failing_webhook(stage, selects):
        await stage.job("first", managedBy="example.com/played")
        await eventually(conditions_name_webhook, what="the first has a condition that names the webhook")
        await stage.job("second", managedBy="example.com/played")
        await eventually(second_admitted, what="the second is admitted")
    await stage.client.delete(JOBS, "second", stage.namespace)
    await eventually(first_admitted, timeout=60, what="the first is admitted")

"""``kubectl admitq top``, ``history`` and ``doctor``, run as users run them: by kubectl."""

import asyncio
import base64
import json
import os
import time
from typing import Any

import pytest

from admitq.runtime.resources import CONFIG_MAPS, DEPLOYMENTS, LEASES, SECRETS
from admitq.serving.certificates import create_authority
from admitq_api.version import VERSION
from localcluster.installation import Installation
from tests.controlplane.conftest import Plugin
from tests.controlplane.stage import EVENT_SECONDS, Stage

PART = {"app.kubernetes.io/part-of": "admitq", "app.kubernetes.io/version": VERSION}
"""Labels of the objects of the chart, which is not installed here."""


def find(nodes: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The node of a tree with this name."""
    for node in nodes:
        if node["name"] == name:
            return node
        if found := find(node.get("children", []), name):
            return found
    return {}


async def test_top_shows_use_and_waiting_by_cohort_and_queue(stage: Stage, plugin: Plugin) -> None:
    team, queue = stage.own("team"), stage.own("cq")
    await stage.active_queues(cpu=2, cohortName=team)
    await stage.job("first", pods=2)
    await stage.until_running("first")
    await stage.job("second")

    async def shown() -> tuple[int, int, list[dict[str, str]]]:
        node = find(json.loads(await plugin("top", "-o", "json")), team)
        return node["pendingWorkloads"], node["reservingWorkloads"], node["children"][0]["amounts"]

    amounts = [{"flavor": stage.own("f"), "resource": "cpu", "reserved": "2", "nominalQuota": "2"}]
    await stage.until(shown, (1, 1, amounts))
    lines = (await plugin("top")).splitlines()
    assert lines[0].split()[:4] == ["NAME", "PENDING", "RESERVING", "CPU"]
    index = next(index for index, line in enumerate(lines) if f"cohort/{team} " in line)
    assert lines[index].split()[1:4] == ["1", "1", "2/2"]
    assert lines[index + 1].split()[:5] == ["└─", f"clusterqueue/{queue}", "1", "1", "2/2"]
    assert f"CPU ({stage.own('f')})".upper() in (await plugin("top", "-o", "wide"))
    with pytest.raises(AssertionError, match="error: --interval: 'often' is not a number"):
        await plugin("top", "--interval", "often")


async def test_watched_top_shows_changes(stage: Stage, plugin: Plugin, admitq_running: Installation) -> None:
    await stage.active_queues(cpu=1)
    assert stage.own("cq") in await plugin("top")
    cluster = admitq_running.cluster
    process = await asyncio.create_subprocess_exec(
        *(str(cluster.program("kubectl")), "admitq", "top", "--watch", "--interval", "0.2"),
        env={**os.environ, **cluster.environment()},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            await until_line(process.stdout, f"clusterqueue/{stage.own('cq')}", "0")
            await stage.job()
            await until_line(process.stdout, f"clusterqueue/{stage.own('cq')}", "1")
    finally:
        process.terminate()
        await process.communicate()


async def until_line(stream: asyncio.StreamReader, name: str, reserving: str) -> None:
    """Read until a line has this name in its first column, and this number in the third."""
    while True:
        words = (await stream.readline()).decode().replace("└─", "").replace("├─", "").split()
        if words[:1] == [name] and words[2] == reserving:
            return


async def test_history_has_conditions_and_events_in_order(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    await stage.job()
    await stage.until_running()
    name = (await stage.workload())["metadata"]["name"]

    async def reasons() -> list[tuple[str, str]]:
        moments = json.loads(await plugin("history", name, "-o", "json"))
        return [(moment["about"].partition("/")[0], moment["reason"] or moment["what"]) for moment in moments]

    async def has_started() -> bool:
        return ("Job", "Started") in await reasons()

    await stage.until(has_started, timeout=EVENT_SECONDS)
    found = await reasons()
    assert found[0] in {("Workload", "created"), ("Job", "Suspended"), ("Job", "CreatedWorkload")}
    for earlier, later in (("created", "QuotaReserved"), ("created", "Admitted")):
        assert found.index(("Workload", earlier)) < found.index(("Workload", later)), found
    assert ("Job", "CreatedWorkload") in found
    titles, *_ = (await plugin("history", name)).splitlines()
    assert titles.split() == ["AGE", "OBJECT", "WHAT", "REASON", "MESSAGE"]
    with pytest.raises(AssertionError, match=r"not found\nkubectl get workloads"):
        await plugin("history", "missing")


def levels(findings: list[dict[str, str]], check: str) -> list[str]:
    return [finding["level"] for finding in findings if finding["check"] == check]


async def test_doctor_finds_nothing_in_a_sound_installation_and_then_what_breaks(
    stage: Stage, plugin: Plugin
) -> None:
    await stage.active_queues()
    template = {
        "metadata": {"labels": PART},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": PART}, "template": template}
    await stage.create(DEPLOYMENTS, "manager", {"metadata": {"labels": PART}, "spec": spec})
    lease = {
        "holderIdentity": "pod-1",
        "leaseDurationSeconds": 3600,
        "renewTime": "2020-01-01T00:00:00.000000Z",
    }
    await stage.create(LEASES, "manager", {"metadata": {"labels": PART}, "spec": lease})
    pair = create_authority(time.time_ns(), name="test")
    data = {"tls.crt": base64.b64encode(pair.certificate).decode()}
    await stage.create(SECRETS, "certificate", {"metadata": {"labels": PART}, "data": data})

    async def examined() -> list[dict[str, str]]:
        # Stories run beside each other, so only this namespace counts, and not what is in none.
        try:
            output = await plugin("doctor", "-o", "json")
        except AssertionError as error:
            output = str(error)[str(error).index("[") :]
        return [one for one in json.loads(output) if one["subject"] not in {"clusterqueues", "not checked"}]

    assert levels(await examined(), "leader") == ["error"]
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    await stage.change(LEASES, "manager", {"spec": {"renewTime": now}})
    found = await examined()
    assert levels(found, "leader") == ["ok"]
    assert levels(found, "kinds") == ["ok"]
    assert levels(found, "processes") == ["ok"]
    (certificate,) = [one for one in found if one["subject"] == f"Secret {stage.namespace}/certificate"]
    assert certificate["level"] == "ok"
    assert ("ok", "localqueues") in {(one["level"], one["subject"]) for one in found}

    await plugin("stop", "lq", "lq")
    await stage.until_active(stage.kinds.local_queues, "lq", active=False)
    checks = stage.kinds.admission_checks
    await stage.create(checks, stage.own("check"), {"spec": {"controllerName": "example.com/none"}})
    config = {"config.yaml": "featureGates: {NoSuchGate: true}"}
    await stage.create(CONFIG_MAPS, "config", {"metadata": {"labels": PART}, "data": config})
    spec = {"holderIdentity": "", "renewTime": None}
    await stage.change(LEASES, "manager", {"spec": spec})
    found = {(one["check"], one["subject"]): one for one in await examined()}
    queue = found["queues", f"localqueue {stage.namespace}/lq"]
    assert queue["remedy"] == f"kubectl admitq resume localqueue lq -n {stage.namespace}"
    assert found["admission checks", stage.own("check")]["level"] == "error"
    assert found["gates", f"ConfigMap {stage.namespace}/config"]["level"] == "error"
    assert found["leader", f"{stage.namespace}/manager"]["text"] == "no manager leads"
    with pytest.raises(AssertionError, match=r"LEVEL +CHECK +OBJECT +FINDING(?s:.*)→ kubectl admitq resume"):
        await plugin("doctor")

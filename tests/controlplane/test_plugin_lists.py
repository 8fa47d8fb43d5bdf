"""``kubectl admitq list`` and ``create``, run as users run them: by kubectl."""

import json
import re
from typing import Any

import pytest
import yaml

from admitq.runtime.resources import JOBS
from tests.controlplane.conftest import Plugin
from tests.controlplane.stage import Stage, controlled_by


def table(output: str) -> list[dict[str, str]]:
    """The rows of a table by column title. Columns are separated by three spaces or more."""
    titles, *rows = output.rstrip("\n").splitlines()
    starts = [match.start() for match in re.finditer(r"(?:^|(?<=   ))\S", titles)]
    ends = [*starts[1:], None]
    return [
        {titles[a:b].strip(): row[a:b].strip() for a, b in zip(starts, ends, strict=True)} for row in rows
    ]


async def names(plugin: Plugin, *arguments: str) -> list[str]:
    return [row["NAME"] for row in table(await plugin("list", *arguments))]


async def test_workloads_are_listed_with_jobs_queues_and_statuses(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues(cpu=1)
    await stage.job("first")
    await stage.until_running("first")
    await stage.job("second")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    first, second = [(await stage.workload(job))["metadata"]["name"] for job in ("first", "second")]
    rows = {row["JOB NAME"]: row for row in table(await plugin("list", "workloads"))}
    assert {job: row["NAME"] for job, row in rows.items()} == {"first": first, "second": second}
    for row in rows.values():
        assert (row["JOB TYPE"], row["LOCALQUEUE"]) == ("job.batch", "lq")
        assert row["CLUSTERQUEUE"] == stage.own("cq")
    assert (rows["first"]["STATUS"], rows["second"]["STATUS"]) == ("ADMITTED", "PENDING")
    assert rows["first"]["EXEC TIME"].endswith("s")
    assert rows["second"]["EXEC TIME"] == ""
    wide = {row["JOB NAME"]: row for row in table(await plugin("list", "kwl", "-o", "wide"))}
    assert (wide["second"]["PRIORITY"], wide["second"]["REASON"]) == ("0", "WaitingForQuota")

    assert await names(plugin, "kwl", "--status", "pending") == [second]
    assert await names(plugin, "kwl", "--status=pending", "--status=admitted") == sorted([first, second])
    assert await names(plugin, "kwl", "--for", "job/first") == [first]
    assert await names(plugin, "kwl", "--for", f"workload/{second}") == [second]
    assert await names(plugin, "kwl", "-c", stage.own("cq"), "-q", "lq", "--status=all") == sorted(
        [first, second]
    )
    assert await names(plugin, "kwl", "--field-selector", f"metadata.name={first}") == [first]
    assert await plugin("list", "kwl", "-q", "other") == ""
    uid = (await stage.get(JOBS, "second"))["metadata"]["uid"]
    assert await names(plugin, "kwl", "-l", f"{stage.names.job_uid}={uid}") == [second]
    everywhere = table(await plugin("list", "workloads", "-A", "-c", stage.own("cq")))
    assert {(row["NAMESPACE"], row["NAME"]) for row in everywhere} == {
        (stage.namespace, first),
        (stage.namespace, second),
    }
    listed = json.loads(await plugin("list", "workloads", "-o", "json"))
    assert (listed["kind"], {one["kind"] for one in listed["items"]}) == ("List", {"Workload"})
    assert {one["metadata"]["name"] for one in listed["items"]} == {first, second}
    assert yaml.safe_load(await plugin("list", "workloads", "-o", "yaml"))["kind"] == "List"


async def test_queues_and_flavors_are_listed(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues(cohortName=stage.own("team"))
    own = {
        "NAME": stage.own("cq"),
        "COHORT": stage.own("team"),
        "PENDING WORKLOADS": "0",
        "ADMITTED WORKLOADS": "0",
    }
    (row,) = table(await plugin("list", "cq", "--field-selector", f"metadata.name={stage.own('cq')}"))
    assert {**own, "ACTIVE": "True", "AGE": row["AGE"]} == row
    inactive = await plugin(
        "list", "cq", "--active=false", "--field-selector", f"metadata.name={stage.own('cq')}"
    )
    assert inactive == ""
    (row,) = table(await plugin("list", "lq", "-c", stage.own("cq"), "-o", "wide"))
    assert (row["NAME"], row["CLUSTERQUEUE"], row["ACTIVE"], row["REASON"]) == (
        "lq",
        stage.own("cq"),
        "True",
        "Ready",
    )
    local, cluster = (await plugin("list", "queues")).split("\n\n")
    assert [one["NAME"] for one in table(local)] == ["lq"]
    assert stage.own("cq") in [one["NAME"] for one in table(cluster)]
    assert stage.own("f") in await names(plugin, "rf")


async def test_pods_of_a_job_are_listed_also_those_of_objects_below_it(stage: Stage, plugin: Plugin) -> None:
    await stage.active_queues()
    await stage.job("train", pods=2)
    await stage.job("other")
    await stage.until_running("train")

    async def listed() -> int:
        return len(await stage.pods("train"))

    await stage.until(listed, 2)
    pods = sorted(one["metadata"]["name"] for one in await stage.pods("train"))
    assert sorted(await names(plugin, "pods", "--for", "job/train")) == pods
    # Other tests may have a Job of this name in their namespaces.
    assert set(pods) <= set(await names(plugin, "pods", "--for", "jobs.batch/train", "-A"))
    workload = (await stage.workload("train"))["metadata"]["name"]
    assert sorted(await names(plugin, "po", "--for", f"kwl/{workload}")) == pods
    # The owner of a Job stands for any object that creates jobs.
    parent = await stage.job("parent", queue=None, suspend=True)
    await stage.change(JOBS, "train", {"metadata": controlled_by(parent)})
    assert sorted(await names(plugin, "pods", "--for", "job/parent")) == pods


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("job", "--for: 'job' is not TYPE/NAME"),
        ("job/missing", r"--for: no job/missing exists\nkubectl get jobs.batch -n"),
        ("thing/x", "--for: 'thing' is not a kind of job\nAdd its API group"),
        ("thing.example.com/x", "--for: the cluster serves no thing.example.com"),
    ],
)
async def test_job_that_is_not_found_is_reported_with_a_remedy(
    plugin: Plugin, named: str, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        await plugin("list", "pods", "--for", named)


async def test_created_objects_admit_a_job(stage: Stage, plugin: Plugin) -> None:
    group, flavor, queue = stage.names.group, stage.own("f"), stage.own("cq")
    options = ("--node-labels", "tier=x", "--node-taints", "t=x:NoSchedule", "--tolerations", "t")
    assert await plugin("create", "rf", flavor, *options) == f"resourceflavor.{group}/{flavor} created\n"
    spec: dict[str, Any] = (await stage.get(stage.kinds.resource_flavors, flavor))["spec"]
    assert spec == {
        "nodeLabels": {"tier": "x"},
        "nodeTaints": [{"key": "t", "value": "x", "effect": "NoSchedule"}],
        "tolerations": [{"key": "t", "operator": "Exists"}],
    }
    quota = (
        "--cohort",
        stage.own("c"),
        "--nominal-quota",
        f"{flavor}:cpu=2",
        "--lending-limit",
        f"{flavor}:cpu=1",
    )
    shown = f"clusterqueue.{group}/{queue}"
    assert (
        await plugin("create", "cq", queue, *quota, "--dry-run=server")
        == f"{shown} created (server dry run)\n"
    )
    assert await plugin("create", "cq", queue, *quota) == f"{shown} created\n"
    with pytest.raises(AssertionError, match=r"error: .*already exists\nUse another name"):
        await plugin("create", "cq", queue, *quota)
    with pytest.raises(AssertionError, match=r'error: --clusterqueue: .*"missing" not found\n'):
        await plugin("create", "lq", "lq", "-c", "missing")
    ignored = await plugin("create", "lq", "early", "-c", "missing", "-i", "--dry-run=server", "-o", "name")
    assert ignored == f"localqueue.{group}/early\n"
    assert await plugin("create", "lq", "lq", "-c", queue) == f"localqueue.{group}/lq created\n"
    await stage.job()
    await stage.until_condition("Admitted", "Admitted")


async def test_new_object_that_a_webhook_rejects_is_reported(stage: Stage, plugin: Plugin) -> None:
    limits = ("--nominal-quota", "f:cpu=1", "--cohort=c", "--lending-limit", "f:cpu=2", "--dry-run=server")
    with pytest.raises(AssertionError, match="lendingLimit"):
        await plugin("create", "cq", stage.own("cq"), *limits)

"""``admitq simulate --from-cluster``: a simulation begins with the workloads of a running cluster."""

import json
from pathlib import Path

from localcluster.installation import Installation
from tests.controlplane.documented_commands import run_in_shell
from tests.controlplane.stage import Stage


async def test_simulation_begins_with_the_workloads_of_the_cluster(
    stage: Stage, admitq_running: Installation, tmp_path: Path
) -> None:
    await stage.active_queues()
    limited = {stage.names.max_exec_time: "600", stage.names.queue_name: "lq"}
    await stage.job("first", cpu=3, metadata={"labels": limited})
    await stage.until_running("first")
    await stage.job("second", cpu=2, metadata={"labels": limited})
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    waiting = await stage.workload("second")
    timeline = tmp_path / "events.json"
    command = (
        f"admitq simulate --from-cluster --seed 1 --output json --timeline {timeline} 2> {tmp_path}/notes"
    )
    report = json.loads(await run_in_shell(admitq_running, command, tmp_path))
    assert report["ending"] in {"Finished", "Stuck"}
    (queue,) = [each for each in report["localQueues"] if each["name"] == f"{stage.namespace}/lq"]
    assert (queue["submitted"], queue["finished"]) == (2, 2)
    events = [
        (each["event"], each["workload"].removeprefix(f"{stage.namespace}/"))
        for each in json.loads(timeline.read_text())
        if each["workload"].startswith(f"{stage.namespace}/")
    ]
    names = {job: (await stage.workload(job))["metadata"]["name"] for job in ("first", "second")}
    finished = events.index(("Finished", names["first"]))
    assert (
        finished < events.index(("Admitted", names["second"])) < events.index(("Finished", names["second"]))
    )
    assert await stage.workload("second") == waiting

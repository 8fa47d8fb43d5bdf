"""The parts of a process together, as for trying out, and apart, beside somebody else's."""

import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from admitq.runtime.client import Client
from admitq.runtime.kinds import Kinds, kinds_of
from admitq.runtime.resources import CONFIG_MAPS, JOBS, PODS
from admitq_api import conditions
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.folders import REPOSITORY
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.ports import free_ports
from localcluster.processes import Process
from localcluster.waiting import eventually
from tests.faults.worlds import NAMESPACE, PODS_OF_A_JOB, create, job, set_up_queues, state_of

MARKED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Place:
    """A cluster whose webhook configurations lead to ports of this machine, and what runs there."""

    cluster: LocalCluster
    client: Client
    kinds: Kinds
    config: Mapping[str, Any]
    ports: Mapping[str, int]
    folder: Path

    def start(self, name: str, *arguments: str, **changes: Any) -> Process:
        """Run ``admitq all-in-one``, with sections of the configuration changed."""
        config = {**self.config, **changes}
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        program = Path(sys.executable).with_name("admitq")
        command = [f"--config={file}", f"--kubeconfig={self.cluster.kubeconfig}", *arguments]
        return self.cluster.spawn(name, [str(program), "all-in-one", *command])

    async def until_ready(self, health: str) -> None:
        """Wait until the process that tells of its health there is ready."""

        async def ready() -> bool:
            try:
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"http://127.0.0.1:{self.ports[health]}/readyz") as answer,
                ):
                    return answer.status == 200
            except aiohttp.ClientConnectionError:
                return False

        await eventually(ready, what=f"the process with {health} is ready")

    async def until_done(self, name: str) -> None:
        async def done() -> bool:
            return conditions.is_true(state_of(await self.client.get(JOBS, name, NAMESPACE)), "Complete")

        await eventually(done, what=f"{name} is done")

    async def workload_of(self, name: str) -> dict[str, Any]:
        listed, _ = await self.client.list(self.kinds.workloads, NAMESPACE)
        [found] = [one for one in listed if one["metadata"]["ownerReferences"][0]["name"] == name]
        return found

    async def until_told(self, name: str, type_: str) -> dict[str, Any]:
        """Wait until a condition of a job's Workload is true."""

        async def found() -> Any:
            workload = await self.workload_of(name)
            return workload if conditions.is_true(state_of(workload), type_) else None

        return await eventually(found, what=f"the Workload of {name} is {type_}")

    async def end(self, name: str, process: Process) -> None:
        """Tell a process to stop; its ports are free before it has ended its work."""
        process.signal(signal.SIGTERM)
        await eventually(lambda: all(map(_is_free, self.ports.values())), what="all ports are free")
        self.cluster.terminate(name, patience_s=40.0)
        last = self.cluster.log(name).read_text().splitlines()[-1]
        assert '"event":"stopped"' in last, last


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As any other server would: what lingers of connections is nobody's business.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
        return True


@pytest.fixture
async def place(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
    tmp_path: Path,
) -> Place:
    cluster = private_cluster((NodePool(count=2, cpu="16", memory="64Gi"),))
    ports = free_ports(["webhook", "health", "metrics", "other health"])
    installation = Installation(cluster)
    installation.install(api_group=api_group)
    installation.helm(
        "upgrade",
        installation.release,
        str(REPOSITORY / "charts" / "admitq"),
        "--reuse-values",
        "--set",
        f"webhook.url=https://127.0.0.1:{ports['webhook']}",
    )
    client = await connect(cluster)
    shipped = await client.get(CONFIG_MAPS, f"{installation.prefix}-config", installation.namespace)
    config: dict[str, Any] = yaml.safe_load(shipped["data"]["config.yaml"])
    config["webhook"] |= {"host": "127.0.0.1", "port": ports["webhook"]}
    config["health"]["healthProbeBindAddress"] = f"127.0.0.1:{ports['health']}"
    config["metrics"]["bindAddress"] = f"127.0.0.1:{ports['metrics']}"
    return Place(cluster, client, kinds_of(names_for(api_group)), config, ports, tmp_path)


async def _pods_of(place: Place, name: str) -> set[str]:
    pods, _ = await place.client.list(PODS, NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={name}")
    return {one["metadata"]["uid"] for one in pods}


@pytest.mark.slow
async def test_parts_run_together_and_apart_and_take_up_what_is_there(place: Place, api_group: str) -> None:
    client, queue_label = place.client, names_for(api_group).queue_name
    together = place.start("together")
    await place.until_ready("health")
    await set_up_queues(client, api_group)
    await create(client, job(1, queue_label, 0.5))
    await place.until_done("job-001")
    await create(client, job(2, queue_label, None))

    async def runs() -> bool:
        return len(await _pods_of(place, "job-002")) == PODS_OF_A_JOB

    await eventually(runs, what="job-002 runs")
    pods = await _pods_of(place, "job-002")
    await place.end("together", together)

    # Without cycles all is kept up, and quota is somebody else's to reserve.
    alone = place.start("without-cycles", "--components=webhook,core,topology")
    await place.until_ready("health")
    await create(client, job(3, queue_label, 0.5))

    async def counted() -> bool:
        status = (await client.get(place.kinds.cluster_queues, "all"))["status"]
        return (status["reservingWorkloads"], status["pendingWorkloads"]) == (1, 1)

    await eventually(counted, what="the status of the ClusterQueue tells who holds quota and who waits")
    waiting = await place.workload_of("job-003")
    assert not conditions.is_true(state_of(waiting), "QuotaReserved")
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "by somebody else",
        "lastTransitionTime": MARKED,
    }
    [pod_set] = waiting["spec"]["podSets"]
    assigned = {
        "name": pod_set["name"],
        "count": pod_set["count"],
        "flavors": {"cpu": "default"},
        "resourceUsage": {"cpu": str(pod_set["count"])},
    }
    admission = {"clusterQueue": "all", "podSetAssignments": [assigned]}
    await client.merge_patch(
        place.kinds.workloads,
        waiting["metadata"]["name"],
        {"status": {"admission": admission, "conditions": [reserved]}},
        NAMESPACE,
        "status",
    )
    await place.until_told("job-003", "Admitted")
    await place.until_done("job-003")

    # What decides may be another process, which then reserves quota and does nothing else.
    deciding = place.start(
        "cycles",
        "--components=cycle",
        health={
            **place.config["health"],
            "healthProbeBindAddress": f"127.0.0.1:{place.ports['other health']}",
        },
        metrics={**place.config["metrics"], "bindAddress": "0"},
        leaderElection={**place.config["leaderElection"], "resourceName": "cycles"},
    )
    await place.until_ready("other health")
    await create(client, job(4, queue_label, 0.5))
    await place.until_done("job-004")
    assert '"name":"batch/job"' not in place.cluster.log("cycles").read_text(), "it manages no jobs"
    assert await _pods_of(place, "job-002") == pods, "what ran goes on"
    deciding.signal(signal.SIGTERM)
    await place.end("without-cycles", alone)
    place.cluster.terminate("cycles", patience_s=40.0)

"""Both parts in one process, as for trying out."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from admitq.runtime.client import Client
from admitq.runtime.resources import CONFIG_MAPS, JOBS
from admitq_api import conditions
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.folders import REPOSITORY
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.ports import free_ports
from localcluster.waiting import eventually
from tests.faults.worlds import NAMESPACE, create, job, set_up_queues, state_of


@pytest.mark.slow
async def test_one_process_holds_admits_and_follows_jobs(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    api_group: str,
    tmp_path: Path,
) -> None:
    cluster = private_cluster((NodePool(count=2, cpu="16", memory="64Gi"),))
    ports = free_ports(["webhook", "health", "metrics"])
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
    shipped = await client.get(CONFIG_MAPS, f"{installation.release}-config", installation.namespace)
    config: dict[str, Any] = yaml.safe_load(shipped["data"]["config.yaml"])
    config["webhook"] |= {"host": "127.0.0.1", "port": ports["webhook"]}
    config["health"]["healthProbeBindAddress"] = f"127.0.0.1:{ports['health']}"
    config["metrics"]["bindAddress"] = f"127.0.0.1:{ports['metrics']}"
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    program = Path(sys.executable).with_name("admitq")
    cluster.spawn(
        "all-in-one",
        [str(program), "all-in-one", f"--config={file}", f"--kubeconfig={cluster.kubeconfig}"],
    )

    async def ready() -> bool:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{ports['health']}/readyz") as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    await eventually(ready, what="the process is ready")
    await set_up_queues(client, api_group)
    await create(client, job(1, names_for(api_group).queue_name, 0.5))

    async def done() -> bool:
        return conditions.is_true(state_of(await client.get(JOBS, "job-001", NAMESPACE)), "Complete")

    await eventually(done, what="the job was held, admitted and finished")
    cluster.terminate("all-in-one", patience_s=40.0)
    last = cluster.log("all-in-one").read_text().splitlines()[-1]
    assert '"event":"stopped"' in last, last

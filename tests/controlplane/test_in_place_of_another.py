"""A process in the place of another: from the other's configuration file and a kubeconfig alone.

The definitions and the webhook configurations exist already, and so do certificates, which another program
renews. At first all parts run, then only some, beside those of another installation.
"""

import asyncio
import json
import signal
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from admitq.core.lifecycle import Phase
from admitq.core.model import ObjectKey
from admitq.core.state import AdmissionState
from admitq.runtime.client import Client
from admitq.runtime.resources import JOBS, MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from admitq.serving.certificates import KeyPair, make_authority, make_leaf
from admitq_api.labels import COMPAT_GROUP, names_for
from localcluster.cluster import LocalCluster
from localcluster.nodes import NodePool
from localcluster.ports import free_ports
from localcluster.processes import Process
from localcluster.pytest_plugin import fresh_namespace, install_crds
from localcluster.waiting import eventually
from tests.controlplane.others import webhook_configurations
from tests.controlplane.pods_of_jobs import end_pods
from tests.controlplane.stage import RUN_SECONDS, Stage, condition_of
from tests.unit.app.dumped_lines import assembled

HOST = "127.0.0.1"
CREDITS = "example.com/credits"
MARKED = "2026-01-01T00:00:00Z"
FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
internalCertManagement: {enable: false}
leaderElection: {leaderElect: false}
controller: {groupKindConcurrency: {Job.batch: 5, Workload.kueue.x-k8s.io: 5}, cacheSyncTimeout: 1m}
clientConnection: {qps: -1, burst: 0}
waitForPodsReady: {timeout: 6s, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 0}}
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector: {matchLabels: {queued: "true"}}
integrations: {frameworks: [batch/job, pod, jobset.x-k8s.io/jobset], labelKeysToCopy: [team]}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 5m, resourceWeights: {cpu: 2.0}}
resources:
  excludeResourcePrefixes: [ephemeral-]
  transformations: [{input: cpu, strategy: Retain, outputs: {example.com/credits: 500m}}]
objectRetentionPolicies: {workloads: {afterFinished: 0s, afterDeactivatedByKueue: 0s}}
"""
OLDER = """
apiVersion: config.kueue.x-k8s.io/v1beta1
waitForPodsReady: {timeout: 6s}
fairSharing: {enable: true}
queueVisibility: {updateIntervalSeconds: 5}
integrations: {frameworks: [batch/job], podOptions: {namespaceSelector: {}}}
"""
"""What a file of v1beta1 says otherwise. Waiting for pods is off there unless it is switched on."""


@dataclass(frozen=True)
class Place:
    """A cluster with webhook configurations that call local ports, and the servers there."""

    cluster: LocalCluster
    ports: Mapping[str, int]
    folder: Path

    def start(self, name: str, *arguments: str, health: str = "health", **changes: Any) -> Process:
        """Run ``admitq all-in-one`` from the file, with sections of it changed."""
        config: dict[str, Any] = {
            **yaml.safe_load(FILE),
            "webhook": {"host": HOST, "port": self.ports["webhook"], "certDir": str(self.folder)},
            "health": {"healthProbeBindAddress": f"{HOST}:{self.ports[health]}"},
            "metrics": {
                "bindAddress": f"{HOST}:{self.ports['metrics']}",
                "enableClusterQueueResources": True,
            },
            **changes,
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        program = Path(sys.executable).with_name("admitq")
        command = [f"--config={file}", f"--kubeconfig={self.cluster.kubeconfig}", *arguments]
        return self.cluster.spawn(name, [str(program), "all-in-one", *command])

    async def read(self, port: str, path: str) -> str:
        """What is served there; empty where it is not well."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{HOST}:{self.ports[port]}/{path}") as answer,
        ):
            text = await answer.text()
            return text if answer.status == 200 else ""

    async def until_ready(self, health: str = "health") -> None:
        """Wait until the process that tells of its health there is ready."""

        async def ready() -> bool:
            try:
                return bool(await self.read(health, "readyz"))
            except aiohttp.ClientConnectionError:
                return False

        await eventually(ready, what=f"the process with {health} is ready")

    async def dumped(self, name: str) -> tuple[dict[str, int], AdmissionState]:
        """What the log of a process says is cached, and the state that it tells of line by line."""

        async def written() -> str:
            text = self.cluster.log(name).read_text()
            return text if '"event":"state dump: finished"' in text else ""

        text = await eventually(written, what=f"{name} has written its state")
        lines = [json.loads(line) for line in text.splitlines()]
        [cached] = [line["objects"] for line in lines if line["event"] == "state dump: cached objects"]
        whole = assembled(line for line in lines if line["event"] == "state dump: part of state")
        return cached, AdmissionState.from_dict(whole)

    async def end(self, name: str, process: Process) -> None:
        """Tell a process to stop; its ports are free before it has ended its work."""
        process.signal(signal.SIGTERM)
        await eventually(lambda: all(map(_is_free, self.ports.values())), what="all ports are free")
        self.cluster.terminate(name, patience_s=40.0)
        last = self.cluster.log(name).read_text().splitlines()[-1]
        assert '"event":"process stopped"' in last, last


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As any other server would, with lingering connections ignored.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
        return True


@pytest.mark.slow
async def test_all_in_one_runs_from_a_configuration_file_and_a_kubeconfig_alone(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    tmp_path: Path,
) -> None:
    cluster = private_cluster((NodePool(count=1, cpu="16", resources={"ephemeral-storage": "1Gi"}),))
    install_crds(cluster, COMPAT_GROUP)
    place = Place(cluster, free_ports(["webhook", "health", "metrics", "other health"]), tmp_path)
    now = time.time_ns()
    first, second = (make_authority(now, name=name) for name in ("first", "second"))
    show(tmp_path, first)
    client = await connect(cluster)
    bundle = first.certificate + second.certificate
    url = f"https://{HOST}:{place.ports['webhook']}"
    for resource, one in zip(
        (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), webhook_configurations(url, bundle), strict=True
    ):
        await client.create(resource, one)
    together = place.start("together")
    await place.until_ready()
    second_shown = show(tmp_path, second)
    async with fresh_namespace(client) as managed, fresh_namespace(client) as spared:
        await client.merge_patch(NAMESPACES, managed, {"metadata": {"labels": {"queued": "true"}}})
        stage, elsewhere = (Stage(client, names_for(COMPAT_GROUP), one) for one in (managed, spared))
        await play(stage, elsewhere)
        metrics = await place.read("metrics", "metrics")
        assert f'kueue_cluster_queue_nominal_quota{{cluster_queue="{stage.own("cq")}"' in metrics

        async def shown() -> str:
            return await asyncio.to_thread(ssl.get_server_certificate, (HOST, place.ports["webhook"]))

        await stage.until(shown, second_shown.certificate.decode(), what="the new certificate is shown")
        await stage.job("stays")
        await stage.until_condition("PodsReady", "Started", "stays")
        pods = await uids(stage, "stays")

        together.signal(signal.SIGUSR2)
        cached, state = await place.dumped("together")
        for resource in (JOBS, stage.kinds.workloads):
            assert cached[str(resource)] == len((await client.list(resource))[0])
        running = ObjectKey(managed, (await stage.workload("stays"))["metadata"]["name"])
        assert state.queries.workload_phase(running) is Phase.ADMITTED
        assert (queue := state.queries.cluster_queue_status(stage.own("cq"))) is not None
        assert (queue.reserving, queue.pending) == (1, 0)
        await place.end("together", together)

        # Without cycles everything else goes on, and another program reserves quota.
        alone = place.start(
            "without-cycles", "--components=webhook,core,jobs,topology", **yaml.safe_load(OLDER)
        )
        await place.until_ready()
        await without_cycles(stage)

        # What decides may be another process, which then reserves quota and does nothing else.
        place.start("cycles", "--components=cycle", health="other health", metrics={"bindAddress": "0"})
        await place.until_ready("other health")
        await stage.job("fourth", seconds=0.5)
        await stage.until(lambda: stage.is_complete("fourth"))
        assert '"name":"batch/job"' not in cluster.log("cycles").read_text(), "it manages no jobs"
        assert await uids(stage, "stays") == pods, "what ran goes on"
    cluster.terminate("cycles", patience_s=40.0)
    await place.end("without-cycles", alone)


async def uids(stage: Stage, job: str) -> set[str]:
    """Which pods a Job has."""
    return {one["metadata"]["uid"] for one in await stage.pods(job)}


async def without_cycles(stage: Stage) -> None:
    """A job that waits until another program reserves quota, beside one that ran before."""
    await stage.job("third")

    async def counted() -> tuple[int, int]:
        status = (await stage.get(stage.kinds.cluster_queues, stage.own("cq")))["status"]
        return status["reservingWorkloads"], status["pendingWorkloads"]

    await stage.until(counted, (1, 1), what="the ClusterQueue counts reserving and pending workloads")
    waiting = await stage.workload("third")
    assert (condition_of(waiting, "QuotaReserved") or ("False",))[0] == "False"
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "by another program",
        "lastTransitionTime": MARKED,
    }
    assigned = {
        "name": waiting["spec"]["podSets"][0]["name"],
        "count": 1,
        "flavors": {"cpu": stage.own("f"), CREDITS: stage.own("f")},
        "resourceUsage": {"cpu": "1", CREDITS: "500m"},
    }
    admission = {"clusterQueue": stage.own("cq"), "podSetAssignments": [assigned]}
    status = {"status": {"admission": admission, "conditions": [reserved]}}
    await stage.change(stage.kinds.workloads, waiting["metadata"]["name"], status, "status")
    await stage.until_condition("Admitted", "Admitted", "third")

    async def ready() -> int:
        return (await stage.get(JOBS, "third"))["status"].get("ready", 0)

    await stage.until(ready, 1, what="the pod of third is ready")
    assert await stage.condition("PodsReady", "third") is None, "nothing waits for pods"
    await end_pods(stage, "third")
    await stage.until(lambda: stage.is_complete("third"))


def show(folder: Path, authority: KeyPair) -> KeyPair:
    """Put a certificate that this authority signed where the process looks."""
    leaf = make_leaf(authority, time.time_ns(), names=(HOST,), name="another program")
    (folder / "tls.key").write_bytes(leaf.key)
    (folder / "tls.crt").write_bytes(leaf.certificate)
    return leaf


async def play(stage: Stage, elsewhere: Stage) -> None:
    """Jobs that show what the file says."""
    await stage.flavor()
    # A CPU costs half a credit.
    quotas = [{"name": "cpu", "nominalQuota": 40}, {"name": CREDITS, "nominalQuota": 9}]
    flavors = [{"name": stage.own("f"), "resources": quotas}]
    await stage.cluster_queue(resourceGroups=[{"coveredResources": ["cpu", CREDITS], "flavors": flavors}])
    await stage.local_queue()
    # No node has room for its pod: it is admitted, does not become ready, and goes for good.
    await stage.job("hopeless", cpu=17)
    await stage.until_condition("Admitted", "Admitted", "hopeless")
    template = (await stage.job("unqueued", queue=None))["spec"]["template"]
    await stage.until_running("unqueued", running=False)
    await elsewhere.job("unqueued", queue=None)
    await elsewhere.until_running("unqueued")
    requests = {"requests": {"cpu": 2, "ephemeral-storage": "1Mi"}}
    (container,) = template["spec"]["containers"]
    pod = {**template["spec"], "containers": [{**container, "resources": requests}]}
    short = {"metadata": {"annotations": {RUN_SECONDS: "0.5"}}, "spec": pod}
    await stage.job("short", labels={"team": "a"}, template=short)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "short")
    waiting = await stage.workload("short")
    assert waiting["metadata"]["labels"]["team"] == "a"
    assert f"insufficient unused quota for {CREDITS}" in str(condition_of(waiting, "QuotaReserved"))
    await stage.until_gone(JOBS, "hopeless")
    await stage.until(lambda: stage.is_complete("short"))
    await stage.until_gone(stage.kinds.workloads, waiting["metadata"]["name"])

"""`admitq all-in-one` replaces Kueue: it needs only Kueue's configuration file and a kubeconfig.

The CRDs and the webhook configurations exist already, and another program renews the certificates. At first
all components run in one process, then only some of them.
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
from admitq.serving.certificates import KeyPair, create_authority, create_leaf
from admitq_api.labels import COMPAT_GROUP, names_for
from localcluster.cluster import LocalCluster
from localcluster.nodes import NodePool
from localcluster.ports import free_ports
from localcluster.processes import Process
from localcluster.pytest_plugin import fresh_namespace, install_crds
from localcluster.waiting import eventually
from tests.controlplane.kueue_webhooks import webhook_configurations
from tests.controlplane.pods_of_jobs import succeed_pods
from tests.controlplane.stage import RUN_SECONDS, Stage, condition_of
from tests.unit.app.dumped_lines import assembled

HOST = "127.0.0.1"
CREDITS = "example.com/credits"
WRITTEN_AT = "2026-01-01T00:00:00Z"
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
"""Sections of a v1beta1 file that differ. In v1beta1 waiting for pods is off unless it is enabled."""


@dataclass(frozen=True)
class Place:
    """A cluster with webhook configurations that call local ports, and the processes that listen there."""

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
        """The body that is served on a port; empty unless the status is 200."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{HOST}:{self.ports[port]}/{path}") as answer,
        ):
            text = await answer.text()
            return text if answer.status == 200 else ""

    async def until_ready(self, health: str = "health") -> None:
        """Wait until the process with this health port is ready."""

        async def is_ready() -> bool:
            try:
                return bool(await self.read(health, "readyz"))
            except aiohttp.ClientConnectionError:
                return False

        await eventually(is_ready, what=f"the process with {health} is ready")

    async def read_state_dump(self, name: str) -> tuple[dict[str, int], AdmissionState]:
        """Wait for a state dump in the log of a process, and return the cached objects and the state."""

        async def finished_dump() -> str:
            text = self.cluster.log(name).read_text()
            return text if '"event":"state dump: finished"' in text else ""

        text = await eventually(finished_dump, what=f"{name} has written its state")
        lines = [json.loads(line) for line in text.splitlines()]
        [cached] = [line["objects"] for line in lines if line["event"] == "state dump: cached objects"]
        state = assembled(line for line in lines if line["event"] == "state dump: part of state")
        return cached, AdmissionState.from_dict(state)

    async def end(self, name: str, process: Process) -> None:
        """Stop a process with SIGTERM; it closes its ports before it has finished its work."""
        process.signal(signal.SIGTERM)
        await eventually(lambda: all(map(_is_free, self.ports.values())), what="all ports are free")
        self.cluster.terminate(name, patience_s=40.0)
        last = self.cluster.log(name).read_text().splitlines()[-1]
        assert '"event":"process stopped"' in last, last


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Lingering connections do not count, as for any other server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
        return True


@dataclass(frozen=True)
class Certificates:
    """Two certificate authorities of another program, which writes certificates to the folder of a place."""

    place: Place
    first: KeyPair
    second: KeyPair

    async def register_webhooks(self, client: Client) -> None:
        """Create webhook configurations that trust both authorities."""
        bundle = self.first.certificate + self.second.certificate
        url = f"https://{HOST}:{self.place.ports['webhook']}"
        for resource, configuration in zip(
            (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), webhook_configurations(url, bundle), strict=True
        ):
            await client.create(resource, configuration)

    async def until_served(self, stage: Stage, leaf: KeyPair) -> None:
        """Wait until the webhook serves a certificate."""

        async def served() -> str:
            return await asyncio.to_thread(ssl.get_server_certificate, (HOST, self.place.ports["webhook"]))

        await stage.until(served, leaf.certificate.decode(), what="the webhook serves the new certificate")


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
    certificates = Certificates(place, *(create_authority(now, name=name) for name in ("first", "second")))
    write_certificate(tmp_path, certificates.first)
    client = await connect(cluster)
    await certificates.register_webhooks(client)
    all_parts = place.start("all-parts")
    await place.until_ready()
    new_leaf = write_certificate(tmp_path, certificates.second)
    async with fresh_namespace(client) as managed, fresh_namespace(client) as unmanaged:
        await client.merge_patch(NAMESPACES, managed, {"metadata": {"labels": {"queued": "true"}}})
        stage, other_stage = (Stage(client, names_for(COMPAT_GROUP), one) for one in (managed, unmanaged))
        await check_that_jobs_follow_the_file(stage, other_stage)
        await check_quota_metric(place, stage)
        await certificates.until_served(stage, new_leaf)
        pods = await start_job_that_stays(stage)
        await check_state_dump(place, all_parts, stage)
        await place.end("all-parts", all_parts)

        # All components but the one that runs cycles: another program reserves quota.
        without_cycles = place.start(
            "without-cycles", "--components=webhook,core,jobs,topology", **yaml.safe_load(OLDER)
        )
        await place.until_ready()
        await check_job_whose_quota_another_program_reserves(stage)

        # A second process runs the cycles and nothing else.
        place.start("cycles", "--components=cycle", health="other health", metrics={"bindAddress": "0"})
        await place.until_ready("other health")
        await stage.job("fourth", seconds=0.5)
        await stage.until(lambda: stage.is_complete("fourth"))
        assert '"name":"batch/job"' not in cluster.log("cycles").read_text(), "it manages no jobs"
        assert await pod_uids(stage, "stays") == pods, "the running job keeps its pods"
    cluster.terminate("cycles", patience_s=40.0)
    await place.end("without-cycles", without_cycles)


async def check_quota_metric(place: Place, stage: Stage) -> None:
    metrics = await place.read("metrics", "metrics")
    assert f'kueue_cluster_queue_nominal_quota{{cluster_queue="{stage.own("cq")}"' in metrics


async def start_job_that_stays(stage: Stage) -> set[str]:
    """Start the job ``stays``, and return the UIDs of its pods once they are ready."""
    await stage.job("stays")
    await stage.until_condition("PodsReady", "Started", "stays")
    return await pod_uids(stage, "stays")


async def check_state_dump(place: Place, process: Process, stage: Stage) -> None:
    """Signal the process to dump its state, and compare the dump with the objects of the API."""
    process.signal(signal.SIGUSR2)
    cached, state = await place.read_state_dump("all-parts")
    for resource in (JOBS, stage.kinds.workloads):
        assert cached[str(resource)] == len((await stage.client.list(resource))[0])
    running = ObjectKey(stage.namespace, (await stage.workload("stays"))["metadata"]["name"])
    assert state.queries.workload_phase(running) is Phase.ADMITTED
    assert (queue := state.queries.cluster_queue_status(stage.own("cq"))) is not None
    assert (queue.reserving, queue.pending) == (1, 0)


async def pod_uids(stage: Stage, job: str) -> set[str]:
    """The UIDs of the pods of a Job."""
    return {one["metadata"]["uid"] for one in await stage.pods(job)}


async def check_job_whose_quota_another_program_reserves(stage: Stage) -> None:
    """A job waits until another program reserves quota for it; a job that ran before keeps running."""
    await stage.job("third")

    async def reserving_and_pending() -> tuple[int, int]:
        status = (await stage.get(stage.kinds.cluster_queues, stage.own("cq")))["status"]
        return status["reservingWorkloads"], status["pendingWorkloads"]

    await stage.until(
        reserving_and_pending, (1, 1), what="the ClusterQueue counts reserving and pending workloads"
    )
    waiting = await stage.workload("third")
    assert (condition_of(waiting, "QuotaReserved") or ("False",))[0] == "False"
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "by another program",
        "lastTransitionTime": WRITTEN_AT,
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

    async def ready_pods() -> int:
        return (await stage.get(JOBS, "third"))["status"].get("ready", 0)

    await stage.until(ready_pods, 1, what="the pod of third is ready")
    assert await stage.condition("PodsReady", "third") is None, "nothing waits for pods"
    await succeed_pods(stage, "third")
    await stage.until(lambda: stage.is_complete("third"))


def write_certificate(folder: Path, authority: KeyPair) -> KeyPair:
    """Write a certificate of this authority to the folder that the process watches."""
    leaf = create_leaf(authority, time.time_ns(), names=(HOST,), name="another program")
    (folder / "tls.key").write_bytes(leaf.key)
    (folder / "tls.crt").write_bytes(leaf.certificate)
    return leaf


async def check_that_jobs_follow_the_file(stage: Stage, other_stage: Stage) -> None:
    """Jobs of a managed and of an unmanaged namespace are handled as the configuration file says."""
    await stage.flavor()
    # A CPU costs half a credit.
    quotas = [{"name": "cpu", "nominalQuota": 40}, {"name": CREDITS, "nominalQuota": 9}]
    flavors = [{"name": stage.own("f"), "resources": quotas}]
    await stage.cluster_queue(resourceGroups=[{"coveredResources": ["cpu", CREDITS], "flavors": flavors}])
    await stage.local_queue()
    # No node has room for its pod. It is admitted, does not become ready, and is deleted after the timeout.
    await stage.job("hopeless", cpu=17)
    await stage.until_condition("Admitted", "Admitted", "hopeless")
    template = (await stage.job("unqueued", queue=None))["spec"]["template"]
    await stage.until_running("unqueued", running=False)
    await other_stage.job("unqueued", queue=None)
    await other_stage.until_running("unqueued")
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

"""One process in the place of another: from the other's configuration file and a kubeconfig alone.

The definitions and the webhook configurations are there already, and so are certificates, which somebody
else renews.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from string import Template

import aiohttp
import pytest

from admitq.runtime.client import Client
from admitq.runtime.resources import JOBS, MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from admitq.serving.certificates import KeyPair, make_authority, make_leaf
from admitq_api.labels import COMPAT_GROUP, names_for
from localcluster.cluster import LocalCluster
from localcluster.nodes import NodePool
from localcluster.ports import free_ports
from localcluster.pytest_plugin import fresh_namespace, install_crds
from localcluster.waiting import eventually
from tests.controlplane.others import webhook_configurations
from tests.controlplane.stage import RUN_SECONDS, Stage, condition_of

HOST = "127.0.0.1"
CREDITS = "example.com/credits"
FILE = Template("""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
webhook: {host: 127.0.0.1, port: $webhook, certDir: "$certificates"}
internalCertManagement: {enable: false}
health: {healthProbeBindAddress: "127.0.0.1:$health"}
metrics: {bindAddress: "127.0.0.1:$metrics", enableClusterQueueResources: true}
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
""")


@pytest.mark.slow
async def test_the_file_and_a_kubeconfig_are_enough(
    private_cluster: Callable[..., LocalCluster],
    connect: Callable[[LocalCluster], Awaitable[Client]],
    tmp_path: Path,
) -> None:
    cluster = private_cluster((NodePool(count=1, cpu="16", resources={"ephemeral-storage": "1Gi"}),))
    install_crds(cluster, COMPAT_GROUP)
    ports = free_ports(["webhook", "health", "metrics"])
    now = time.time_ns()
    first, second = (make_authority(now, name=name) for name in ("first", "second"))
    show(tmp_path, first)
    client = await connect(cluster)
    bundle = first.certificate + second.certificate
    url = f"https://{HOST}:{ports['webhook']}"
    for resource, one in zip(
        (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), webhook_configurations(url, bundle), strict=True
    ):
        await client.create(resource, one)
    file = tmp_path / "config.yaml"
    file.write_text(FILE.substitute(ports, certificates=tmp_path))
    program = Path(sys.executable).with_name("admitq")
    cluster.spawn(
        "all-in-one",
        [str(program), "all-in-one", f"--config={file}", f"--kubeconfig={cluster.kubeconfig}"],
    )

    async def read(port: str, path: str) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{HOST}:{ports[port]}/{path}") as answer,
        ):
            text = await answer.text()
            return text if answer.status == 200 else ""

    async def ready() -> bool:
        try:
            return bool(await read("health", "readyz"))
        except aiohttp.ClientConnectionError:
            return False

    await eventually(ready, what="the process is ready")
    second_shown = show(tmp_path, second)
    async with fresh_namespace(client) as managed, fresh_namespace(client) as spared:
        await client.merge_patch(NAMESPACES, managed, {"metadata": {"labels": {"queued": "true"}}})
        stage, elsewhere = (Stage(client, names_for(COMPAT_GROUP), one) for one in (managed, spared))
        await play(stage, elsewhere)
        metrics = await read("metrics", "metrics")
    assert f'kueue_cluster_queue_nominal_quota{{cluster_queue="{stage.own("cq")}"' in metrics

    async def shown() -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, (HOST, ports["webhook"]))

    await stage.until(shown, second_shown.certificate.decode(), what="the new certificate is shown")
    cluster.terminate("all-in-one", patience_s=40.0)
    last = cluster.log("all-in-one").read_text().splitlines()[-1]
    assert '"event":"stopped"' in last, last


def show(folder: Path, authority: KeyPair) -> KeyPair:
    """Put a certificate that this authority signed where the process looks."""
    leaf = make_leaf(authority, time.time_ns(), names=(HOST,), name="somebody else")
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
